// gla in float64: docs/semantics.md, "recurrent", with a gate a key feature or token.
#include "reference/kernels/recurrence.hpp"

namespace ejk::reference::gla {
namespace {

class Gla : public NarrowedRecurrent {
 public:
  std::string kernel() const override { return "gla"; }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = narrowed_recurrent({"g", "gk", "initial_state", "cum_seqlens"}, {"softmax_scale", "reverse", "l2_norm"}, rng);
    if (!c.types.contains("Eg") && !c.types.contains("Ek")) c.given.push_back("gk"), c.types["Ek"] = "f32";
    return c;
  }
};

const Registration registration{std::make_unique<Gla>()};

}  // namespace
}  // namespace ejk::reference::gla
