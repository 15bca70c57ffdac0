// Vocabulary of every backend: which sequence of a packed call a token, a whole block or a tile of tokens is of. Sequence n holds the tokens
// offsets[n] up to offsets[n + 1]; offsets begin with 0 and do not decrease. Every sequence counts its tokens, blocks and tiles from its own first token.
#pragma once
#include "device/view.h"

struct SequenceTokens {
  int64_t first, length;  // of all tokens; length 0: a token of no sequence

  // Numbers of whole blocks before the sequence's own, in a list of those of all sequences.
  int64_t first_mean(int64_t block_size) const { return first / block_size; }
};

// Without offsets there is one sequence of `tokens`.
static inline SequenceTokens sequence_of(const int32_t* offsets, int64_t sequences, int64_t token, int64_t tokens) {
  if (!offsets) return {0, tokens};
  if (token >= offsets[sequences]) return {token, 0};
  int64_t low = 0, high = sequences;  // offsets[low] <= token < offsets[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (offsets[middle] <= token ? low : high) = middle;
  }
  return {offsets[low], offsets[high] - offsets[low]};
}

// A block or a tile of a sequence, or of the tokens of none, which lie after all sequences.
struct SequencePart {
  SequenceTokens of;
  int64_t number;  // in its sequence, from 0 on
  bool of_none;
  int64_t sequence;  // its number

  bool is_whole(int64_t size) const { return !of_none && (number + 1) * size <= of.length; }
  bool is_there(int64_t size) const { return number * size < of.length; }
  // Where the tokens [first, ...) of the sequence would be, if its parts of `size` lay one after another in the list that has also parts.
  int64_t first_in_parts(int64_t size) const { return (of.first / size + sequence) * size; }
};

// Part `index` of a list in which those of `size` tokens of sequence n begin at number offsets[n] / size, or with `also_parts`, where the last of a
// sequence may be smaller, n later. It may be one that its sequence does not have. Without offsets there is one sequence of all `tokens`.
static inline SequencePart part_of_sequence(const int32_t* offsets, int64_t sequences, int64_t index, int64_t size, bool also_parts, int64_t tokens) {
  if (!offsets) return {{0, tokens}, index, false, 0};
  int64_t low = 0, high = sequences + 1;  // the last sequence whose parts begin at `index` or before; number `sequences`: the tokens of none
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (offsets[middle] / size + (also_parts ? middle : 0) <= index ? low : high) = middle;
  }
  const int64_t end = low < sequences ? offsets[low + 1] : tokens;
  return {{offsets[low], end - offsets[low]}, index - offsets[low] / size - (also_parts ? low : 0), low == sequences, low};
}
