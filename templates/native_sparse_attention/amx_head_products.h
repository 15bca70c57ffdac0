// CPU vocabulary: both products of the query heads of a token on AMX tiles of bf16: 16 heads are the rows of a tile. Keys lie as tiles of right
// operands, a group of 32 after the other, and so do values; a mean of keys is the sum of three bf16. Weights are rounded to bf16 for the second
// product, and summed in f32 before that. Part of a template, which has defined before: Element, D, DV.
#pragma once
#include "device/attention/decode_rows.h"
#include "device/matrix/amx_parts.h"

$require E == 'bf16'
constexpr int ROWS = 16;
constexpr int64_t GROUP = 32, GROUPS = 9, TERMS = 3;
constexpr int64_t CHUNKS = (D + 31) / 32, VALUE_TILES = (DV + 31) / 32 * 2, WIDTH = VALUE_TILES * 16;  // WIDTH: floats of a row of outputs
// Words of a group: of keys [two times 16 keys][terms][CHUNKS] tiles; of values [VALUE_TILES] tiles, then a line whose first word is 1 where all
// values are known to be finite.
constexpr int64_t KEY_GROUP = 2 * CHUNKS * TILE_WORDS, MEAN_GROUP = TERMS * KEY_GROUP, VALUE_GROUP = VALUE_TILES * TILE_WORDS + 16;
#include "native_sparse_attention/key_groups.h"

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <int64_t COUNT> struct KeysOfTerms {
  static constexpr int64_t TERMS = COUNT;
  const float *keys, *values;
  int64_t value_stride;
};
typedef KeysOfTerms<1> Keys;
typedef KeysOfTerms<TERMS> MeanKeys;

// The query heads of a token, 16 a pass; rows past the last are zeros.
struct HeadProducts {
  float* queries;  // [passes][CHUNKS] tiles
  float* weights;  // [GROUPS] tiles, of one pass
  float* values;   // [GROUPS][VALUE_TILES] tiles: values of groups of which some keys are not seen, as zeros
  float* scores;   // [passes][16][BLOCK]
  float* outputs;  // [passes][16][WIDTH]

  // Own floats: of a row, and of all together.
  static constexpr int64_t ROW_SCRATCH = 16 * CHUNKS, SCRATCH = GROUPS * (1 + VALUE_TILES) * TILE_WORDS;

  void lay_out(float* scratch, int64_t rows) {
    queries = scratch;
    weights = queries + rows * 16 * CHUNKS;
    values = weights + GROUPS * TILE_WORDS;
  }
  void start() { amx_configure(); }
  void end() { amx_release(); }

  void load_queries(const Element* query, int64_t stride, int64_t heads, int64_t passes) {
    for (int64_t pass = 0; pass < passes; ++pass)
      for (int64_t c = 0; c < CHUNKS; ++c)
        pack_lines(queries + (pass * CHUNKS + c) * TILE_WORDS, query + pass * ROWS * stride + 32 * c, stride, smaller(16, heads - pass * ROWS),
                   smaller(32, D - 32 * c), false);
  }

  // Chunk `chunk` of groups one after the other, two tiles a group.
  template <class K> struct KeyTiles {
    const float* keys;
    const int64_t* index;
    int64_t chunk;

    template <int REGISTER> void load(int i) const {
      constexpr int64_t HALF = K::TERMS * CHUNKS * TILE_WORDS;
      amx_load<REGISTER>(keys + (2 * index[i / 2] + i % 2) * HALF + chunk * TILE_WORDS, 64);
    }
  };
  template <int COUNT, class K> void score_groups(int64_t pass, const K& keys, const Groups& groups, int64_t first) {
    typedef AmxBlock<1, 2 * COUNT> Tiles;
    const float* query = queries + pass * CHUNKS * TILE_WORDS;
    Tiles::zero();
    for (int64_t chunk = 0; chunk < K::TERMS * CHUNKS; ++chunk)
      Tiles::multiply(query + chunk % CHUNKS * TILE_WORDS, KeyTiles<K>{keys.keys, groups.index + first, chunk});
    Tiles::store_rows(scores + pass * ROWS * BLOCK + first * GROUP, BLOCK);
  }
  template <class K> void score(int64_t pass, const K& keys, const Groups& groups) {
    int64_t i = 0;
    for (; i + 2 <= groups.count; i += 2) score_groups<2>(pass, keys, groups, i);
    if (i < groups.count) score_groups<1>(pass, keys, groups, i);
  }

  // A group's values, zeros in place of those whose keys are not seen: a weight of 0 would not hide a NaN.
  const float* seen_values(int64_t i, const float* from, uint32_t seen) const {
    float* to = values + i * VALUE_TILES * TILE_WORDS;
    for (int64_t pair = 0; pair < 16; ++pair) {
      const uint32_t two = seen >> 2 * pair & 3;
      const Words mask = Words{} + ((two & 1 ? 0xffff : 0) | (two & 2 ? 0xffff0000 : 0));
      for (int64_t tile = 0; tile < VALUE_TILES; ++tile) {
        const int64_t at = tile * TILE_WORDS + pair * 16;
        store_floats(to + at, reinterpret_cast<Floats>(reinterpret_cast<Words>(load_floats(from + at)) & mask));
      }
    }
    return to;
  }
  void take_weights(int64_t row, int64_t key, const Floats* weight) {
    store_floats(weights + key / GROUP * TILE_WORDS + row * 16, line_of_bf16(weight[0], weight[1]));
  }
  template <class K> void add_values(int64_t pass, const K& keys, const Groups& groups) {
    const float* value[GROUPS];
    for (int64_t i = 0; i < groups.count; ++i) {
      const float* from = keys.values + groups.index[i] * VALUE_GROUP;
      const bool as_it_lies = groups.seen[i] == WHOLE || from[VALUE_TILES * TILE_WORDS] != 0;
      value[i] = as_it_lies ? from : seen_values(i, from, groups.seen[i]);
    }
    float* output = outputs + pass * ROWS * WIDTH;
    int64_t tile = 0;
    for (; tile + 4 <= VALUE_TILES; tile += 4) add_tiles<4>(output, tile, value, groups.count);
    if (tile < VALUE_TILES) add_tiles<2>(output, tile, value, groups.count);
  }
  template <int COUNT> void add_tiles(float* output, int64_t tile, const float* const* value, int64_t count) const {
    typedef AmxBlock<1, COUNT> Tiles;
    const float* weight = weights;
    Tiles::load_rows(output + tile * 16, WIDTH);
    for (int64_t i = 0; i < count; ++i) Tiles::multiply(weight + i * TILE_WORDS, value[i] + tile * TILE_WORDS);
    Tiles::store_rows(output + tile * 16, WIDTH);
  }
};

static inline void store_bits(Element* to, Floats bits) { __builtin_memcpy(to, &bits, sizeof bits); }
static inline void store_result(const float* from, Element* to) {
  int64_t d = 0;
  for (; d + 32 <= DV; d += 32) store_bits(to + d, line_of_bf16(load_floats(from + d), load_floats(from + d + 16)));
  for (; d < DV; d += LANES) store_some(to + d, load_floats(from + d), DV - d);
}

// A group of keys, and its values: `count` of them are there; the rest are zeros.
static void pack_group(const Element* k, int64_t k_stride, const Element* v, int64_t v_stride, int64_t count, float* keys, float* values) {
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t c = 0; c < CHUNKS; ++c)
      pack_lines(keys + (half * CHUNKS + c) * TILE_WORDS, k + 16 * half * k_stride + 32 * c, k_stride, count - 16 * half,
                 smaller(32, D - 32 * c), true);
  for (int64_t tile = 0; tile < VALUE_TILES; ++tile)
    pack_steps(values + tile * TILE_WORDS, v + 16 * tile, v_stride, smaller(16, DV - 16 * tile), count, false);
  Integers special = {};
  for (int64_t i = 0; i < VALUE_TILES * TILE_WORDS; i += 16) {
    const Integers pairs = __builtin_bit_cast(Integers, load_floats(values + i));
    special |= ((pairs & 0x7f80) == 0x7f80) | ((pairs & 0x7f800000) == 0x7f800000);
  }
  values[VALUE_TILES * TILE_WORDS] = any(special) ? 0 : 1;
}

$if gated
// A mean's place in its group. `value` may be null.
static void store_mean(const float* key, const float* value, int64_t at, float* keys, float* values) {
  uint16_t* to = reinterpret_cast<uint16_t*>(keys + at / GROUP * MEAN_GROUP + at % GROUP / 16 * (TERMS * CHUNKS * TILE_WORDS));
  for (int64_t d = 0; d < 32 * CHUNKS; ++d) {
    float left = d < D ? key[d] : 0;
    for (int64_t term = 0; term < TERMS; ++term) {
      const bfloat16 part = from_float<bfloat16>(left);
      to[2 * ((term * CHUNKS + d / 32) * TILE_WORDS + d % 32 / 2 * 16 + at % 16) + d % 2] = part.bits;
      left = left - to_float(part) == left - to_float(part) ? left - to_float(part) : 0;  // infinity and NaN are in the first part
    }
  }
  if (!value) return;
  values += at / GROUP * VALUE_GROUP;
  if (at % GROUP == 0) values[VALUE_TILES * TILE_WORDS] = 0;  // means of later tokens may be anything
  uint16_t* rows = reinterpret_cast<uint16_t*>(values);
  for (int64_t d = 0; d < WIDTH; ++d)
    rows[2 * (d / 16 * TILE_WORDS + at % GROUP / 2 * 16 + d % 16) + at % 2] = from_float<bfloat16>(d < DV ? value[d] : 0).bits;
}
$end
