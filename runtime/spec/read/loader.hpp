// JSON to model: one spec or arch file, faults collected instead of thrown one by one.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"
#include "spec/read/json_node.hpp"

namespace ejk::spec {

// What of a spec is left unread until it is asked for, where the text can be cut that way. What is at fault there is thrown then, a
// SpecError with the faults of the whole; any other fault is told at once.
enum class Later { nothing, cases, cases_and_gpus };  // gpus: variants that no CPU runs
// Adds the faults of a spec that was read.
using Judge = std::function<void(const Spec&, std::vector<Fault>&)>;

// Reads text (shown as `file` in faults). Adds every fault of form: not JSON (line and column), unknown, duplicate or missing
// field, wrong type, bad name, bad expression, missing doc. nullopt if there were any. judge: of variants that are read later; they are
// judged with all others.
std::optional<Spec> load_spec(const std::string& file, const std::string& text, std::vector<Fault>& faults, Later later = Later::nothing,
                              Judge judge = {});
// What a spec's JSON says by "each" and "like" said in full (spread_cases.hpp, like.hpp), as pointers of cases and variants count it.
// false: there are faults.
bool make_whole(Json& kernel, FileFaults& found);
std::optional<Arch> load_arch(const std::string& file, const std::string& text, std::vector<Fault>& faults);

}  // namespace ejk::spec
