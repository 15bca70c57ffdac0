// lightning_attn in float64: docs/semantics.md, "recurrent", with a decay a head.
#include "reference/kernels/recurrence.hpp"

namespace ejk::reference::lightning_attn {
namespace {

class LightningAttn : public NarrowedRecurrent {
 public:
  std::string kernel() const override { return "lightning_attn"; }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = narrowed_recurrent({"initial_state", "cum_seqlens"}, {"softmax_scale", "reverse"}, rng);
    c.attributes["num_layers"] = std::int64_t{5}, c.attributes["layer_idx"] = rng.between(0, 5);
    return c;
  }
};

const Registration registration{std::make_unique<LightningAttn>()};

}  // namespace
}  // namespace ejk::reference::lightning_attn
