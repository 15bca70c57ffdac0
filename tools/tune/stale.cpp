// Judging records by the config and the source that they name.
#include "tune/stale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/guard.hpp"
#include "ejk/record.hpp"
#include "record/placed_call.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

std::string judged(const TuningRecord& record) {
  auto recorded = recorded_from_json(record.key);
  if (!recorded) return recorded.error().message;
  if (recorded->archs.empty() && !record.config.arch.empty()) recorded->archs = {record.config.arch};
  const PlacedCall call(*recorded);
  if (const auto reason = call.invalid_reason(call.invocation(), record.config); !reason.empty())
    return fmt::format("{} cannot serve this call: {}", to_json(record.config), reason);
  const auto source = call.source_hash(call.invocation(), record.config);
  if (!source) return source.error().message;
  if (*source == record.source) return "";
  return record.source.empty() ? "it has no hash of its source" : "the source has changed since it was measured";
}

}  // namespace

std::string why_stale(const TuningRecord& record) {
  try {
    return judged(record);
  } catch (...) {
    return current_error().message;
  }
}

std::vector<RecordsFolder> record_folders() {
  const auto& parts = Library::instance().parts();
  const auto& writing = parts.chain->persistent().writing();
  std::vector<RecordsFolder> result;
  if (!writing.agreement.empty()) result.push_back({"agreement", writing.agreement});
  if (!writing.user.empty()) result.push_back({"user", writing.user});
  for (const auto& pack : parts.places.packs) result.push_back({"shipped", pack.root() / "specs" / "tuned"});
  return result;
}

std::vector<fs::path> record_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".jsonl" && entry->is_regular_file(error)) files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<CallToTune> calls_of_stale_records(const std::string& kernel, const Machine& machine) {
  std::vector<CallToTune> calls;
  std::set<std::string> sound, seen;  // keys; a folder that counts more may have a sound record of the call
  for (const auto& folder : record_folders())
    for (const auto& file : record_files_below(folder.path)) {
      const auto content = read_records(file.string());
      if (!content) throw UsageError("--stale: " + content.error().message);
      for (const auto& row : content->rows) {
        const auto node = nlohmann::json::parse(row.record.key, nullptr, false);
        if (!node.is_object() || node.value("device", "") != machine.probe.fingerprint) continue;
        if (!kernel.empty() && node.value("kernel", "") != kernel) continue;
        if (why_stale(row.record).empty())
          sound.insert(row.record.key);
        else if (seen.insert(row.record.key).second)
          calls.push_back({fmt::format("{} ({}:{})", node.value("kernel", ""), file.filename().string(), row.line), node});
      }
    }
  std::erase_if(calls, [&](const CallToTune& call) { return sound.contains(call.key.dump()); });
  return calls;
}

}  // namespace ejk::tools
