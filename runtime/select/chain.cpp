// ConfigSelectorChain: asks the tiers in order and keeps what each said.
#include <fmt/format.h>

#include <algorithm>

#include "ejk/kernel.hpp"
#include "select/overlay.hpp"

namespace ejk {
namespace {

// One question to the tiers, answered step by step.
struct Question {
  const Kernel& kernel;
  const Invocation& invocation;
  const std::string key;
  std::vector<TierAnswer> trail;

  // Takes a tier's config if it can serve this call; otherwise says why not.
  bool offer(Tier tier, std::optional<Config> config, std::string detail) {
    if (config) {
      if (const auto reason = kernel.invalid_reason(invocation, *config); !reason.empty()) {
        detail = fmt::format("{}: {} cannot serve this call: {}", detail, to_json(*config), reason);
        config.reset();
      }
    }
    trail.push_back({tier, std::move(detail), std::move(config)});
    return trail.back().config.has_value();
  }
};

bool ask_overlay(Question& question) {
  const auto& scopes = overlay_scopes();
  const auto found = std::find_if(scopes.rbegin(), scopes.rend(),
                                  [&](const auto& s) { return s.kernel.empty() || s.kernel == question.invocation.kernel; });
  if (found == scopes.rend())
    return question.offer(Tier::overlay, std::nullopt, scopes.empty() ? "no scope is open" : "no open scope names this kernel");
  return question.offer(Tier::overlay, found->config, "innermost open scope");
}

bool ask_memory(Question& question, const ConfigCache& memory) {
  auto config = memory.find(question.key);
  const bool found = config.has_value();
  return question.offer(Tier::memory, std::move(config),
                        found ? "remembered in this process" : fmt::format("no row among {}", memory.size()));
}

bool ask_persistent(Question& question, const PersistentCache& persistent, ConfigCache& memory) {
  std::string detail;
  auto config = persistent.find(question.invocation, question.key, detail);
  if (!question.offer(Tier::persistent, std::move(config), std::move(detail))) return false;
  memory.put(question.key, *question.trail.back().config);
  return true;
}

}  // namespace

std::string_view name_of(Tier tier) {
  static constexpr std::string_view names[] = {"override", "overlay", "memory", "persistent", "autotune", "heuristic"};
  return names[static_cast<std::size_t>(tier)];
}

std::string Kernel::invalid_reason(const Invocation& invocation, const Config& config) const {
  const auto space = config_space(invocation);
  return std::find(space.begin(), space.end(), config) != space.end() ? "" : "it is not in the config space";
}

ConfigSelectorChain::ConfigSelectorChain(std::shared_ptr<ConfigCache> memory, std::shared_ptr<PersistentCache> persistent)
    : memory_(std::move(memory)), persistent_(std::move(persistent)) {}

ConfigSelectorChain::ConfigSelectorChain() : ConfigSelectorChain(std::make_shared<ConfigCache>(), std::make_shared<PersistentCache>()) {}

Result<Selection> ConfigSelectorChain::select(const Kernel& kernel, const Invocation& invocation, const Config* override_config,
                                              bool explain_all) const {
  Question question{kernel, invocation, invocation.key(), {}};
  const TierAnswer* winner = nullptr;
  std::size_t winner_index = 0;
  const auto note_winner = [&](bool answered) {
    if (answered && !winner_index) winner_index = question.trail.size();
    return winner_index && !explain_all;
  };
  const auto ask_all = [&]() -> Status {
    if (override_config) {
      const bool taken = question.offer(Tier::override_, *override_config, "this call's cfg");
      if (!taken) return Error{ErrorCode::bad_input, kernel.name() + ": " + question.trail.back().detail};
      if (note_winner(taken)) return {};
    } else {
      question.offer(Tier::override_, std::nullopt, "the call gives no cfg");
    }
    if (note_winner(ask_overlay(question))) return {};
    if (note_winner(ask_memory(question, *memory_))) return {};
    if (note_winner(ask_persistent(question, *persistent_, *memory_))) return {};
    question.offer(Tier::autotune, std::nullopt, "this version has no tuner");
    auto heuristic = kernel.heuristic_cfg(invocation);
    if (!heuristic) {
      question.offer(Tier::heuristic, std::nullopt, heuristic.error().message);
      if (!winner_index) return heuristic.error();
      return {};
    }
    note_winner(question.offer(Tier::heuristic, std::move(*heuristic), "the spec's first rule that holds"));
    return {};
  };
  if (const auto status = ask_all(); !status) return status.error();
  if (!winner_index) {
    std::string all;
    for (const auto& answer : question.trail) all += fmt::format("\n  {}: {}", name_of(answer.tier), answer.detail);
    return Error{ErrorCode::unsupported, kernel.name() + ": no tier has a config for this call:" + all};
  }
  winner = &question.trail[winner_index - 1];
  Selection selection{*winner->config, winner->tier, winner->detail, {}};
  selection.trail = std::move(question.trail);
  return selection;
}

}  // namespace ejk
