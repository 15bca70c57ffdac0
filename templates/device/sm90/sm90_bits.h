// Hopper vocabulary: bits of words, within a lane and between lanes.
#pragma once
#include "device/sm90.h"

// Bits of `a` where `mask` has them, else of `b`.
static inline uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }

// One step of a bit-matrix transpose across lanes: lane l and lane l ^ LANES swap the bits at positions with (position & BITS) set in the lower
// lane for those with it clear in the upper lane.
template <uint32_t LANES, uint32_t BITS> static inline uint32_t exchange_bits(uint32_t x) {
  constexpr uint32_t LOWER = BITS == 16 ? 0x0000ffff : BITS == 8 ? 0x00ff00ff : BITS == 4 ? 0x0f0f0f0f : BITS == 2 ? 0x33333333 : 0x55555555;
  const bool upper = lane() & LANES;
  const uint32_t got = shuffle_xor(x, LANES), by = upper ? 32 - BITS : BITS;
  return choose_bits(upper ? ~LOWER : LOWER, x, got << by | got >> (32 - by));
}
