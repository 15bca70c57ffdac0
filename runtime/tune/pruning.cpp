// Each config against the best filled of its variant and arch.
#include "tune/pruning.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ejk {

std::vector<Trial*> prune(const std::vector<Trial*>& trials, const Trial* default_one, const TrialImages& images, BestFill& best) {
  std::vector<std::pair<Trial*, Fill>> fills;
  for (auto* trial : trials) {
    if (trial->state == Trial::State::rejected) continue;
    const auto fill = images.predict(*trial);
    if (!fill) continue;
    trial->predicted = fill->efficiency;
    auto& most = best[{trial->config.variant, trial->config.arch}];
    most = std::max(most, fill->efficiency);
    fills.emplace_back(trial, *fill);
  }
  std::vector<Trial*> pruned;
  for (const auto& [trial, fill] : fills) {
    const double most = best.at({trial->config.variant, trial->config.arch});
    if (trial == default_one || trial->state != Trial::State::waiting || fill.efficiency >= worth_timing * most) continue;
    trial->state = Trial::State::pruned;
    trial->reason = fmt::format("the cost model gives it {:.2g} of the machine, the best of its variant has {:.2g}: {}", fill.efficiency,
                                most, words_of(fill));
    pruned.push_back(trial);
  }
  return pruned;
}

}  // namespace ejk
