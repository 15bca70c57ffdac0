// Scanning and judging a store's entries.
#include "store/cache_entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "backends/machine_code.hpp"
#include "backends/process/owner.hpp"
#include "command_line/arguments.hpp"
#include "spec/render/source_hash.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

std::uintmax_t size_of_tree(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return fs::file_size(path, error);
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(path, error))
    if (file.is_regular_file(error)) bytes += file.file_size(error);
  return bytes;
}

double age_days(const fs::path& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return error ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - written).count() / 86400;
}

CacheEntry entry_at(const fs::path& path, const std::string& kernel) {
  CacheEntry entry;
  entry.kind = CacheEntry::Kind::leftover;
  entry.path = path;
  entry.kernel = kernel;
  entry.name = path.filename().string();
  entry.bytes = size_of_tree(path);
  entry.age_days = entry.idle_days = age_days(path);
  std::error_code error;
  if (entry.name.ends_with(".failed")) entry.kind = CacheEntry::Kind::failed;
  if (entry.name.find(".bad") != std::string::npos) entry.kind = CacheEntry::Kind::aside;
  if (entry.name.starts_with("."))
    entry.in_use = entry.name.starts_with(store::temporary_prefix) && !abandoned(path.string(), store::temporary_prefix);
  const auto dash = entry.name.rfind('-');
  if (entry.kind != CacheEntry::Kind::leftover || entry.name.starts_with(".") || dash == std::string::npos ||
      !fs::exists(path / "image.json", error))
    return entry;
  entry.kind = CacheEntry::Kind::image;
  entry.id = entry.name.substr(0, dash);
  entry.hash = entry.name.substr(dash + 1);
  entry.age_days = age_days(path / "image.json");
  return entry;
}

void mark_superseded(std::vector<CacheEntry>& entries) {
  std::map<std::string, double> youngest;
  for (const auto& entry : entries)
    if (entry.kind == CacheEntry::Kind::image) {
      const auto [known, fresh] = youngest.emplace(entry.id, entry.age_days);
      if (!fresh) known->second = std::min(known->second, entry.age_days);
    }
  for (auto& entry : entries) entry.superseded = entry.kind == CacheEntry::Kind::image && entry.age_days > youngest[entry.id];
}

// The file of the entry whose name begins so ("source.", "binary."); empty: none.
fs::path file_named(const fs::path& entry, const std::string& beginning) {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(entry, error))
    if (file.path().filename().string().starts_with(beginning)) return file.path();
  return {};
}

std::string sha256_of(const std::string& bytes) { return store::sha256_hex(bytes); }
std::string code_of(const std::string& binary) {
  std::string why_not;
  return machine_code_hash(binary, why_not);
}
std::string source_hash_of(const std::string& source) { return spec::source_hash(source); }

std::string wrong_hash(const fs::path& file, const std::string& expected, std::string (*hash_of)(const std::string&)) {
  std::string why;
  const auto bytes = store::read_file(file, store::binary_limit, why);
  if (!bytes) return file.filename().string() + ": " + why;
  const auto found = hash_of(*bytes);
  return found == expected
             ? ""
             : fmt::format("{}: its hash is {}…, expected {}…", file.filename().string(), found.substr(0, 16), expected.substr(0, 16));
}

}  // namespace

const char* kind_text(CacheEntry::Kind kind) {
  switch (kind) {
    case CacheEntry::Kind::image:
      return "image";
    case CacheEntry::Kind::failed:
      return "failed build";
    case CacheEntry::Kind::aside:
      return "set aside";
    case CacheEntry::Kind::leftover:
      return "leftover";
  }
  return "";
}

std::vector<CacheEntry> entries_of(const fs::path& root, const std::string& pattern) {
  std::vector<CacheEntry> entries;
  std::error_code error;
  for (const auto& kernel : fs::directory_iterator(root, error)) {
    const auto name = kernel.path().filename().string();
    if (!kernel.is_directory(error) || name == "specs" || name == "templates" || name == "tuned") continue;
    std::error_code inner;
    for (const auto& entry : fs::directory_iterator(kernel.path(), inner))
      if (entry.path().extension() != ".lock") entries.push_back(entry_at(entry.path(), name));
  }
  mark_superseded(entries);
  std::erase_if(entries, [&](const auto& entry) {
    return !matches(pattern, entry.kernel + "/" + entry.name) && !matches(pattern, entry.name) && !matches(pattern, entry.id);
  });
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return std::tie(a.kernel, a.name) < std::tie(b.kernel, b.name); });
  return entries;
}

std::string fault_of(const CacheEntry& entry) {
  std::string why;
  if (entry.kind == CacheEntry::Kind::failed) {
    const auto words = store::read_file(entry.path, store::info_limit, why);
    return words && store::failure_compiler(*words).empty() ? "its words do not have the sha256 of its first line" : why;
  }
  const auto text = store::read_file(entry.path / "image.json", store::info_limit, why);
  if (!text) return "image.json: " + why;
  store::ImageInfo info;
  try {
    info = store::parse_image_info(*text);
  } catch (const std::runtime_error& e) {
    return fmt::format("image.json: {}", e.what());
  }
  if (info.id != entry.id) return fmt::format("image.json is of {}", info.id);
  if (info.source_hash != entry.hash) return fmt::format("image.json says source hash {}", info.source_hash);
  for (const auto& [beginning, hash, hash_of] : {std::tuple{"binary.", info.binary_sha256, &sha256_of},
                                                 {"source.", entry.hash, &source_hash_of},
                                                 {"binary.", info.code, &code_of}}) {
    if (hash.empty()) continue;  // of an older ejk: it says no hash of the machine code
    const auto file = file_named(entry.path, beginning);
    if (file.empty()) return fmt::format("no {}* file", beginning);
    if (auto fault = wrong_hash(file, hash, hash_of); !fault.empty()) return fault;
  }
  return "";
}

}  // namespace ejk::tools
