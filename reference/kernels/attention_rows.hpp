// Rows of attention's tensors, by token and head, as doubles.
#pragma once
#include <optional>

#include "reference/kernels/attention_rules.hpp"

namespace ejk::reference {

// Some tokens of some heads.
struct Block {
  std::int64_t first_token, tokens, first_head, heads;
};

// The queries of one sequence by the heads that share a kv head, and the keys that they see.
Block query_block(const Call& call, const Sequence& s, std::int64_t kv_head);
Block key_block(const Sequence& s, std::int64_t kv_head);

// Of a tensor whose last dims are heads and features: tokens are all dims before them, in one row-major list. All of it, or a block.
class Rows {
 public:
  explicit Rows(const HostTensor& tensor, const std::optional<Block>& block = {});
  std::size_t place(std::int64_t token, std::int64_t head) const {  // of the row's first element
    return at(((token - first_token_) * heads_ + head - first_head_) * features_);
  }
  const double* row(std::int64_t token, std::int64_t head) const { return values_.data() + place(token, head); }
  std::size_t elements() const { return values_.size(); }

 private:
  std::int64_t first_token_ = 0, first_head_ = 0, heads_, features_;
  std::vector<double> values_;
};

}  // namespace ejk::reference
