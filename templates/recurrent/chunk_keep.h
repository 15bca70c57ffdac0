// GPU vocabulary of the chunked recurrence's gradient: states that go to memory as elements, by all values of a head and keys.
#pragma once
#include "recurrent/chunk_block.h"

$if backward
// A warp's place in shared memory, by which half of the keys of its columns of a state reach memory in rows.
constexpr int KEPT_KEYS = SLICES % 2 == 0 ? KEYS / 2 : KEYS;
using KeptTile = Tile<Element, 16, KEPT_KEYS>;

static inline void put_kept(char* tile, int row, int key, uint32_t word) {
  *reinterpret_cast<uint32_t*>(tile + (row * KeptTile::PITCH + key) * 2) = word;
}
// The 16 rows of a tile, one after another.
static inline void store_kept(const char* tile, Element* to) {
#pragma unroll 2
  for (int i = 0; i < KEPT_KEYS / 16; ++i) {
    const int pack = 32 * i + lane(), row = pack / (KEPT_KEYS / 8), key = pack % (KEPT_KEYS / 8) * 8;
    store_pack(to + row * KEYS + key, load_pack<8>(reinterpret_cast<const Element*>(tile) + row * KeptTile::PITCH + key));
  }
}

// A state, times `unit`, to [PARTS][values][KEYS] from the warp's first value on; the second part is what rounding took from the first.
template <int PARTS> static inline void keep_state(const State& state, float unit, char* tile, Element* to, int64_t part_stride) {
#pragma unroll 1
  for (int part = 0; part < PARTS; ++part) {
#pragma unroll
    for (int first = 0; first < KEYS; first += KEPT_KEYS) {
#pragma unroll
      for (int n = first / 8; n < (first + KEPT_KEYS) / 8; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float x = state[n][2 * h] * unit, y = state[n][2 * h + 1] * unit;
          uint32_t word = pack_pair<Element>(x, y);
          if (part == 1) word = rounding_of(x, y, word);
          put_kept(tile, 8 * h + lane() / 4, 8 * n + lane() % 4 * 2 - first, word);
        }
      sync_warp();
      store_kept(tile, to + part * part_stride + first);
      sync_warp();
    }
  }
}

$else
// A warp's place in shared memory, by which its columns of a state reach memory in whole rows.
using KeptTile = Tile<Element, 16, KEYS>;

static inline void put_kept(char* tile, int row, int key, uint32_t word) {
  *reinterpret_cast<uint32_t*>(tile + (row * KeptTile::PITCH + key) * 2) = word;
}
// The 16 rows of a tile, one after another.
static inline void store_kept(const char* tile, Element* to) {
#pragma unroll 2
  for (int i = 0; i < KEYS / 16; ++i) {
    const int pack = 32 * i + lane(), row = pack / (KEYS / 8), key = pack % (KEYS / 8) * 8;
    store_pack(to + pack * 8, load_pack<8>(reinterpret_cast<const Element*>(tile) + row * KeptTile::PITCH + key));
  }
}

// A state, times `unit`, to [PARTS][values][KEYS] from the warp's first value on; the second part is what rounding took from the first.
template <int PARTS> static inline void keep_state(const State& state, float unit, char* tile, Element* to, int64_t part_stride) {
#pragma unroll 1
  for (int part = 0; part < PARTS; ++part) {
#pragma unroll
    for (int n = 0; n < 2 * SLICES; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float x = state[n][2 * h] * unit, y = state[n][2 * h + 1] * unit;
        uint32_t word = pack_pair<Element>(x, y);
        if (part == 1) word = rounding_of(x, y, word);
        put_kept(tile, 8 * h + lane() / 4, 8 * n + lane() % 4 * 2, word);
      }
    sync_warp();
    store_kept(tile, to + part * part_stride);
    sync_warp();
  }
}
$end

$if backward
// state = (base + rest) state + (written + what rounding took from it) rows; PARTS == 1: without the latter.
template <int PARTS>
static inline void write_state(State& state, float base, float rest, const Operands<4>& written, const Operands<4>& written_rest,
                               const KeyTile& rows) {
  uint32_t b[2][4][4];
  const auto load = [&](int k) {
#pragma unroll
    for (int c = 0; c < 4; ++c) rows.load_b_transposed(b[k % 2][c], 16 * c, 16 * k);
  };
  load(0);
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    if (k + 1 < SLICES) load(k + 1);
    float sums[2][2][4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      multiply_two(sums[0][0], sums[0][1], written[c], b[k % 2][c]);
      if (PARTS > 1) multiply_two(sums[1][0], sums[1][1], written_rest[c], b[k % 2][c]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * base + (x * rest + (sums[0][n][i] + sums[1][n][i]));
      }
  }
}
$else
// state = (base + rest) state + (written + what rounding took from it) rows; PARTS == 1: without the latter.
template <int PARTS>
static inline void write_state(State& state, float base, float rest, const Operands<4>& written, const Operands<4>& written_rest,
                               const KeyTile& rows) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    float sums[2][2][4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      uint32_t b[4];
      rows.load_b_transposed(b, 16 * c, 16 * k);
      multiply_two(sums[0][0], sums[0][1], written[c], b);
      if (PARTS > 1) multiply_two(sums[1][0], sums[1][1], written_rest[c], b);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * base + (x * rest + (sums[0][n][i] + sums[1][n][i]));
      }
  }
}
$end
