// One question to the tiers of the chain: the call in its canonical form, and what each tier said so far.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ejk/kernel.hpp"

namespace ejk {

struct Question {
  const Kernel& kernel;  // bound to the call, where it can be: judges configs
  const Kernel& tuned;   // for a tuner, whatever it does with it
  const Invocation& invocation;
  const std::string& key;
  const AutotunePolicy policy;
  std::vector<TierAnswer> trail;
  std::optional<Error> heuristic_error = {};  // it names every variant that refused: the answer where no tier has one

  // Takes a tier's config if it can serve this call; otherwise says why not.
  bool offer(Tier tier, std::optional<Config> config, std::string detail, std::shared_ptr<const TuningRecord> record = nullptr);
  bool none(Tier tier, std::string detail) { return offer(tier, std::nullopt, std::move(detail)); }
};

// Each: whether the tier had an answer.
bool ask_overlay(Question& question);
bool ask_memory(Question& question, const ConfigCache& memory);
bool ask_persistent(Question& question, const PersistentCache& persistent);
bool ask_heuristic(Question& question, bool only_told);  // only_told: a tier before it answered, so the policy does not matter

}  // namespace ejk
