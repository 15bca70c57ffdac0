// ConfigCache (memory tier) and PersistentCache (tuning records on disk).
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"

namespace ejk {

std::optional<Config> ConfigCache::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = configs_.find(key);
  return found == configs_.end() ? std::nullopt : std::optional(found->second);
}

void ConfigCache::put(const std::string& key, Config config) {
  const std::lock_guard lock(mutex_);
  configs_.insert_or_assign(key, std::move(config));
  ++Library::epoch;
}

void ConfigCache::clear() {
  const std::lock_guard lock(mutex_);
  configs_.clear();
  ++Library::epoch;
}

std::size_t ConfigCache::size() const {
  const std::lock_guard lock(mutex_);
  return configs_.size();
}

// One records file, read once. Later lines win over earlier ones with the same key.
struct PersistentCache::File {
  struct Row {
    Config config;
    std::size_t line;
  };
  bool exists = false;
  std::unordered_map<std::string, Row> rows;
  std::string bad_lines;  // "3 (not JSON), 7 (no config)"
};

namespace {

// "" or why the line is no record.
std::string read_row(const std::string& line, std::string& key, Config& config) {
  const auto node = nlohmann::json::parse(line, nullptr, false);
  if (!node.is_object()) return "not a JSON object";
  if (!node.contains("key") || !(node["key"].is_object() || node["key"].is_string())) return "no key";
  if (!node.contains("config")) return "no config";
  auto parsed = config_from_json(node["config"].dump());
  if (!parsed) return parsed.error().message;
  key = node["key"].is_string() ? node["key"].get<std::string>() : node["key"].dump();
  config = std::move(*parsed);
  return {};
}

}  // namespace

PersistentCache::PersistentCache(std::vector<std::string> folders) : folders_(std::move(folders)) {}

std::shared_ptr<const PersistentCache::File> PersistentCache::file(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  auto& slot = files_[path];
  if (slot) return slot;
  auto file = std::make_shared<File>();
  std::ifstream stream(path);
  file->exists = stream.is_open();
  std::string line, key;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    if (line.empty()) continue;
    Config config;
    if (const auto why = read_row(line, key, config); why.empty())
      file->rows.insert_or_assign(key, File::Row{std::move(config), number});
    else
      file->bad_lines += fmt::format("{}{} ({})", file->bad_lines.empty() ? "" : ", ", number, why);
  }
  return slot = std::move(file);
}

std::optional<Config> PersistentCache::find(const Invocation& invocation, const std::string& key, std::string& detail) const {
  detail.clear();
  for (const auto& folder : folders_) {
    const auto path = fmt::format("{}/{}/{}.jsonl", folder, invocation.device, invocation.kernel);
    const auto records = file(path);
    const auto row = records->rows.find(key);
    const auto skipped = records->bad_lines.empty() ? "" : fmt::format("; lines skipped: {}", records->bad_lines);
    if (row != records->rows.end()) {
      detail = fmt::format("{}:{}{}", path, row->second.line, skipped);
      return row->second.config;
    }
    detail +=
        fmt::format("{}{}: {}{}", detail.empty() ? "" : "; ", path, records->exists ? "no row for this key" : "no such file", skipped);
  }
  if (folders_.empty()) detail = "no folder of records";
  return std::nullopt;
}

}  // namespace ejk
