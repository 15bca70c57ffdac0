// The truth about the tests' RMS norm.
#include "reference/reference.hpp"

#include <cmath>

namespace ejk::reference {
namespace {

class RmsNorm : public KernelReference {
 public:
  std::string kernel() const override { return "rms_norm"; }

  Values compute(const Call& call) const override {
    auto out = call.input("x").values();
    const auto features = static_cast<std::size_t>(call.dim("C"));
    const auto residual = call.given("residual") ? call.input("residual").values() : std::vector<double>(out.size(), 0);
    const auto weight = call.given("weight") ? call.input("weight").values() : std::vector<double>(features, 1);
    for (std::size_t first = 0; first < out.size(); first += features) {
      double squares = 0;
      for (std::size_t c = 0; c < features; ++c) {
        out[first + c] += residual[first + c];
        squares += out[first + c] * out[first + c];
      }
      const double root = std::sqrt(squares / static_cast<double>(features) + call.floating("epsilon"));
      for (std::size_t c = 0; c < features; ++c) out[first + c] *= weight[c] / root;
    }
    return {{"out", out}};
  }

  spec::Case random_case(Rng& rng) const override {
    spec::Case c;
    const char* const types[] = {"f32", "bf16", "f16"};
    c.types["E"] = types[rng.between(0, 2)];
    return vary(c, rng);
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    auto other = c;
    other.dims = {{"R", rng.between(0, 24)}, {"C", rng.between(1, 70)}};
    other.given.clear();
    for (const char* name : {"residual", "weight"})
      if (rng.chance(0.5)) other.given.emplace_back(name);
    return other;
  }

  std::vector<Property> properties() const override { return {}; }
};

const Registration rms_norm{std::make_unique<RmsNorm>()};

}  // namespace
}  // namespace ejk::reference
