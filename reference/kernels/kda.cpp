// kda in float64: docs/semantics.md, "recurrent", with beta.
#include "reference/kernels/recurrence.hpp"

namespace ejk::reference::kda {
namespace {

class Kda : public NarrowedRecurrent {
 public:
  std::string kernel() const override { return "kda"; }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = narrowed_recurrent({"gk", "initial_state", "cum_seqlens"}, {"softmax_scale", "reverse", "l2_norm"}, rng);
    c.types["Eb"] = "f32";
    return c;
  }
};

const Registration registration{std::make_unique<Kda>()};

}  // namespace
}  // namespace ejk::reference::kda
