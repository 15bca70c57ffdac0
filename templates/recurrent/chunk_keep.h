// GPU vocabulary of the chunked recurrence's gradient: states that go to memory as elements, by all values of a head and keys. Part of a
// template, which has defined KEPT_PARTS, elements a number, and WAYS before.
#pragma once
#include "recurrent/chunk_block.h"

// A warp's place in shared memory, by which some keys of its columns of a state reach memory in rows: a tile for each of KEPT_PARTS.
constexpr int KEPT_KEYS = KEPT_PARTS == 1 || KEYS % 32 > 0 ? KEYS : 32;
using KeptTile = Tile<Element, 16, KEPT_KEYS>;
constexpr int KEPT_BYTES = KEPT_PARTS * KeptTile::BYTES;

static inline void put_kept(char* tile, int row, int key, uint32_t word) {
  *reinterpret_cast<uint32_t*>(tile + (row * KeptTile::PITCH + key) * 2) = word;
}
// The 16 rows of a tile.
static inline void store_kept(const char* tile, Element* to) {
#pragma unroll 2
  for (int i = 0; i < KEPT_KEYS / 16; ++i) {
    const int pack = 32 * i + lane(), row = pack / (KEPT_KEYS / 8), key = pack % (KEPT_KEYS / 8) * 8;
    store_pack(to + row * KEYS + key, load_pack<8>(reinterpret_cast<const Element*>(tile) + row * KeptTile::PITCH + key));
  }
}

// A state, to [KEPT_PARTS][values][KEYS] from the warp's first value on; the second part is what rounding took from the first.
$if narrow  // halves: times a unit
static inline void keep_state(const State& state, char* tile, Element* to, int64_t part_stride, float unit) {
$else
static inline void keep_state(const State& state, char* tile, Element* to, int64_t part_stride) {
$end
#pragma unroll
  for (int first = 0; first < KEYS; first += KEPT_KEYS) {
#pragma unroll
    for (int n = first / 8; n < (first + KEPT_KEYS) / 8; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 8 * h + lane() / 4, key = 8 * n - first + lane() % 4 * 2;
$if narrow
        const float low = state[n][2 * h] * unit, high = state[n][2 * h + 1] * unit;
        const uint32_t word = pack_pair<Element>(low, high);
        put_kept(tile, row, key, word);
        if (KEPT_PARTS > 1) put_kept(tile + KeptTile::BYTES, row, key, rounding_of(low, high, word));
$else
        const uint32_t word = pack_pair<Element>(state[n][2 * h], state[n][2 * h + 1]);
        put_kept(tile, row, key, word);
        if (KEPT_PARTS > 1) put_kept(tile + KeptTile::BYTES, row, key, rounding_of(state[n][2 * h], state[n][2 * h + 1], word));
$end
$if (dual or summed) and backward
        if constexpr (KEPT_PARTS > 2) {
          const float x = state[n][2 * h] - low_of(word), y = state[n][2 * h + 1] - high_of(word);
          put_kept(tile + 2 * KeptTile::BYTES, row, key, rounding_of(x, y, pack_pair<Element>(x, y)));
        }
$end
      }
    sync_warp();
#pragma unroll
    for (int part = 0; part < KEPT_PARTS; ++part) store_kept(tile + part * KeptTile::BYTES, to + part * part_stride + first);
    sync_warp();
  }
}

// state = (base + rest) state + (written + what rounding took from it) rows; PARTS == 1: without the latter.
$if narrow  // halves: `written` is in units of 1 / inverse
template <int PARTS>
static inline void write_state(State& state, float base, float rest, float inverse, const Operands<4>& written, const Operands<4>& written_rest,
                               const KeyTile& rows) {
$else
template <int PARTS>
static inline void write_state(State& state, float base, float rest, const Operands<4>& written, const Operands<4>& written_rest,
$if (dual or summed) and backward  // PARTS == 3: and what rounding took from that
                               const Operands<4>& written_least,
$end
                               const KeyTile& rows) {
$end
  constexpr int AHEAD = WAYS - 1;  // where one way is made alone, more blocks share a processor, and leave no registers for the next slice's
  uint32_t b[1 + AHEAD][4][4];
  const auto load = [&](int k) {
#pragma unroll
    for (int c = 0; c < 4; ++c) rows.load_b_transposed(b[AHEAD ? k % 2 : 0][c], 16 * c, 16 * k);
  };
  if (AHEAD) load(0);
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    sync_warp();  // keeps the compiler from loading further ahead, for which there are no registers
    if (k + AHEAD < SLICES) load(k + AHEAD);
    float sums[2][2][4] = {};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint32_t(&here)[4] = b[AHEAD ? k % 2 : 0][c];
      multiply_two(sums[0][0], sums[0][1], written[c], here);
      if (PARTS > 1) multiply_two(sums[1][0], sums[1][1], written_rest[c], here);
$if (dual or summed) and backward
      if (PARTS > 2) multiply_two(sums[1][0], sums[1][1], written_least[c], here);
$end
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * base + (x * rest + (sums[0][n][i] + sums[1][n][i])${narrow ? ' * inverse' : ''});
      }
  }
}
