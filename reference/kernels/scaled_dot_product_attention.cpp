// scaled_dot_product_attention in float64: flash_attention's batched form with lengths, positions from 0.
#include "reference/kernels/attention_reference.hpp"

namespace ejk::reference::scaled_dot_product_attention {
namespace {

class ScaledDotProductAttention : public AttentionReference {
 public:
  ScaledDotProductAttention() : AttentionReference("scaled_dot_product_attention") {}
  spec::Case random_case(Rng& rng) const override {
    return random_batched(rng, {"q_segment_ids", "kv_segment_ids", "softmax_aux", "weights", "causal_offset", "logits_soft_cap",
                                "dropout_prob", "dropout_seed"});
  }
};

const Registration registration{std::make_unique<ScaledDotProductAttention>()};

}  // namespace
}  // namespace ejk::reference::scaled_dot_product_attention
