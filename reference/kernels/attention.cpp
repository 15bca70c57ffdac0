// attention in float64: flash_attention's batched form, and its weights.
#include "reference/kernels/attention_reference.hpp"

namespace ejk::reference::attention {
namespace {

class Attention : public AttentionReference {
 public:
  Attention() : AttentionReference("attention") {}
  spec::Case random_case(Rng& rng) const override { return random_batched(rng, {"query_seq_lengths", "key_value_seq_lengths", "weights"}); }
};

const Registration registration{std::make_unique<Attention>()};

}  // namespace
}  // namespace ejk::reference::attention
