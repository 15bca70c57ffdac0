// An attention call's numbers, and the scores of its queries: docs/semantics.md, "Scores", for the references of attention kernels.
#pragma once
#include "reference/compare.hpp"
#include "reference/kernels/attention_rows.hpp"
#include "reference/philox.hpp"

namespace ejk::reference {

// One call's numbers, read once.
struct AttentionProblem {
  explicit AttentionProblem(const Call& call) : AttentionProblem(call, std::nullopt, std::nullopt) {}
  // Those of one sequence and kv head alone.
  AttentionProblem(const Call& call, const Sequence& s, std::int64_t kv_head)
      : AttentionProblem(call, query_block(call, s, kv_head), key_block(s, kv_head)) {}

  Visibility visibility;
  Broadcast bias;
  Dropout dropout;
  double scale, cap;
  std::int64_t heads, kv_heads, dim, value_dim;
  Rows q, k, v;

 private:
  AttentionProblem(const Call& call, const std::optional<Block>& queries, const std::optional<Block>& keys)
      : visibility(call),
        bias(call, "bias"),
        dropout(call.floating("dropout_prob"), static_cast<std::uint64_t>(call.integer("dropout_seed"))),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")),
        heads(call.dim("Hq")),
        kv_heads(call.dim("Hkv")),
        dim(call.dim("D")),
        value_dim(call.dim("Dv")),
        q(call.input("q"), queries),
        k(call.input("k"), keys),
        v(call.input("v"), keys) {}
};

// The keys of one sequence and kv head with the head dim outermost, so that the loop over keys runs through memory.
std::vector<double> transposed_keys(const AttentionProblem& p, const Sequence& s, std::int64_t kv_head);

// A visible key of a query.
struct Term {
  std::int64_t j;
  double score;
  double slope;  // of the score by the scaled product: 1 - tanh^2 under a soft cap, else 1
};

Term term_of(const AttentionProblem& p, const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j);

// In the order of the keys.
std::vector<Term> visible_scores(const AttentionProblem& p, const Sequence& s, const std::vector<double>& keys, std::int64_t h,
                                 std::int64_t i);

// Writes the query's row of out, which was 0, and that of the weights if they are not null; returns its LSE.
double attend(const AttentionProblem& p, const Sequence& s, const std::vector<Term>& terms, const std::vector<double>& sinks,
              std::int64_t h, std::int64_t i, double* out, double* weights);

// Where lse has the query's: [B, Hq, Sq], packed [Hq, Tq].
std::int64_t lse_place(const Call& call, const Sequence& s, std::int64_t h, std::int64_t i);

// "out" and "lse" of the call, and "weights" if it has them.
Values attention_outputs(const Call& call);

// "lse" of a call whose inputs are independent normal numbers: near enough where only time matters, and no weight far above 1, which no
// forward pass leaves and kernels need not take at full speed. Rows of many keys by their number and the variance of scores.
std::vector<double> expected_lse(const Call& call);

}  // namespace ejk::reference
