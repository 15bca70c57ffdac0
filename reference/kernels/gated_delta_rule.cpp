// gated_delta_rule in float64: docs/semantics.md, "recurrent", with beta.
#include "reference/kernels/recurrence.hpp"

namespace ejk::reference::gated_delta_rule {
namespace {

class GatedDeltaRule : public NarrowedRecurrent {
 public:
  std::string kernel() const override { return "gated_delta_rule"; }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = narrowed_recurrent({"g", "initial_state", "cum_seqlens"}, {"softmax_scale", "reverse", "l2_norm"}, rng);
    c.types["Eb"] = "f32";
    return c;
  }
};

const Registration registration{std::make_unique<GatedDeltaRule>()};

}  // namespace
}  // namespace ejk::reference::gated_delta_rule
