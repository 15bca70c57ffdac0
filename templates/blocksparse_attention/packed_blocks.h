// Vocabulary of every backend: the sequences of a packed call behind a mask of blocks, which are counted from each sequence's own start.
#pragma once
#include "device/attention/attention.h"

// The sequence as the mask knows it: queries and keys after the mask's last blocks are padding. Its offset stays that of all its tokens.
static inline Sequence cut_to_mask(Sequence s, const View& mask, int64_t block_q, int64_t block_k) {
  const int64_t queries = s.past_the_end ? 0 : mask.shape[2] * block_q, keys = queries > 0 ? mask.shape[3] * block_k : 0;
  if (s.queries > queries) s.padding = static_cast<int32_t>(s.queries - queries);
  if (s.keys > keys) s.keys = keys;
  return s;
}

// The same for templates that know a sequence's row of the mask as its row of the batch, which packed tensors have none of.
static inline Sequence within_mask(const Sequence& sequence, const View& mask, int64_t block_q, int64_t block_k) {
  Sequence s = cut_to_mask(sequence, mask, block_q, block_k);
  s.batch = s.past_the_end ? 0 : s.index;
  return s;
}

// Which row of the mask a block of queries reads: of blocks after the last one, which see nothing, the last.
static inline int64_t row_of_mask(const View& mask, int64_t query_block) {
  return query_block < mask.shape[2] ? query_block : mask.shape[2] - 1;
}
