// One root of the store: find, publish, set aside, remember failures.
#include "store/store.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "backends/machine_code.hpp"
#include "backends/process/owner.hpp"
#include "store/draft.hpp"
#include "store/files.hpp"
#include "store/lock_file.hpp"

namespace ejk::store {
namespace {

namespace fs = std::filesystem;
constexpr char info_name[] = "image.json";
constexpr std::size_t log_limit = 256 * 1024;  // kept of a failed build's words
constexpr int most_set_aside = 9;              // bad entries kept of one image, for whoever looks into it

// What image.json says of another image than the one asked for; empty: nothing.
std::string mismatch(const ImageInfo& info, const spec::Image& image) {
  const auto differs = [](const char* what, const std::string& found, const std::string& expected) {
    return found == expected ? "" : fmt::format("image.json: {} is '{}', expected '{}'", what, found, expected);
  };
  for (const auto& reason : {differs("id", info.id, image.id), differs("kernel", info.kernel, image.kernel),
                             differs("arch", info.arch, image.arch), differs("source_hash", info.source_hash, image.hash)})
    if (!reason.empty()) return reason;
  return {};
}

ImageInfo info_of(const spec::Image& image, const CompileResult& result) {
  std::string why_no_code;
  return {image.id,
          image.kernel,
          image.arch,
          image.hash,
          result.compiler,
          result.command,
          sha256_hex(result.binary),
          static_cast<std::int64_t>(result.binary.size()),
          result.resources,
          machine_code_hash(result.binary, why_no_code)};
}

// Moves a finished folder to its place. false: something is there.
bool rename_new(const Draft& draft, const HeldFolder& kernel, const std::string& entry) {
  if (draft.rename_to(kernel, entry)) return true;
  if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return false;
  throw std::runtime_error(fmt::format("cannot publish {}: {}", (kernel.path() / entry).string(), std::strerror(errno)));
}

// Reads an entry into `found`; what is wrong with it becomes its verdict.
Found& read_entry(const HeldFolder& entry, const spec::Image& image, const std::string& binary_name, Found& found) {
  std::string why;
  const auto bad = [&](const std::string& reason) -> Found& {
    found.verdict = Verdict::bad;
    found.why = reason;
    return found;
  };
  const auto path = entry.path().string();
  const auto text = entry.read(info_name, info_limit, why);
  if (!text) return bad(why);
  try {
    found.info = parse_image_info(*text);
  } catch (const UnknownSchema& problem) {
    found.why = path + ": " + problem.what();
    return found;
  } catch (const std::runtime_error& problem) {
    return bad(path + ": " + problem.what());
  }
  if (why = mismatch(found.info, image); !why.empty()) return bad(path + ": " + why);
  auto binary = entry.read(binary_name, binary_limit, why);
  if (!binary) return bad(why);
  if (static_cast<std::int64_t>(binary->size()) != found.info.binary_bytes)
    return bad(fmt::format("{}: {} bytes, expected {}", found.binary.string(), binary->size(), found.info.binary_bytes));
  if (const auto sum = sha256_hex(*binary); sum != found.info.binary_sha256)
    return bad(fmt::format("{}: sha256 is {}, expected {}", found.binary.string(), sum, found.info.binary_sha256));
  found.bytes = std::move(*binary);
  found.verdict = Verdict::hit;
  return found;
}

}  // namespace

Store::Store(fs::path root, bool writable, Trust trust) : root_(std::move(root)), writable_(writable), trust_(std::move(trust)) {}

std::string Store::entry_name(const spec::Image& image) { return image.id + "-" + image.hash; }
fs::path Store::entry_path(const spec::Image& image) const { return root_ / image.kernel / entry_name(image); }

std::optional<HeldFolder> Store::folder_of(const std::string& kernel, std::string& why_not) const {
  const auto root = HeldFolder::open(root_, trust_, why_not);
  return root ? root->folder(kernel, why_not) : std::nullopt;
}

HeldFolder Store::make_folder_of(const std::string& kernel) const {
  return HeldFolder::make(root_, trust_, 0755).make_folder(kernel, 0755);
}

std::string Store::distrust(const std::string& kernel) const {
  std::string why;
  return folder_of(kernel, why) ? "" : why;
}

Found Store::find(const spec::Image& image, const std::string&, const std::string& binary_extension) const {
  const auto name = "binary." + binary_extension;
  Found found;
  found.binary = entry_path(image) / name;
  const auto kernel = folder_of(image.kernel, found.why);
  if (!kernel || !kernel->has(entry_name(image))) {
    if (found.why.empty()) found.why = "no entry " + entry_path(image).string();
    return found;
  }
  if (const auto entry = kernel->folder(entry_name(image), found.why)) return read_entry(*entry, image, name, found);
  found.verdict = Verdict::bad;
  return found;
}

std::string Store::code_of(const spec::Image& image, const std::string& source_extension, const std::string& binary_extension) const {
  std::string ignored;
  const auto kernel = folder_of(image.kernel, ignored);
  const auto entry = kernel && kernel->has(entry_name(image)) ? kernel->folder(entry_name(image), ignored) : std::nullopt;
  const auto text = entry ? entry->read(info_name, info_limit, ignored) : std::nullopt;
  if (!text) return {};
  try {
    const auto info = parse_image_info(*text);
    if (!mismatch(info, image).empty()) return {};
    if (!info.code.empty()) return info.code;
  } catch (const std::runtime_error&) {
    return {};
  }
  const auto found = find(image, source_extension, binary_extension);
  return found.verdict == Verdict::hit ? machine_code_hash(found.bytes, ignored) : "";
}

std::string Places::code_of(const spec::Image& image, const std::string& source_extension, const std::string& binary_extension) const {
  if (auto code = user ? user->code_of(image, source_extension, binary_extension) : ""; !code.empty()) return code;
  for (const auto& pack : packs)
    if (auto code = pack.code_of(image, source_extension, binary_extension); !code.empty()) return code;
  return {};
}

Found Store::publish(const spec::Image& image, const CompileResult& result, const std::string& source_extension,
                     const std::string& binary_extension) const {
  if (!writable_) throw std::runtime_error(fmt::format("cannot publish {}: the store {} is read-only", image.id, root_.string()));
  const auto entry = entry_name(image);
  const auto kernel = make_folder_of(image.kernel);
  const Draft draft(kernel);
  draft.folder().write("source." + source_extension, image.source);
  draft.folder().write("binary." + binary_extension, result.binary);
  draft.folder().write(info_name, to_json(info_of(image, result)));
  draft.open_to_readers();
  draft.folder().sync();
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (rename_new(draft, kernel, entry)) {
      kernel.sync();
      break;
    }
    if (find(image, source_extension, binary_extension).verdict == Verdict::hit) break;  // somebody was faster
    set_entry_aside(kernel, entry);
  }
  kernel.remove(entry + ".failed");
  auto found = find(image, source_extension, binary_extension);
  if (found.verdict != Verdict::hit) throw std::runtime_error(fmt::format("published {}, but cannot use it: {}", image.id, found.why));
  return found;
}

void Store::set_aside(const spec::Image& image) const {
  std::string ignored;
  if (!writable_) return;
  if (const auto kernel = folder_of(image.kernel, ignored)) set_entry_aside(*kernel, entry_name(image));
}

void set_entry_aside(const HeldFolder& kernel, const std::string& entry) {
  if (!kernel.has(entry)) return;
  for (int i = 1; i <= most_set_aside; ++i)
    if (const auto aside = fmt::format("{}.bad-{}", entry, i); !kernel.has(aside))
      if (kernel.rename(entry, kernel, aside) || errno == ENOENT) return;
  const auto oldest = entry + ".bad-1";
  kernel.remove(oldest);
  kernel.rename(entry, kernel, oldest);
}

void Store::mark_used(const spec::Image& image) const {
  std::string ignored;
  if (!writable_) return;
  const auto kernel = folder_of(image.kernel, ignored);
  const auto facts = kernel ? kernel->facts(entry_name(image)) : std::nullopt;
  if (facts && std::time(nullptr) - facts->st_mtime > 3600) kernel->touch(entry_name(image));
}

bool Store::source_intact(const spec::Image& image, const std::string& source_extension) const {
  std::string ignored;
  const auto kernel = folder_of(image.kernel, ignored);
  const auto entry = kernel ? kernel->folder(entry_name(image), ignored) : std::nullopt;
  const auto text = entry ? entry->read("source." + source_extension, image.source.size(), ignored) : std::nullopt;
  return text && *text == image.source;
}

void Store::restore_source(const spec::Image& image, const std::string& source_extension) const {
  if (!writable_) return;
  try {
    std::string ignored;
    const auto kernel = folder_of(image.kernel, ignored);
    const auto entry = kernel ? kernel->folder(entry_name(image), ignored) : std::nullopt;
    if (!entry) return;
    const Draft draft(*kernel);
    draft.folder().write("source", image.source);
    draft.folder().rename("source", *entry, "source." + source_extension);
  } catch (const std::exception&) {
    // Nothing that runs needs it.
  }
}

std::string failure_compiler(const std::string& text) {
  const auto end = text.find('\n');
  if (end == std::string::npos) return {};
  const auto words = text.substr(end + 1);
  return sha256_hex(words) == text.substr(0, end) ? words.substr(0, words.find('\n')) : "";
}

std::optional<std::string> Store::failed_log(const spec::Image& image, const std::string& compiler) const {
  std::string ignored;
  const auto kernel = folder_of(image.kernel, ignored);
  const auto text = kernel ? kernel->read(entry_name(image) + ".failed", info_limit, ignored) : std::nullopt;
  if (!text || failure_compiler(*text) != compiler) return std::nullopt;
  return text->substr(text->find('\n') + 1 + compiler.size() + 1);
}

void Store::remember_failure(const spec::Image& image, const std::string& compiler, const std::string& log) const {
  if (!writable_) return;
  try {
    const auto kernel = make_folder_of(image.kernel);
    const Draft draft(kernel);
    const auto words = compiler + "\n" + log.substr(0, log_limit);
    draft.folder().write("failed", sha256_hex(words) + "\n" + words);
    draft.folder().rename("failed", kernel, entry_name(image) + ".failed");
  } catch (const std::exception&) {
    // Then the next process compiles it again, and fails again.
  }
}

void Store::remove_leftovers(const std::string& kernel) const {
  std::string ignored;
  const auto folder = writable_ ? folder_of(kernel, ignored) : std::nullopt;
  if (!folder) return;
  for (const auto& name : folder->names())
    if (abandoned((folder->path() / name).string(), temporary_prefix)) folder->remove(name);
  remove_free_locks(*folder);
}

}  // namespace ejk::store
