// Measuring a call that no tier before knew.
#include "select/autotune.hpp"

#include <fmt/format.h>

#include <chrono>

#include "common/guard.hpp"
#include "ejk/tuning.hpp"
#include "select/agreement.hpp"
#include "select/events.hpp"

namespace ejk {
namespace {

bool& measuring() {
  thread_local bool measuring = false;
  return measuring;
}

struct MeasuringScope {
  MeasuringScope() { measuring() = true; }
  MeasuringScope(const MeasuringScope&) = delete;
  MeasuringScope& operator=(const MeasuringScope&) = delete;
  ~MeasuringScope() { measuring() = false; }
};

class MissedCall {
 public:
  MissedCall(const Question& question, const ConfigSelectorChain& chain, Tuner& tuner)
      : question_(question), chain_(chain), tuner_(tuner) {}

  // By this process, or by one that it has an agreement with.
  Tuned run() {
    if (auto known = chain_.memory().recall(question_.key); known && known->record)
      return {known->record, known->origin};  // since we asked
    const auto& writing = chain_.persistent().writing();
    if (writing.agreement.empty()) return measure(nullptr);
    Agreement agreement(writing.agreement, question_.invocation, question_.key);
    if (const auto why = agreement.wait(writing.wait); !why.empty()) return failed(why, 0);
    std::string where;
    if (auto record = chain_.persistent().find(question_.kernel, question_.invocation, question_.key, where);
        record && record->key == question_.key) {
      keep(record, where);
      return {record, where + ", measured by another process"};
    }
    if (const auto reason = agreement.failure()) return failed("another process failed to tune it: " + *reason, 0);
    return measure(&agreement);
  }

 private:
  Event event(Event::Kind kind, std::string detail, double seconds) const {
    return {kind, question_.kernel.name(), question_.key, std::nullopt, Tier::autotune, seconds, std::move(detail)};
  }

  Tuned failed(const std::string& reason, double seconds) const {
    tell(event(Event::Kind::error, reason, seconds));
    return {nullptr, reason};
  }

  void keep(const std::shared_ptr<const TuningRecord>& record, std::string origin) const {
    chain_.memory().put(question_.key, ConfigCache::Remembered{record->config, std::move(origin), record});
  }

  Result<TuningRecord> ask_tuner() {
    const MeasuringScope scope;
    return guarded([&] { return tuner_.tune(question_.tuned, question_.invocation); });
  }

  // "" or what is wrong with the tuner's answer.
  std::string complete(TuningRecord& record) const {
    if (record.key.empty()) record.key = question_.key;
    if (record.key != question_.key) return "the tuner's record is of another call: " + record.key;
    if (const auto reason = question_.kernel.invalid_reason(question_.invocation, record.config); !reason.empty())
      return fmt::format("the tuner chose {}, which cannot serve this call: {}", to_json(record.config), reason);
    const auto source = question_.kernel.source_hash(question_.invocation, record.config);
    if (!source) return source.error().message;
    if (record.source.empty()) record.source = *source;
    return record.source == *source ? "" : "the source changed while it was measured";
  }

  Tuned measure(const Agreement* agreement) {
    tell(event(Event::Kind::autotune_start, "", 0));
    const auto start = std::chrono::steady_clock::now();
    auto result = ask_tuner();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto fault = result ? complete(*result) : result.error().message;
    if (!fault.empty()) {
      if (agreement) agreement->note_failure(fault);
      return failed(fault, seconds);
    }
    const auto record = std::make_shared<const TuningRecord>(std::move(*result));
    if (const auto status = chain_.persistent().append(*record); !status)
      tell(event(Event::Kind::error, "the record is kept in memory only: " + status.error().message, seconds));
    keep(record, "a measurement of this process");
    auto detail = fmt::format("measured in {:.3g} s: {:.4g} us, {} configs", seconds, record->median_us, record->measured);
    auto finish = event(Event::Kind::autotune_finish, detail, seconds);
    finish.config = record->config;
    tell(finish);
    return {record, std::move(detail), true};
  }

  const Question& question_;
  const ConfigSelectorChain& chain_;
  Tuner& tuner_;
};

// What became of the configs of the gradient's calls, in a clause each.
std::string validate_backward(const Question& question, const ConfigSelectorChain& chain) {
  const auto gradient = question.kernel.gradient(question.invocation);
  if (!gradient) return "; no gradient was tuned: " + gradient.error().message;
  std::string clauses;
  for (const auto& call : gradient->calls) {
    const auto selection = chain.select(*call.kernel, call.invocation);
    const auto name = call.kernel->name();
    clauses += selection ? fmt::format("; its gradient {}: {}, {}", name, name_of(selection->tier), selection->detail)
                         : fmt::format("; its gradient {} has no config: {}", name, selection.error().message);
  }
  return clauses;
}

// "" or why nothing is measured.
std::string refusal(const Question& question, Tuner* tuner) {
  if (question.policy.cache_miss_fallback == CacheMissFallback::heuristics)
    return "not asked: the policy takes the heuristic (cache_miss_fallback)";
  if (question.policy.cache_miss_fallback == CacheMissFallback::error)
    return "not asked: the policy makes a call without a measured config an error (cache_miss_fallback)";
  if (!question.policy.allow_autotune) return "not asked: the policy does not allow it (allow_autotune)";
  if (measuring()) return "not asked: this thread is measuring another call";
  if (!tuner) return "no tuner is set";
  return tuner->unavailable(question.tuned, question.invocation);
}

}  // namespace

bool ask_autotune(Question& question, const ConfigSelectorChain& chain, TuningFlights& flights, bool explain) {
  const auto asked = tuner();
  if (auto why = refusal(question, asked.get()); !why.empty()) return question.none(Tier::autotune, std::move(why));
  if (explain) return question.none(Tier::autotune, "not asked: a call would be measured now, but an explanation measures nothing");
  auto tuned = flights.join(question.key, [&]() -> Tuned {
    try {
      return MissedCall(question, chain, *asked).run();
    } catch (...) {
      return {nullptr, current_error().message};
    }
  });
  if (!tuned.record) return question.none(Tier::autotune, "the tuner failed: " + tuned.detail);
  if (tuned.measured_here && question.policy.validate_backward) tuned.detail += validate_backward(question, chain);
  return question.offer(Tier::autotune, tuned.record->config, std::move(tuned.detail), tuned.record);
}

}  // namespace ejk
