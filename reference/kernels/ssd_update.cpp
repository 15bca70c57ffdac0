// ssd_update in float64: ssd, whose last state is the state.
#include <algorithm>

#include "reference/kernels/state_space.hpp"

namespace ejk::reference::ssd_update {
namespace {

// The state is there in every call.
spec::Case with_state(spec::Case c, const char* type) {
  std::erase(c.given, "initial_state");
  c.types["Es"] = type;
  return c;
}

class SsdUpdate : public KernelReference {
 public:
  std::string kernel() const override { return "ssd_update"; }

  Values compute(const Call& call) const override {
    const RecurrentResult result = state_space_result(call, "state");
    return {{"out", result.out}, {"state", result.state}};
  }

  Samples sample(const Call& call, Rng& rng) const override { return state_space_sample(call, "state", "state", rng); }
  void complete(Call& call) const override { settle_steps(call); }
  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_state_space(c, rng); }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_state_space(rng);
    return with_state(std::move(c), rng.chance(0.3) ? "bf16" : "f32");
  }
  std::vector<OptionCase> option_cases() const override {
    std::vector<OptionCase> cases;
    for (OptionCase& one : state_space_option_cases()) {
      if (one.c.name.find("initial_state") != std::string::npos) continue;
      one.c = with_state(std::move(one.c), "f32");
      if (one.alone) {
        cases.push_back({with_state(one.c, "bf16"), false});
        cases.back().c.name += " and a state of bf16";
      }
      cases.push_back(std::move(one));
    }
    return cases;
  }
  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; })};
  }
};

const Registration registration{std::make_unique<SsdUpdate>()};

}  // namespace
}  // namespace ejk::reference::ssd_update
