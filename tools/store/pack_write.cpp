// A pack is a store like any other, with pack.json beside its kernels' folders.
#include "store/pack_write.hpp"

#include <fmt/format.h>

#include "backends/process/owner.hpp"
#include "backends/process/temporary_folder.hpp"
#include "command_line/arguments.hpp"
#include "store/files.hpp"
#include "store/mirror.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;
constexpr char staging_prefix[] = ".ejk-pack-", summary_name[] = "pack.json";

std::int64_t bytes_below(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(folder))
    if (file.is_regular_file()) bytes += static_cast<std::int64_t>(file.file_size());
  return bytes;
}

std::string read_binary(const fs::path& path) {
  std::string why;
  auto text = store::read_file(path, store::binary_limit, why);
  if (!text) throw std::runtime_error(why);
  return std::move(*text);
}

// The build that a store holds, as if it had been made now.
CompileResult result_of(const store::Found& found) {
  CompileResult result;
  result.ok = true;
  result.binary = read_binary(found.binary);  // again, for its bytes are not kept: a plan may have thousands
  if (store::sha256_hex(result.binary) != found.info.binary_sha256)
    throw std::runtime_error(fmt::format("{} has changed since it was read; run it again", found.binary.string()));
  result.compiler = found.info.compiler;
  result.command = found.info.command;
  result.resources = found.info.resources;
  return result;
}

}  // namespace

PackWriter::PackWriter(fs::path out) : out_(fs::absolute(std::move(out)).lexically_normal()) {
  if (!out_.has_filename()) out_ = out_.parent_path();
  if (fs::exists(out_) && (!fs::is_directory(out_) || (!fs::is_empty(out_) && !fs::exists(out_ / summary_name))))
    throw UsageError(fmt::format("--out: {} is there and is no pack (it has no {}); name a new folder", out_.string(), summary_name));
  store::make_folders(out_.parent_path());
  remove_abandoned(out_.parent_path(), staging_prefix);
  staging_ = out_.parent_path() / owned_name(staging_prefix);
  store::make_folders(staging_ / "pack");
}

PackWriter::~PackWriter() {
  std::error_code ignored;
  fs::remove_all(staging_, ignored);
}

std::int64_t PackWriter::add_texts() {
  const auto& source = Library::instance().parts().places.packs.front().root();
  mirror(source / "specs", staging_ / "pack" / "specs", {".json", ".jsonl"});
  mirror(source / "templates", staging_ / "pack" / "templates", {".cpp", ".cu", ".hip", ".h"});
  return bytes_below(staging_ / "pack");
}

std::vector<std::int64_t> PackWriter::obtain(std::vector<PackedImage>& images, int jobs,
                                             const std::function<void(const store::BuildEvent&)>& on_event, store::BuildReport& report) {
  const store::Store built(staging_ / "built", true);
  std::vector<store::BuildItem> missing;
  for (const auto& image : images)
    if (!image.found) missing.push_back(image.item);
  if (!missing.empty()) report = store::build(built, missing, jobs, on_event);
  std::vector<std::int64_t> bytes;
  for (auto& image : images) {
    const auto* backend = backend_of(image.item.arch->platform);
    if (!image.found) image.found = built.find(image.item.image, backend->source_extension(), backend->binary_extension());
    std::string().swap(image.found->bytes);
    bytes.push_back(image.found->verdict == store::Verdict::hit
                        ? static_cast<std::int64_t>(image.item.image.source.size() + to_json(image.found->info).size()) +
                              image.found->info.binary_bytes
                        : 0);
  }
  return bytes;
}

void PackWriter::add(const PackedImage& image) {
  const auto* backend = backend_of(image.item.arch->platform);
  store::Store(staging_ / "pack", true)
      .publish(image.item.image, result_of(*image.found), backend->source_extension(), backend->binary_extension());
}

void PackWriter::finish(const std::string& summary) {
  const auto pack = staging_ / "pack";
  store::write_synced(pack / summary_name, summary);
  if (fs::exists(out_)) fs::rename(out_, staging_ / "before");
  fs::rename(pack, out_);
  store::sync_folder(out_.parent_path());
}

}  // namespace ejk::tools
