// Attention's vocabulary: packed sequences in the order of their lengths, so that what takes longest comes first and the last items of a launch are short.
#pragma once
#include "device/attention/attention_rows.h"

// find_sequence() of one row a token where those sequences come first that have most keys, by a whole warp. Of many sequences as they lie: each is
// compared with each.
static inline bool find_longest_first(const Sequences& sequences, int64_t& item, int item_rows, Sequence& sequence, int64_t& items) {
  constexpr int MOST = 4 * WARP - 1;
  if (sequences.count > MOST) return find_sequence(sequences, item, item_rows, 1, sequence, items);
  const int count = static_cast<int>(sequences.count);
  const auto keys_of = [&](int n) { return n < count ? sequences.cum_keys[n + 1] - sequences.cum_keys[n] : 0; };
  const auto items_of = [&](int n) {  // the last: of tokens in no sequence
    return static_cast<int>((n < count ? sequences.cum_queries[n + 1] : sequences.queries) - sequences.cum_queries[n] + item_rows - 1) / item_rows;
  };
#pragma unroll 1
  for (int base = 0; base <= count; base += WARP) {
    const int mine = base + lane(), keys = mine <= count ? keys_of(mine) : 0;
    int before = 0;
#pragma unroll 1
    for (int other = 0; other <= count; ++other) {
      const int theirs = keys_of(other);
      if (theirs > keys || (theirs == keys && other < mine)) before += items_of(other);
    }
    int found = mine <= count && item >= before && item < before + items_of(mine) ? lane() : WARP;
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
      const int other = shuffle_xor(found, mask);
      found = other < found ? other : found;
    }
    if (found == WARP) continue;
    item -= shuffle(before, found);
    sequence = sequences[base + found], items = items_of(base + found);
    return true;
  }
  return false;
}
