// GPU vocabulary of ragged decoding: the keys that each sequence's query sees, and how blocks share them (device/attention/decode_shares.h).
#pragma once
#include "device/attention/visible_keys.h"

template <int TILE> struct Lengths {
  const int32_t *starts, *ends;
  int sequences;
  int window;  // keys before the last one, where the query stands, that it sees at most

  // window_left: that, or -1 for all.
  Lengths(const int32_t* sequence_start, const int32_t* sequence_end, int count, int64_t window_left)
      : starts(sequence_start),
        ends(sequence_end),
        sequences(count),
        window(window_left < 0 || window_left > 0x7fffffff ? 0x7fffffff : static_cast<int>(window_left)) {}

  int tiles(int sequence) const { return sequence < sequences ? (*this)[sequence].tiles() : 0; }
  VisibleKeys<TILE> operator[](int sequence) const {
    const int start = starts[sequence], end = ends[sequence];
    if (start >= end) return {0, 0};
    return {end - 1 - start > window ? end - 1 - window : start, end};
  }
};

#include "device/attention/decode_shares.h"
