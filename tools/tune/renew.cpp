// Judge, compile what is wanted, judge again, rewrite.
#include "tune/renew.hpp"

#include <fmt/format.h>

#include <map>

#include "common/guard.hpp"
#include "tune/stale.hpp"

namespace ejk::tools {
namespace {

using Changes = std::map<std::string, TuningRecord>;  // by all that the line says now: two may have one key and source

class Renewal {
 public:
  Renewal(const std::vector<std::filesystem::path>& files, const std::function<bool(const TuningRecord&)>& wanted) {
    for (const auto& file : files) {
      auto content = read_records(file.string());
      if (!content) throw UsageError("renew: " + content.error().message);
      for (auto& row : content->rows)
        if (wanted(row.record)) rows_.push_back(std::move(row));
    }
  }

  RenewReport run(int jobs) {
    std::vector<JudgedRecord> before;
    for (const auto& row : rows_) before.push_back(judge(row.record));
    const auto why_not = build_wanted(before, jobs);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto& wanted = before[i].wanted;
      const auto failed = wanted ? why_not.find(wanted->image.id) : why_not.end();
      settle(rows_[i], wanted ? judge(rows_[i].record) : before[i], failed == why_not.end() ? "" : failed->second);
    }
    write();
    report_.records = rows_.size();
    return std::move(report_);
  }

 private:
  void settle(const RecordsRow& row, const JudgedRecord& judged, const std::string& why_not_built) {
    if (!judged.serves()) {
      const auto why = why_not_built.empty() ? "" : fmt::format(" ({})", why_not_built);
      report_.stale.push_back({fmt::format("{}:{}", row.file, row.line), judged.reason + why});
      return;
    }
    auto changed = row.record;
    if (changed.code.empty()) changed.code = judged.code;
    changed.source = judged.source;
    const bool same_code = judged.verdict == RecordJudgement::Verdict::same_code, identified = changed.code != row.record.code;
    ++(same_code ? report_.renewed : identified ? report_.identified : report_.sound);
    if (same_code || identified) changes_[row.file].emplace(to_json(row.record), std::move(changed));
  }

  void write() {
    for (const auto& [file, changes] : changes_) {
      const auto written = update_records(file, [&changes = changes](TuningRecord& record) {
        const auto found = changes.find(to_json(record));
        if (found == changes.end()) return false;
        record = found->second;
        return true;
      });
      if (!written) throw CodedError(written.error().code, written.error().message);
    }
  }

  std::vector<RecordsRow> rows_;
  std::map<std::string, Changes> changes_;  // by file
  RenewReport report_;
};

}  // namespace

RenewReport renew_records(const std::vector<std::filesystem::path>& files, const std::function<bool(const TuningRecord&)>& wanted,
                          int jobs) {
  return Renewal(files, wanted).run(jobs);
}

}  // namespace ejk::tools
