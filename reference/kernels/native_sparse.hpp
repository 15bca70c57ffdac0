// native_sparse_attention in float64, and the kernels that are parts or gradients of it: docs/semantics.md, "native_sparse_attention".
#pragma once
#include <array>
#include <optional>
#include <set>

#include "reference/kernels/attention_cases.hpp"

namespace ejk::reference {

enum SparseBranch { mean_branch, block_branch, window_branch };
inline constexpr std::array<const char*, 3> branch_gates{"g_cmp", "g_slc", "g_swa"};

// [B, T, H, features]: elements of a tensor, read once unless there are very many.
class TokenRows {
 public:
  explicit TokenRows(const HostTensor& tensor);
  double at(std::int64_t row, std::int64_t feature) const;
  std::int64_t features() const { return features_; }

 private:
  const HostTensor& tensor_;
  std::int64_t features_;
  std::vector<double> values_;
};

// A query's place.
struct SparseQuery {
  std::int64_t batch, token, head;
};

// Tokens [first, end) of one sequence; first == end: a token of none.
struct SparseSequence {
  std::int64_t first, end;
};

// One softmax: keys (tokens; of the branch of means the first token of each block), their weights, and the logarithm of their sum.
struct SparseSoftmax {
  std::vector<std::int64_t> keys;
  std::vector<double> weights;
  double lse = -infinity;
};

class NativeSparse {
 public:
  explicit NativeSparse(const Call& call);

  std::int64_t batch, tokens, heads, kv_heads, group, dim, value_dim, block_size, blocks;
  bool has_branch(SparseBranch branch) const;
  // The sequence of a token: the row of the batch, or, packed, what cum_seqlens says.
  SparseSequence sequence(std::int64_t t) const;
  // Factor on a branch's output; 1 where the kernel has no gates.
  double gate(SparseBranch branch, const SparseQuery& at) const;

  // What the query's row of one branch weighs.
  SparseSoftmax softmax(SparseBranch branch, const SparseQuery& at) const;
  // Importance of the blocks 1, 2, ... before the token's own, summed over the query heads of a kv head.
  std::vector<double> importance(std::int64_t b, std::int64_t t, std::int64_t kv_head) const;
  // Blocks whose tokens the branch of blocks sees, each once, rising. The call's own where it names them (or `selected`, which a forward
  // pass left).
  const std::vector<std::int64_t>& selection(std::int64_t b, std::int64_t t, std::int64_t kv_head) const;
  // Whether a last rounding of the importance could change what is selected.
  bool is_close(std::int64_t b, std::int64_t t, std::int64_t kv_head) const;

  // A key, or a value, of a branch: of a token, or the mean over the block that begins with it.
  double key(SparseBranch branch, std::int64_t b, std::int64_t kv_head, std::int64_t at, std::int64_t d) const;
  double value(SparseBranch branch, std::int64_t b, std::int64_t kv_head, std::int64_t at, std::int64_t d) const;
  double query(const SparseQuery& at, std::int64_t d) const { return q_.at(row(at), d); }
  std::int64_t row(const SparseQuery& at) const { return (at.batch * tokens + at.token) * heads + at.head; }
  double scale() const { return scale_; }
  std::int64_t count() const { return count_; }

  // Adds a branch of one row, gated, to out[value_dim]; returns its log-sum-exp.
  double add_branch(SparseBranch branch, const SparseQuery& at, double* out) const;
  // Multiplications that a row of the last token takes.
  double row_work() const;

 private:
  bool chooses() const { return !named_; }
  std::vector<std::int64_t> select(std::int64_t b, std::int64_t t, std::int64_t kv_head) const;
  const std::vector<double>& mean(std::int64_t b, std::int64_t kv_head, std::int64_t first, bool of_values) const;  // of block_size tokens

  const Call& call_;
  TokenRows q_, k_, v_;
  const HostTensor *named_, *counts_, *offsets_;
  std::int64_t count_, left_;
  double scale_;
  std::array<std::optional<TokenRows>, 3> gates_;
  bool gated_;
  mutable std::map<std::int64_t, std::vector<double>> means_[2];
  mutable std::map<std::int64_t, std::vector<std::int64_t>> selections_;
};

// Outputs of the forward kernels: "out", "lse" of apply_native_sparse_attention, "branch_lse" and "selected" of native_sparse_attention.
Values sparse_outputs(const Call& call);
Samples sparse_samples(const Call& call, Rng& rng);

// NaN in all tokens but those of one sequence does not reach that one; of outputs with tokens, and packed calls.
Property other_sequences_do_not_matter();

// Queries whose selection hangs on a last rounding become 0, whose blocks are all as important; of calls that are small enough.
void settle_selection(Call& call);
// Blocks named at random, some twice, some that no query sees, in other order; counts, where they are given.
void name_blocks(Call& call);

// Outputs of the gradients, of those given: "dq", "dk", "dv" and the gates'.
Values sparse_gradients(const Call& call);
Samples sparse_gradient_samples(const Call& call);
// Any blocks, as a forward pass may have selected them.
void select_any_blocks(Call& call);
// The log-sum-exps that a forward pass left, of all branches or of the one of blocks.
void complete_gradient(Call& call, const char* lse, bool branches);
std::string twice_the_cotangent(const Call& call, const Execute& execute);

// Cases: sizes and attributes of either kernel.
spec::Case vary_sparse(const spec::Case& c, Rng& rng);
spec::Case random_sparse(Rng& rng, bool gated);

}  // namespace ejk::reference
