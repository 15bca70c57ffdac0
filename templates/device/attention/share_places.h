// GPU vocabulary of decoding: where shares of streams begin and end (device/attention/decode_shares.h), and small sums.
#pragma once
#include "device/gpu.h"

// Where a share begins or ends: before a tile of a stream.
struct Place {
  int sequence, stream, tile;
  int stream_end;  // of the weights of all streams, in their order, up to the end of this one
};

// A stream and the blocks that have parts of it: more than one of them, or there is nothing to add up.
struct Cut {
  int sequence, stream, first_block, last_block;
};

$if arch.platform == 'cuda'
static inline int sum_in_warp(int x) { return __reduce_add_sync(0xffffffff, x); }
$else
static inline int sum_in_warp(int x) {
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
$end
static inline int smaller_of(int a, int b) { return a < b ? a : b; }
static inline int larger_of(int a, int b) { return a > b ? a : b; }
