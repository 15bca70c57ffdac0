// Some rows of an attention call's outputs in float64, for calls that are too large for all of them.
#pragma once
#include <vector>

#include "reference/compare.hpp"
#include "reference/kernels/attention_rules.hpp"
#include "reference/random.hpp"

namespace ejk::reference {

// Queries and keys of one kv head.
struct Chosen {
  Sequence s;
  std::int64_t kv_head;
};

// At random, more of short sequences than of long ones; those without queries are left out.
std::vector<Chosen> choose_heads(const Call& call, Rng& rng);

// Rows that are taken of each, beside the last. Not always the first: under a causal mask it is much larger than most, and where one row
// in ten is, an error relative to all of them says little of the others.
constexpr int rows_of_a_head = 8;

// Of "out" and "lse".
Samples attention_samples(const Call& call, Rng& rng);

}  // namespace ejk::reference
