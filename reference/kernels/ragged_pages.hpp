// What the two versions of ragged_page_attention have alike, in float64: docs/semantics.md, "ragged_page_attention".
#pragma once
#include <cmath>

#include "reference/kernels/attention_cases.hpp"

namespace ejk::reference {

// Tokens of new queries, their sequences and where their keys lie. Nothing of sequences past the count is read.
class RaggedBatch {
 public:
  // `count`: the input that has the number of sequences as its last element.
  RaggedBatch(const Call& call, const char* count);

  std::int64_t sequences() const { return count_; }
  std::int64_t first(std::int64_t n) const { return starts_[at(n)]; }
  std::int64_t queries(std::int64_t n) const { return starts_[at(n + 1)] - starts_[at(n)]; }
  std::int64_t keys(std::int64_t n) const { return contexts_[at(n)]; }
  std::int64_t old_keys(std::int64_t n) const { return keys(n) - queries(n); }  // before the new tokens; below 0: some of these have no key
  std::int64_t sequence_of(std::int64_t token) const;                           // -1: past the last sequence
  std::int64_t slot(std::int64_t n, std::int64_t key) const;                    // page * ps + place
  std::int64_t slots() const { return slots_; }

  // Row-major index of the first feature of kv head h's key, or value, in a slot.
  std::int64_t key_at(std::int64_t slot, std::int64_t h) const { return (slot * rows_ + 2 * h) * dim_; }
  std::int64_t value_at(std::int64_t slot, std::int64_t h) const { return key_at(slot, h) + dim_; }
  std::int64_t first_seen(std::int64_t n) const;  // of the keys that some query sees, where there are queries
  bool sees(std::int64_t n, std::int64_t query, std::int64_t key) const;

 private:
  std::int64_t count_, columns_, page_, rows_, dim_, slots_, left_, tree_columns_;
  std::vector<std::int64_t> starts_, contexts_;
  const HostTensor *table_, *tree_;
};

// One number of a scale [] or [Hkv|1]; 1 where it is not given.
double scale_of_head(const Call& call, const char* name, std::int64_t kv_head);

// x / scale in f32, stored as that type.
double stored(DType type, double x, double scale);

// The rows of out and lse of query tokens. `cache`: kv_pages, in v3 as they are after the call; `query`: a feature of queries.
struct RaggedAttention {
  const Call& call;
  const RaggedBatch& batch;
  const HostTensor& cache;
  std::function<double(std::int64_t index, std::int64_t kv_head)> query;

  // Keys and values of one sequence and kv head, from the first key on that some query sees.
  struct Gathered {
    std::int64_t sequence = -1, kv_head = -1, first = 0;
    std::vector<double> keys, values;
  };
  void gather(Gathered& cached, std::int64_t n, std::int64_t kv_head) const;  // nothing, if they are there

  // Writes the row of out; returns its LSE. Past the last sequence: 0, -inf.
  double attend(std::int64_t token, std::int64_t head, Gathered& cached, double* out) const;
  Values all() const;
  Samples sample(Rng& rng) const;
};

// ---- cases; `v3`: which version ----

spec::Case vary_ragged(const spec::Case& c, bool v3, Rng& rng);
spec::Case random_ragged(bool v3, Rng& rng);
std::vector<OptionCase> ragged_option_cases(bool v3);
// What may not be read becomes garbage: lengths, bounds and table rows past the count.
void spoil_unused_sequences(Call& call, const char* count);
std::vector<Property> ragged_properties(const char* count, const KernelReference& reference);

}  // namespace ejk::reference
