// The scales of Hopper's mla_decode of bytes in registers: those of a key as a power of two times halves, which are far from the end of their range. A part of
// decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/byte_powers.h"

// A warp beside the one that copies: who makes scores has no time for it.
struct Splitter {
  const Places& at;

  // Those of a key that is not seen are zeros, with an exponent that leaves it no weight. ratios: where the first block's goes.
  void split(uint32_t scales, uint32_t powers, uint32_t ratios, bool seen) const {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) largest = larger_of(largest, size_of(scale(scales, i, seen)));
    const int exponent = exponent_of(largest, 60) - 6;
    const float inverse = power_of_two(-exponent);
    store_shared_two(powers, {{seen ? static_cast<float>(exponent) : -INFINITE, inverse}});
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) store_shared_2(ratios + i * (KEYS * 2), from_float<half>(scale(scales, i, seen) * inverse).bits);
  }
  static float scale(uint32_t scales, int block, bool seen) { return seen ? __uint_as_float(load_shared_4(scales + block * 4)) : 0; }
  void split_tile(uint32_t stage, uint32_t turn, int left) const {
#pragma unroll 1
    for (int key = static_cast<int>(keep_here(thread_x())) % WARP; key < KEYS; key += WARP)
      split(at.scales(stage, key), at.powers(turn, key), at.ratios(turn, 0) + (key % 8 / 2 * 8 + key / 8) * 4 + key % 2 * 2, key < left);
  }
  // All tiles. left: keys from the part's first one on.
  void run(int tiles, int left) const {
    Turn<STAGES> stage;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile, left -= KEYS) {
      const uint32_t turn = tile % 2;
      barrier_wait(at.full(stage.at), stage.parity);
      barrier_wait(at.added(turn), tile / 2 % 2 ^ 1);
      split_tile(stage.at, turn, left);
      sync_warp();
      if (lane() == 0) barrier_arrive(at.split(turn)), barrier_arrive(at.empty(stage.at));
      stage.next();
    }
  }
};
