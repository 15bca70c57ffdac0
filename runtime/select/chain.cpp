// ConfigSelectorChain: asks the tiers in order and keeps what each said.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "common/guard.hpp"
#include "ejk/tuning.hpp"
#include "select/autotune.hpp"
#include "select/bound_kernel.hpp"
#include "select/events.hpp"
#include "select/policy.hpp"
#include "select/recall.hpp"

namespace ejk {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

// What autotune chose, it tells itself.
void tell_choice(const Question& question, const Selection& selection) {
  using enum Event::Kind;
  static constexpr Event::Kind kinds[] = {override_, overlay_hit, cache_hit, cache_hit, cache_hit, heuristics};
  if (selection.tier == Tier::autotune || !events_wanted()) return;
  tell({kinds[static_cast<std::size_t>(selection.tier)], question.kernel.name(), question.key, selection.config, selection.tier, 0,
        selection.detail});
}

Error no_answer(const Question& question) {
  if (question.heuristic_error) return *question.heuristic_error;
  std::string all;
  for (const auto& answer : question.trail) all += fmt::format("\n  {}: {}", name_of(answer.tier), answer.detail);
  return {ErrorCode::unsupported, question.kernel.name() + ": no tier has a config for this call:" + all};
}

Error told(const Question& question, Error error) {
  if (events_wanted()) tell({Event::Kind::error, question.kernel.name(), question.key, std::nullopt, std::nullopt, 0, error.message});
  return error;
}

bool is_bound(const Kernel& kernel) { return dynamic_cast<const BoundKernel*>(&kernel); }

const Kernel& unbound(const Kernel& kernel) {
  const auto* bound = dynamic_cast<const BoundKernel*>(&kernel);
  return bound ? bound->unbound() : kernel;
}

// The kernel bound to the call; nullptr: it is bound already, cannot be bound, or not to this call, and then the tiers say what is wrong
// with it.
std::unique_ptr<const BoundKernel> bound_here(const Kernel& kernel, const Invocation& invocation) {
  const auto* bindable = dynamic_cast<const BindableKernel*>(&kernel);
  if (!bindable) return nullptr;
  try {
    return bindable->bound(invocation);
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace

std::string_view name_of(Tier tier) {
  static constexpr std::string_view names[] = {"override", "overlay", "memory", "persistent", "autotune", "heuristic"};
  return names[static_cast<std::size_t>(tier)];
}

ConfigSelectorChain::ConfigSelectorChain(std::shared_ptr<ConfigCache> memory, std::shared_ptr<PersistentCache> persistent,
                                         AutotunePolicy policy)
    : memory_(std::move(memory)),
      persistent_(std::move(persistent)),
      policy_(policy),
      flights_(std::make_shared<TuningFlights>()),
      id_(next_id()) {}

ConfigSelectorChain::ConfigSelectorChain() : ConfigSelectorChain(std::make_shared<ConfigCache>(), std::make_shared<PersistentCache>()) {}

AutotunePolicy ConfigSelectorChain::policy() const {
  const auto& scopes = policy_scopes();
  return scopes.empty() ? policy_ : scopes.back();
}

Result<Selection> ConfigSelectorChain::ask_tiers(const Kernel& given_kernel, const Invocation& given, const Config* override_config,
                                                 bool explain_all) const {
  const auto own = bound_here(given_kernel, given);
  const Kernel& kernel = own ? *own : given_kernel;
  const auto invocation = kernel.canonical(given);
  const auto key = invocation.key();
  Question question{kernel, unbound(given_kernel), invocation, key, policy(), {}, {}};
  std::size_t winner = 0;  // its place in the trail, from 1
  const auto settled = [&](bool answered) {
    if (answered && !winner) winner = question.trail.size();
    return winner && !explain_all;
  };
  const auto ask_all = [&]() -> Status {
    if (override_config) {
      const bool taken = question.offer(Tier::override_, *override_config, "this call's cfg");
      if (!taken) return Error{ErrorCode::bad_input, kernel.name() + ": " + question.trail.back().detail};
      if (settled(taken)) return {};
    } else {
      question.none(Tier::override_, "the call gives no cfg");
    }
    if (settled(ask_overlay(question))) return {};
    if (settled(ask_memory(question, *memory_))) return {};
    const bool first = !winner;
    const bool on_disk = ask_persistent(question, *persistent_);
    if (const auto& answer = question.trail.back(); on_disk && first) memory_->keep(key, {*answer.config, answer.detail, answer.record});
    if (settled(on_disk)) return {};
    if (settled(winner ? question.none(Tier::autotune, "not asked: a tier before it answered")
                       : ask_autotune(question, *this, *flights_, explain_all)))
      return {};
    const bool heuristic_told = winner;
    if (settled(ask_heuristic(question, heuristic_told))) return {};
    return {};
  };
  if (const auto status = ask_all(); !status) return told(question, status.error());
  if (!winner) return told(question, no_answer(question));
  const auto& answer = question.trail[winner - 1];
  Selection selection{*answer.config, answer.tier, answer.detail, {}, answer.record};
  selection.trail = std::move(question.trail);
  tell_choice(question, selection);
  return selection;
}

Result<std::shared_ptr<const Selection>> ConfigSelectorChain::select_shared(const Kernel& kernel, const Invocation& invocation) const {
  return guarded([&]() -> Result<std::shared_ptr<const Selection>> {
    const auto key = recall_key(id_, kernel, invocation);
    if (key.usable && !events_wanted())
      if (auto known = recall(key)) return known;
    auto selection = ask_tiers(kernel, invocation, nullptr, false);
    if (!selection) return selection.error();
    auto shared = std::make_shared<const Selection>(std::move(*selection));
    if (shared->tier == Tier::memory) note(key, shared);
    return shared;
  });
}

Result<Selection> ConfigSelectorChain::select(const Kernel& kernel, const Invocation& invocation, const Config* override_config,
                                              bool explain_all) const {
  return guarded([&]() -> Result<Selection> {
    if (override_config || explain_all || is_bound(kernel)) return ask_tiers(kernel, invocation, override_config, explain_all);
    const auto shared = select_shared(kernel, invocation);
    if (!shared) return shared.error();
    return **shared;
  });
}

}  // namespace ejk
