// blocksparse_attention in float64: flash_attention behind a mask of blocks, and in chunks.
#include <algorithm>

#include "reference/kernels/attention_options.hpp"
#include "reference/kernels/attention_reference.hpp"
#include "reference/kernels/attention_scores.hpp"

namespace ejk::reference::blocksparse_attention {
namespace {

Call with_all_blocks(const Call& call) {
  Call changed = call;
  HostTensor& blocks = changed.input("block_mask");
  blocks.assign(std::vector<double>(at(blocks.elements()), 1.0));
  return changed;
}

// The mask has a block for every token: that of a packed call may have fewer.
bool mask_reaches_all(const Call& call) {
  const std::vector<std::int64_t>& shape = call.input("block_mask").shape();
  const auto reaches = [&](const Sequence& s) {
    return s.q_length <= shape[2] * call.integer("block_q") && s.k_length <= shape[3] * call.integer("block_k");
  };
  return std::ranges::all_of(sequences_of(call), reaches);
}

// With every block on, the call is flash_attention's, which knows no blocks (but chunks, which stay).
std::string all_blocks(const Call& call, const Execute& execute, Rng&) {
  const Call changed = with_all_blocks(call);
  Call dense = changed;
  std::erase_if(dense.inputs, [](const HostTensor& input) { return input.name() == "block_mask"; });
  return disagreement(call, run_copy(changed, execute), attention_outputs(dense));
}

// Blocks that are off, said by attention_mask instead.
std::string blocks_as_mask(const Call& call, const Execute& execute, Rng&) {
  Call changed = with_all_blocks(call);
  HostTensor& mask = changed.input("attention_mask");
  const HostTensor& blocks = call.input("block_mask");
  const std::vector<std::int64_t>&shape = mask.shape(), &of_blocks = blocks.shape();
  const std::int64_t block_q = call.integer("block_q"), block_k = call.integer("block_k");
  for (std::int64_t e = 0; e < mask.elements(); ++e) {
    const std::int64_t j = e % shape[3], i = e / shape[3] % shape[2], h = e / shape[3] / shape[2] % shape[1],
                       b = e / shape[3] / shape[2] / shape[1];
    const std::int64_t row = (of_blocks[0] == 1 ? 0 : b) * of_blocks[1] + (of_blocks[1] == 1 ? 0 : h);
    if (blocks.at((row * of_blocks[2] + i / block_q) * of_blocks[3] + j / block_k) == 0) mask.set(e, 0);
  }
  return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
}

// attention_mask can say of every batch and head what the mask of blocks says. Without batches it may say of one what nobody says.
bool mask_is_as_wide(const Call& call) {
  const HostTensor *mask = call.find("attention_mask"), &blocks = call.input("block_mask");
  return mask && blocks.elements() > 0 && mask->shape()[0] >= blocks.shape()[0] && mask->shape()[1] >= blocks.shape()[1];
}

class BlocksparseAttention : public AttentionReference {
 public:
  BlocksparseAttention() : AttentionReference("blocksparse_attention") {}
  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_without(rng, {"weights"});
    add_blocks(c, rng);
    return c;
  }
  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    spec::Case varied = AttentionReference::vary(c, rng);
    vary_blocks(varied, rng);
    return varied;
  }
  std::vector<OptionCase> option_cases() const override { return blocksparse_option_cases(false); }
  std::vector<Property> properties() const override {
    std::vector<Property> all = AttentionReference::properties();
    all.push_back({"with every block on it is flash_attention", [](const Call& call) { return writable(call) && mask_reaches_all(call); },
                   all_blocks});
    all.push_back({"a block that is off is as one that attention_mask hides",
                   [](const Call& call) { return writable(call) && mask_is_as_wide(call); }, blocks_as_mask});
    return all;
  }
};

const Registration registration{std::make_unique<BlocksparseAttention>()};

}  // namespace
}  // namespace ejk::reference::blocksparse_attention
