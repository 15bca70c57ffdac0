// Reading blocks of attention's tensors.
#include "reference/kernels/attention_rows.hpp"

namespace ejk::reference {

Block query_block(const Call& call, const Sequence& s, std::int64_t kv_head) {
  const std::int64_t group = call.dim("Hq") / call.dim("Hkv");
  return {s.q_begin, s.q_length, kv_head * group, group};
}

Block key_block(const Sequence& s, std::int64_t kv_head) { return {s.k_begin, s.k_length, kv_head, 1}; }

Rows::Rows(const HostTensor& tensor, const std::optional<Block>& block)
    : heads_(tensor.shape()[tensor.shape().size() - 2]), features_(tensor.shape().back()) {
  if (!block) {
    values_ = tensor.values();
    return;
  }
  const std::int64_t all_heads = heads_;
  first_token_ = block->first_token, first_head_ = block->first_head, heads_ = block->heads;
  values_.reserve(at(block->tokens * heads_ * features_));
  for (std::int64_t token = first_token_; token < first_token_ + block->tokens; ++token) {
    const std::int64_t first = (token * all_heads + first_head_) * features_;
    for (std::int64_t e = first; e < first + heads_ * features_; ++e) values_.push_back(tensor.at(e));
  }
}

}  // namespace ejk::reference
