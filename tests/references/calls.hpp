// Calls for the tests of references: the repository's own contracts, cases in one line, small tensors by hand.
#pragma once
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "reference/reference.hpp"
#include "spec/read/loader.hpp"
#include "spec/read/same_as.hpp"
#include "tests/day.hpp"
#include "tests/paths.hpp"

namespace ejk::reference {

// The contract of a kernel, read once.
inline const spec::Spec& spec_of(const std::string& kernel) {
  static std::map<std::string, spec::Spec> specs;
  if (const auto found = specs.find(kernel); found != specs.end()) return found->second;
  const std::string file = test::source_dir() + "/specs/" + kernel + ".json";
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  std::vector<spec::Fault> faults;
  std::optional<spec::Spec> spec = spec::load_spec(file, text.str(), faults);
  if (!spec) throw spec::SpecError(faults);
  if (spec->same_as) spec::serve(*spec, std::make_shared<const spec::Spec>(spec_of(spec->same_as->kernel)));
  return specs.emplace(kernel, std::move(*spec)).first->second;
}

inline Values compute(const Call& call) { return find_reference(call.spec->kernel)->compute(call); }

// Execute that is the reference itself, rounded to the outputs' types: what a perfect kernel would do.
inline void execute_reference(Call& call) {
  const Values values = compute(call);
  for (HostTensor& output : call.outputs) output.assign(values.at(output.name()));
}

// Random cases, layouts and shapes of a kernel through every check that a kernel under test goes through; a day has a quarter of them.
inline void check_random_calls(const std::string& kernel, std::uint64_t first_seed, int count) {
  const KernelReference& reference = *find_reference(kernel);
  for (std::uint64_t seed = first_seed; seed < first_seed + static_cast<std::uint64_t>(count); ++seed) {
    if (!test::of_the_day(seed, 4)) continue;
    Rng rng(seed);
    const spec::Case c = reference.random_case(rng);
    const Arrangement arrangement{random_layout(rng), rng.chance(0.5)};
    Call call = make_call(spec_of(kernel), c, seed, arrangement);
    spec::check_live_requirements(call.binding);
    const std::string failure = first_failure(verify_call(reference, call, execute_reference));
    if (!failure.empty()) throw std::runtime_error(call.label + ": " + failure);
    for (const PropertyResult& property : verify_properties(reference, call, execute_reference, rng))
      if (!property.message.empty()) throw std::runtime_error(call.label + ": " + property.name + ": " + property.message);
  }
}

}  // namespace ejk::reference
