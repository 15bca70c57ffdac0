// Hopper vocabulary of blocksparse_attention's gradients: dk and dv of a block of keys. As store_sums(), but what is made of the lane is made each time: the
// turns before it have no register to keep it in.
#pragma once
#include "device/sm90/sm90_attention_rows.h"
#include "device/tile/later.h"

// 64 keys from key `first` of the block on. Returns whether this lane's sums are finite.
template <class T, int N, class Block>
static inline bool store_keys(const float (&sums)[N], float factor, const Heads<T>& to, const Block& block, int first) {
  static_assert(N % 4 == 0);
  const int thread = static_cast<int>(later(thread_x())), quarter = thread % 4;
  float zero = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int key = first + thread / WARP % 4 * 16 + thread % WARP / 4 + 8 * h;
    T* const row = to.row(block.sequence.batch, block.token() + (key < block.keys ? key : 0), block.kv_head);
#pragma unroll
    for (int g = 0; g < N / 4; g += 4) {
      uint32_t w[4] = {};
#pragma unroll
      for (int i = 0; i < 4 && g + i < N / 4; ++i) w[i] = pack_pair<T>(sums[4 * (g + i) + 2 * h] * factor, sums[4 * (g + i) + 2 * h + 1] * factor);
      transpose_in_four(w, thread);
      if (key < block.keys && g + quarter < N / 4) store_pack(reinterpret_cast<uint32_t*>(row + 8 * (g + quarter)), Pack<uint32_t, 4>{{w[0], w[1], w[2], w[3]}});
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) zero += sums[i] * 0;
  return zero == 0;
}
