// GPU vocabulary of paged attention: the lengths of all sequences, and how blocks share their keys (device/attention/decode_shares.h).
#pragma once
#include "device/attention/visible_keys.h"

template <int TILE> struct Lengths {
  const int32_t* context_lens;
  int sequences;
  int window;  // keys before the last token, which is the query, that it sees at most

  // window_left: that, or -1 for all.
  Lengths(const int32_t* lengths, int count, int64_t window_left)
      : context_lens(lengths),
        sequences(count),
        window(window_left < 0 || window_left > 0x7fffffff ? 0x7fffffff : static_cast<int>(window_left)) {}

  int length(int sequence) const { return sequence < sequences ? context_lens[sequence] : 0; }
  int tiles(int sequence) const { return visible(length(sequence)).tiles(); }
  VisibleKeys<TILE> operator[](int sequence) const { return visible(context_lens[sequence]); }
  VisibleKeys<TILE> visible(int length) const {
    if (length <= 0) return {0, 0};
    return {length - 1 > window ? length - 1 - window : 0, length};
  }
};

#include "device/attention/decode_shares.h"
