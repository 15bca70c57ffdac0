// The launch of mla_attention before flash_attention's `attend` on Hopper: keys and values of a turn's heads. An end of flash_attention's forward.sm90.cu,
// whose constants it uses.
#pragma once
#include "device/sm90/sm90_product.h"

constexpr int LATENT = ${R};
static_assert(LATENT % HOPPER_DEPTH == 0 && NOPE == 128 && DV == 128 && NOPE + DV == HOPPER_N);

// Tiles of 128 tokens by a head's columns of w_kc and of w_vc.
struct Expansion {
  struct Tile {
    int steps, batch, row, slot;
  };
  const TensorMap &latents, &w_kc, &w_vc;
  Element *keys, *values;
  int tokens, batches, heads, slots, first_head;

  int bands() const { return (tokens + HOPPER_M - 1) / HOPPER_M; }  // of a row of the batch
  int tiles() const { return bands() * batches * heads; }
  Tile tile(int i) const {
    const HopperPlace at(i, bands() * batches, heads);
    return {LATENT / HOPPER_DEPTH, at.m / bands(), at.m % bands() * HOPPER_M, at.n};
  }
  void copy_left(const Tile& tile, int step, int box, uint32_t to, uint32_t full) const {
    load_tile(to, latents, full, {step * HOPPER_DEPTH, tile.row + 64 * box, tile.batch});
  }
  void copy_right(const Tile& tile, int step, int box, uint32_t to, uint32_t full) const {
    load_tile(to, box < 2 ? w_kc : w_vc, full, {64 * (box % 2), first_head + tile.slot, step * HOPPER_DEPTH});
  }
  // Four lanes that share a row hand their pairs of columns about, so that each has eight columns that lie together.
  static void exchange(uint32_t (&w)[4]) {
    const bool odd = lane() & 1, high = lane() & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t got = shuffle_xor(odd ? w[i] : w[i + 1], 1);
      (odd ? w[i] : w[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t got = shuffle_xor(high ? w[i] : w[i + 2], 2);
      (high ? w[i] : w[i + 2]) = got;
    }
  }
  void store(const Tile& tile, int part, const HopperSums& sums) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tile.row + part * 64 + warp() % 4 * 16 + 8 * h + lane() / 4;
      const int64_t at = (int64_t{tile.batch} * tokens + row) * slots + tile.slot;
      Element *const key = keys + at * ${gradient ? 'D' : 'NOPE'} + lane() % 4 * 8, *const value = values + at * DV + lane() % 4 * 8;
#pragma unroll
      for (int j = 0; j < HOPPER_N; j += 32) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = pack_pair<Element>(sums[j / 2 + 4 * i + 2 * h], sums[j / 2 + 4 * i + 2 * h + 1]);
        exchange(w);
        if (row < tokens) store_pack(reinterpret_cast<uint32_t*>(j < NOPE ? key + j : value + j - NOPE), Pack<uint32_t, 4>{{w[0], w[1], w[2], w[3]}});
      }
    }
  }
};

// A block goes from tile to tile. No tile of `attend` is taken yet.
KERNEL(HOPPER_THREADS, 1) expand(${parameters('expand')}) {
  let_next_launch_go();
$if dynamic
  if (block_x() == 0 && thread_x() == 0) *taken = 0;
$end
  const int64_t first_head = step * head_slots, heads = all_heads - first_head < head_slots ? all_heads - first_head : head_slots;
  multiply_on_hopper<Element, true, false>(Expansion{kv_latent_map, w_kc_map, w_vc_map, reinterpret_cast<Element*>(made_k), reinterpret_cast<Element*>(made_v),
                                                     static_cast<int>(key_tokens), static_cast<int>(sequence_count), static_cast<int>(heads),
                                                     static_cast<int>(head_slots), static_cast<int>(first_head)});
}
