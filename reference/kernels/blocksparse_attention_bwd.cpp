// blocksparse_attention_bwd in float64: flash_attention's gradients behind a mask of blocks.
#include "reference/kernels/attention_gradient_reference.hpp"
#include "reference/kernels/attention_options.hpp"
#include "reference/kernels/attention_reference.hpp"

namespace ejk::reference::blocksparse_attention_bwd {
namespace {

class BlocksparseAttentionBackward : public AttentionGradientReference {
 public:
  BlocksparseAttentionBackward() : AttentionGradientReference("blocksparse_attention_bwd") {}
  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    spec::Case varied = AttentionGradientReference::vary(c, rng);
    vary_blocks(varied, rng);
    return varied;
  }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_batched(rng, {"weights"});
    want_gradients(c, rng);
    add_blocks(c, rng);
    return vary(c, rng);
  }
  std::vector<OptionCase> option_cases() const override { return blocksparse_option_cases(true); }
};

const Registration registration{std::make_unique<BlocksparseAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference::blocksparse_attention_bwd
