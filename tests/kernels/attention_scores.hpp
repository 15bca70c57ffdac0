// An attention call's numbers, and the scores of its queries: SEMANTICS section 0, for the references of attention kernels.
#pragma once
#include "kernels/attention_rules.hpp"
#include "reference/compare.hpp"
#include "reference/philox.hpp"

namespace ejk::reference {

// One call's numbers, read once.
struct AttentionProblem {
  explicit AttentionProblem(const Call& call)
      : visibility(call),
        bias(call, "bias"),
        dropout(call.floating("dropout_prob"), static_cast<std::uint64_t>(call.integer("dropout_seed"))),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")),
        heads(call.dim("Hq")),
        kv_heads(call.dim("Hkv")),
        dim(call.dim("D")),
        value_dim(call.dim("Dv")),
        q(call.input("q").values()),
        k(call.input("k").values()),
        v(call.input("v").values()) {}

  Visibility visibility;
  Broadcast bias;
  Dropout dropout;
  double scale, cap;
  std::int64_t heads, kv_heads, dim, value_dim;
  std::vector<double> q, k, v;
};

// The keys of one sequence and kv head with the head dim outermost, so that the loop over keys runs through memory.
std::vector<double> transposed_keys(const AttentionProblem& p, const Sequence& s, std::int64_t kv_head);

// A visible key of a query.
struct Term {
  std::int64_t j;
  double score;
  double slope;  // of the score by the scaled product: 1 - tanh^2 under a soft cap, else 1
};

// In the order of the keys.
std::vector<Term> visible_scores(const AttentionProblem& p, const Sequence& s, const std::vector<double>& keys, std::int64_t h,
                                 std::int64_t i);

// "out" and "lse" of the call, and "weights" if it has them.
Values attention_outputs(const Call& call);

// "lse" of a call whose inputs are independent normal numbers: near enough where only time matters, and no weight far above 1, which no
// forward pass leaves and kernels need not take at full speed. Rows of many keys by their number and the variance of scores.
std::vector<double> expected_lse(const Call& call);

}  // namespace ejk::reference
