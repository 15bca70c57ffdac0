// The source first, since it is at hand; the machine code where that differs.
#include "select/record_fault.hpp"

#include <fmt/format.h>

namespace ejk {
namespace {

RecordJudgement of_another_source(const Kernel& kernel, const Invocation& invocation, const TuningRecord& record) {
  using enum RecordJudgement::Verdict;
  if (record.source.empty()) return {unknown, "it has no hash of its source"};
  const std::string changed_source = "the source has changed since it was measured";
  if (record.code.empty()) return {unknown, changed_source};
  const auto code = kernel.code_hash(invocation, record.config);
  if (!code) return {invalid, code.error().message};
  if (code->empty()) return {not_compared, changed_source + ", and no binary of it is here whose machine code could be compared"};
  if (*code != record.code) return {changed, changed_source + ", and the machine code with it"};
  return {same_code, ""};
}

}  // namespace

RecordJudgement judge_record(const Kernel& kernel, const Invocation& invocation, const TuningRecord& record) {
  using enum RecordJudgement::Verdict;
  if (const auto reason = kernel.invalid_reason(invocation, record.config); !reason.empty())
    return {invalid, fmt::format("{} cannot serve this call: {}", to_json(record.config), reason)};
  const auto source = kernel.source_hash(invocation, record.config);
  if (!source) return {invalid, source.error().message};
  if (*source == record.source) return {};
  return of_another_source(kernel, invocation, record);
}

}  // namespace ejk
