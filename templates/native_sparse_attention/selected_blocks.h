// Vocabulary of every backend: the blocks of tokens that a query selects, a bit each.
#pragma once
#include "device/attention/visibility.h"

struct SelectedBlocks {
  const uint32_t* bits;
  int64_t size;  // tokens a block

  bool has(int64_t block) const { return (bits[block / 32] >> block % 32 & 1) != 0; }

  // Of tokens [first, end): the first run that selected blocks, one after the other, leave. Empty: there is none.
  KeyRange next(int64_t first, int64_t end) const {
    int64_t block = first / size;
    while (block * size < end && !has(block)) block += block % 32 == 0 && bits[block / 32] == 0 ? 32 : 1;
    const int64_t begin = block * size;
    if (begin >= end) return {end, end};
    while (block * size < end && has(block)) ++block;
    return {begin > first ? begin : first, block * size < end ? block * size : end};
  }
};

// How many blocks a query in block `own` selects besides block 0 and its own, which always are; one block is block 0.
static inline int64_t room_beside(int64_t count, int64_t own) { return count - (own > 0 && count > 1 ? 2 : 1); }

// An importance is not negative: as an integer it is in the same order. NaN comes first.
static inline uint32_t order_of(float importance) { return __builtin_bit_cast(uint32_t, importance); }
