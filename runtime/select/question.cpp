// The tiers that only look something up.
#include "select/question.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ejk/tuning.hpp"
#include "select/overlay.hpp"

namespace ejk {

bool Question::offer(Tier tier, std::optional<Config> config, std::string detail, std::shared_ptr<const TuningRecord> record) {
  if (config) {
    if (const auto reason = kernel.invalid_reason(invocation, *config); !reason.empty()) {
      detail = fmt::format("{}: {} cannot serve this call: {}", detail, to_json(*config), reason);
      config.reset();
      record.reset();
    }
  }
  trail.push_back({tier, std::move(detail), std::move(config), std::move(record)});
  return trail.back().config.has_value();
}

bool ask_overlay(Question& question) {
  const auto& scopes = overlay_scopes();
  const auto found = std::find_if(scopes.rbegin(), scopes.rend(),
                                  [&](const auto& s) { return s.kernel.empty() || s.kernel == question.invocation.kernel; });
  if (found == scopes.rend()) return question.none(Tier::overlay, scopes.empty() ? "no scope is open" : "no open scope names this kernel");
  return question.offer(Tier::overlay, found->config, "innermost open scope");
}

bool ask_memory(Question& question, const ConfigCache& memory) {
  auto found = memory.recall(question.key);
  if (!found) return question.none(Tier::memory, fmt::format("no row among {}", memory.size()));
  auto detail = std::string("remembered in this process") + (found->origin.empty() ? "" : ", from " + found->origin);
  return question.offer(Tier::memory, std::move(found->config), std::move(detail), std::move(found->record));
}

bool ask_persistent(Question& question, const PersistentCache& persistent) {
  std::string detail;
  auto record = persistent.find(question.kernel, question.invocation, question.key, detail);
  if (!record) return question.none(Tier::persistent, std::move(detail));
  return question.offer(Tier::persistent, record->config, std::move(detail), record);
}

bool ask_heuristic(Question& question, bool only_told) {
  if (!only_told && question.policy.cache_miss_fallback == CacheMissFallback::error)
    return question.none(Tier::heuristic, "not asked: the policy makes a call without a measured config an error (cache_miss_fallback)");
  if (!only_told && !question.policy.allow_heuristics)
    return question.none(Tier::heuristic, "not asked: the policy does not allow it (allow_heuristics)");
  auto config = question.kernel.heuristic_cfg(question.invocation);
  if (!config) {
    question.heuristic_error = config.error();
    return question.none(Tier::heuristic, config.error().message);
  }
  return question.offer(Tier::heuristic, std::move(*config), "the spec's first rule that holds");
}

}  // namespace ejk
