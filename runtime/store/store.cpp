// One root of the store: find, publish, set aside, remember failures.
#include "store/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "backends/owner.hpp"
#include "backends/temporary_folder.hpp"
#include "store/files.hpp"
#include "store/lock_file.hpp"

namespace ejk::store {
namespace {

namespace fs = std::filesystem;
constexpr char info_name[] = "image.json";
constexpr std::size_t log_limit = 256 * 1024;  // kept of a failed build's words
constexpr int most_set_aside = 9;              // bad entries kept of one image, for whoever looks into it

fs::path beside(const fs::path& entry, const std::string& suffix) { return entry.parent_path() / (entry.filename().string() + suffix); }

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

Found bad(Found found, const std::string& why) {
  found.verdict = Verdict::bad;
  found.why = why;
  return found;
}

ImageInfo info_of(const spec::Image& image, const CompileResult& result) {
  return {image.id,
          image.kernel,
          image.arch,
          image.hash,
          result.compiler,
          result.command,
          sha256_hex(result.binary),
          static_cast<std::int64_t>(result.binary.size()),
          result.resources};
}

enum class Renamed { done, taken };

// Moves a finished folder to its place unless something is there.
Renamed rename_new(const fs::path& from, const fs::path& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return Renamed::done;
  if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR) return Renamed::taken;
  throw std::runtime_error(fmt::format("cannot publish {}: {}", to.string(), std::strerror(errno)));
}

}  // namespace

Store::Store(fs::path root, bool writable) : root_(std::move(root)), writable_(writable) {}

fs::path Store::entry_path(const spec::Image& image) const { return root_ / image.kernel / (image.id + "-" + image.hash); }

Found Store::find(const spec::Image& image, const std::string&, const std::string& binary_extension) const {
  const auto entry = entry_path(image);
  Found found;
  found.binary = entry / ("binary." + binary_extension);
  std::error_code error;
  if (!fs::exists(entry, error)) {
    found.why = "no entry " + entry.string();
    return found;
  }
  std::string why;
  const auto text = read_file(entry / info_name, info_limit, why);
  if (!text) return bad(found, why);
  try {
    found.info = parse_image_info(*text);
  } catch (const UnknownSchema& problem) {
    found.why = entry.string() + ": " + problem.what();
    return found;
  } catch (const std::runtime_error& problem) {
    return bad(found, entry.string() + ": " + problem.what());
  }
  if (why = mismatch(found.info, image); !why.empty()) return bad(found, entry.string() + ": " + why);
  const auto binary = read_file(found.binary, binary_limit, why);
  if (!binary) return bad(found, why);
  if (static_cast<std::int64_t>(binary->size()) != found.info.binary_bytes)
    return bad(found, fmt::format("{}: {} bytes, expected {}", found.binary.string(), binary->size(), found.info.binary_bytes));
  if (const auto sum = sha256_hex(*binary); sum != found.info.binary_sha256)
    return bad(found, fmt::format("{}: sha256 is {}, expected {}", found.binary.string(), sum, found.info.binary_sha256));
  found.verdict = Verdict::hit;
  return found;
}

Found Store::publish(const spec::Image& image, const CompileResult& result, const std::string& source_extension,
                     const std::string& binary_extension) const {
  if (!writable_) throw std::runtime_error(fmt::format("cannot publish {}: the store {} is read-only", image.id, root_.string()));
  const auto entry = entry_path(image);
  make_folders(entry.parent_path());
  TemporaryFolder folder(entry.parent_path() / owned_name(temporary_prefix));
  write_synced(folder.path() / ("source." + source_extension), image.source);
  write_synced(folder.path() / ("binary." + binary_extension), result.binary);
  write_synced(folder.path() / info_name, to_json(info_of(image, result)));
  fs::permissions(folder.path(), fs::status(entry.parent_path()).permissions() & fs::perms::all);
  sync_folder(folder.path());
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (rename_new(folder.path(), entry) == Renamed::done) {
      folder.keep();
      sync_folder(entry.parent_path());
      break;
    }
    if (find(image, source_extension, binary_extension).verdict == Verdict::hit) break;  // somebody was faster
    set_aside(image);
  }
  std::error_code ignored;
  fs::remove(beside(entry, ".failed"), ignored);
  auto found = find(image, source_extension, binary_extension);
  if (found.verdict != Verdict::hit) throw std::runtime_error(fmt::format("published {}, but cannot use it: {}", image.id, found.why));
  return found;
}

void Store::set_aside(const spec::Image& image) const {
  if (writable_) set_entry_aside(entry_path(image));
}

void set_entry_aside(const fs::path& entry) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(entry, ignored))) return;
  for (int i = 1; i <= most_set_aside; ++i)
    if (const auto aside = beside(entry, fmt::format(".bad-{}", i)); !fs::exists(fs::symlink_status(aside, ignored)))
      if (rename(entry.c_str(), aside.c_str()) == 0 || errno == ENOENT) return;
  const auto oldest = beside(entry, ".bad-1");
  fs::remove_all(oldest, ignored);
  fs::rename(entry, oldest, ignored);
}

void Store::mark_used(const spec::Image& image) const {
  if (!writable_) return;
  const auto entry = entry_path(image);
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  if (const auto before = fs::last_write_time(entry, error); !error && now - before > std::chrono::hours(1))
    fs::last_write_time(entry, now, error);
}

bool Store::source_intact(const spec::Image& image, const std::string& source_extension) const {
  std::string ignored;
  const auto text = read_file(entry_path(image) / ("source." + source_extension), image.source.size(), ignored);
  return text && *text == image.source;
}

void Store::restore_source(const spec::Image& image, const std::string& source_extension) const {
  if (!writable_) return;
  const auto entry = entry_path(image);
  try {
    const TemporaryFolder folder(entry.parent_path() / owned_name(temporary_prefix));
    write_synced(folder.path() / "source", image.source);
    fs::rename(folder.path() / "source", entry / ("source." + source_extension));
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
  const auto text = read_file(beside(entry_path(image), ".failed"), info_limit, ignored);
  if (!text || failure_compiler(*text) != compiler) return std::nullopt;
  return text->substr(text->find('\n') + 1 + compiler.size() + 1);
}

void Store::remember_failure(const spec::Image& image, const std::string& compiler, const std::string& log) const {
  if (!writable_) return;
  const auto entry = entry_path(image);
  try {
    make_folders(entry.parent_path());
    const TemporaryFolder folder(entry.parent_path() / owned_name(temporary_prefix));
    const auto words = compiler + "\n" + log.substr(0, log_limit);
    write_synced(folder.path() / "failed", sha256_hex(words) + "\n" + words);
    fs::rename(folder.path() / "failed", beside(entry, ".failed"));
  } catch (const std::exception&) {
    // Then the next process compiles it again, and fails again.
  }
}

void Store::remove_leftovers(const std::string& kernel) const {
  if (!writable_) return;
  remove_abandoned(root_ / kernel, temporary_prefix);
  remove_free_locks(root_ / kernel);
}

}  // namespace ejk::store
