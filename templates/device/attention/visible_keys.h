// GPU vocabulary of decoding: the keys that a sequence's query sees, in tiles.
#pragma once
#include "device/gpu.h"

// Of numbers that are not negative.
static inline int quotient(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b)); }

// The keys that the query of a sequence sees: [first, end).
template <int TILE> struct VisibleKeys {
  int first, end;
  int first_tile() const { return quotient(first, TILE); }
  int tiles() const { return first < end ? quotient(end - 1, TILE) - first_tile() + 1 : 0; }
  bool has(int key) const { return key >= first && key < end; }
  bool has_all(int first_of_tile) const { return first_of_tile >= first && end - first_of_tile >= TILE; }
};
