// Cases and calls of the attention kernels: other sizes for a case, any legal call, who sees what.
#pragma once
#include <limits>

#include "reference/kernels/attention_rules.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {

inline bool names(const spec::Case& c, const char* tensor) { return std::find(c.given.begin(), c.given.end(), tensor) != c.given.end(); }

// A distance beyond every tensor, but legal: sums with it overflow 32 bits, or 64.
std::int64_t far_away(Rng& rng);

// The case with other, nasty sizes, and other values of what is not specialised on.
spec::Case vary_attention(const spec::Case& c, Rng& rng);

// A case of attention becomes one of blocksparse_attention, with any blocks.
void add_blocks(spec::Case& c, Rng& rng);

// The blocksparse case with other blocks, or its own: images are made for some sizes of both. And one mask for all heads or one a head.
void vary_blocks(spec::Case& c, Rng& rng);

// Any legal call of an attention kernel with the inputs and attributes of flash_attention, of every option, with or without lse.
spec::Case random_attention(Rng& rng);

// All rows of the batch are as long as its tensors.
inline bool has_full_rows(const Call& call) { return !call.given("query_seq_lengths") && !call.given("key_value_seq_lengths"); }

// Visits every (sequence, head, query, key) that is visible.
template <class Visit>
void each_visible(const Call& call, Visit visit) {
  const Visibility visibility(call);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t h = 0; h < call.dim("Hq"); ++h)
      for (std::int64_t i = 0; i < s.q_length; ++i)
        for (std::int64_t j = 0; j < s.k_length; ++j)
          if (visibility.sees(s, h, i, j)) visit(s, h, i, j);
}

// Rows of k and v that somebody sees, by token and kv head; elements of bias; and rows of q that see something.
struct Seen {
  std::vector<bool> keys, bias, queries;
};
Seen seen_by_any(const Call& call);

// Fills what nobody sees of k, v and bias with NaN and infinity in turn, and the queries that see nothing.
void overwrite_unseen(Call& call);

// Whether the call has a bias of f32 or bf16. Beside f16's lowest number f32 would have few digits left for products.
bool takes_lowest_bias(const Call& call);

// Of some rows of the bias all, of others about half becomes the lowest finite number of its type.
void lower_bias(Call& call, Rng& rng);

// Keys of a batched call, and all that belongs to them, in another order: key j goes to order[j].
void reorder_keys(const Call& from, Call& to, const char* tensor, std::int64_t inner, const std::vector<std::int64_t>& order);

}  // namespace ejk::reference
