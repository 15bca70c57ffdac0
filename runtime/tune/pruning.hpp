// Leaves out configs that by the cost model can fill far less of the machine than others of their variant.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tune/images.hpp"

namespace ejk {

using BestFill = std::map<std::pair<std::string, std::string>, double>;  // efficiency, by variant and arch

// Notes each trial's efficiency, in `best` too; then those that wait, but for the default, become pruned where theirs is below worth_timing
// of the best. Returns these.
std::vector<Trial*> prune(const std::vector<Trial*>& trials, const Trial* default_one, const TrialImages& images, BestFill& best);

}  // namespace ejk
