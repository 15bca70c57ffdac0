// Judging records by the config, the source and the machine code that they name.
#include "tune/stale.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/guard.hpp"
#include "ejk/record.hpp"
#include "record/placed_call.hpp"
#include "store/build_progress.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

JudgedRecord judged(const TuningRecord& record) {
  auto recorded = recorded_from_json(record.key);
  if (!recorded) return {{RecordJudgement::Verdict::invalid, recorded.error().message}, {}, {}, {}};
  if (recorded->archs.empty() && !record.config.arch.empty()) recorded->archs = {record.config.arch};
  const PlacedCall call(*recorded);
  JudgedRecord result{judge_record(call, call.invocation(), record), {}, {}, {}};
  if (result.verdict == RecordJudgement::Verdict::invalid) return result;
  auto image = call.image(record.config);
  result.source = image.hash;
  if (auto code = call.code_hash(call.invocation(), record.config)) result.code = *std::move(code);
  const bool code_missing = result.verdict == RecordJudgement::Verdict::sound && record.code.empty() && result.code.empty();
  if (code_missing || result.verdict == RecordJudgement::Verdict::not_compared) {
    const auto* arch = Library::instance().parts().catalogue.arch(image.arch);
    result.wanted = store::BuildItem{std::move(image), arch};
  }
  return result;
}

}  // namespace

JudgedRecord judge(const TuningRecord& record) {
  try {
    return judged(record);
  } catch (...) {
    return {{RecordJudgement::Verdict::invalid, current_error().message}, {}, {}, {}};
  }
}

std::map<std::string, std::string> build_wanted(const std::vector<JudgedRecord>& judged, int jobs) {
  std::map<std::string, store::BuildItem> items;  // by image: many records may have one winner
  std::map<std::string, std::string> why_not;
  for (const auto& one : judged)
    if (one.wanted) items.emplace(one.wanted->image.id, *one.wanted);
  const auto& parts = Library::instance().parts();
  const bool can_keep = parts.places.user && parts.places.user->writable();
  if (Library::instance().jit() == Jit::off || !can_keep) {
    const auto why = can_keep ? "EJKERNEL_JIT=off" : "there is no user cache to compile into: " + parts.places.why_no_user;
    for (const auto& [id, item] : items) why_not[id] = why;
    return why_not;
  }
  if (items.empty()) return why_not;
  std::vector<store::BuildItem> list;
  for (auto& [id, item] : items) list.push_back(std::move(item));
  fmt::print(stderr, "compiling {} images, whose machine code is compared with what was measured\n", list.size());
  BuildProgress progress(stderr);
  store::build(*parts.places.user, list, jobs, [&](const store::BuildEvent& event) {
    if (event.kind == store::BuildEvent::Kind::failed || event.kind == store::BuildEvent::Kind::skipped)
      why_not[event.id] = event.text.substr(0, event.text.find('\n'));
    progress(event);
  });
  return why_not;
}

std::vector<RecordsFolder> record_folders() {
  const auto& parts = Library::instance().parts();
  const auto& writing = parts.chain->persistent().writing();
  std::vector<RecordsFolder> result;
  if (!writing.agreement.empty()) result.push_back({"agreement", writing.agreement});
  if (!writing.user.empty()) result.push_back({"user", writing.user});
  for (const auto& pack : parts.places.packs) {
    const auto path = pack.root() / "specs" / "tuned";
    const auto known = [&](const RecordsFolder& folder) { return folder.path == path; };  // one pack may be found in two ways
    if (std::none_of(result.begin(), result.end(), known)) result.push_back({"shipped", path});
  }
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

namespace {

struct MachineRow {
  nlohmann::json key;
  std::string name;  // "flash_attention (flash_attention.jsonl:3)"
  TuningRecord record;
};

// Of this machine and of the kernel, if it is not empty, in the order in which they count.
std::vector<MachineRow> rows_of_machine(const std::string& kernel, const Machine& machine) {
  std::vector<MachineRow> rows;
  for (const auto& folder : record_folders())
    for (const auto& file : record_files_below(folder.path)) {
      auto content = read_records(file.string());
      if (!content) throw UsageError("--stale: " + content.error().message);
      for (auto& row : content->rows) {
        auto node = nlohmann::json::parse(row.record.key, nullptr, false);
        if (!node.is_object() || node.value("device", "") != machine.probe.fingerprint) continue;
        if (!kernel.empty() && node.value("kernel", "") != kernel) continue;
        auto name = fmt::format("{} ({}:{})", node.value("kernel", ""), file.filename().string(), row.line);
        rows.push_back({std::move(node), std::move(name), std::move(row.record)});
      }
    }
  return rows;
}

}  // namespace

std::vector<CallToTune> calls_of_stale_records(const std::string& kernel, const Machine& machine, int jobs) {
  auto rows = rows_of_machine(kernel, machine);
  std::vector<JudgedRecord> to_compare;
  for (const auto& row : rows)
    if (auto judged = judge(row.record); !judged.serves() && judged.wanted) to_compare.push_back(std::move(judged));
  build_wanted(to_compare, jobs);
  std::vector<CallToTune> calls;
  std::set<std::string> sound, seen;  // keys; a folder that counts more may have a sound record of the call
  for (auto& row : rows) {
    if (judge(row.record).serves())
      sound.insert(row.record.key);
    else if (seen.insert(row.record.key).second)
      calls.push_back({std::move(row.name), std::move(row.key)});
  }
  std::erase_if(calls, [&](const CallToTune& call) { return sound.contains(call.key.dump()); });
  return calls;
}

}  // namespace ejk::tools
