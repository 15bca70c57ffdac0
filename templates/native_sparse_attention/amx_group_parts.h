// CPU vocabulary: groups of keys, of values and of means as AMX's products take them, and groups of sums as rows. Part of a template that has
// the constants of amx_head_gradients.h.
#pragma once

// A group of rows as right operands whose steps are features, [two times 16 rows][chunk] tiles; `count` of them are there, the rest are zeros.
template <int64_t FEATURES> static void turn_group(const Element* from, int64_t stride, int64_t count, float* to) {
  constexpr int64_t CHUNKS = (FEATURES + 31) / 32;
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t c = 0; c < CHUNKS; ++c)
      pack_lines(to + (half * CHUNKS + c) * TILE_WORDS, from + 16 * half * stride + 32 * c, stride, count - 16 * half,
                 smaller(32, FEATURES - 32 * c), true);
}
// Keys, their values, and keys row by row.
static void pack_group(const Element* k, int64_t k_stride, const Element* v, int64_t v_stride, int64_t count, float* keys, float* values,
                       float* rows) {
  turn_group<D>(k, k_stride, count, keys);
  turn_group<DV>(v, v_stride, count, values);
  for (int64_t tile = 0; tile < KEY_TILES; ++tile)
    pack_steps(rows + tile * TILE_WORDS, k + 16 * tile, k_stride, smaller(16, D - 16 * tile), count, false);
  rows[KEY_TILES * TILE_WORDS] = are_finite(rows, KEY_TILES * TILE_WORDS) ? 1 : 0;
}

$if gated
// A mean's place in its group.
template <int64_t FEATURES> static void turn_mean(const float* mean, int64_t at, float* groups) {
  constexpr int64_t CHUNKS = (FEATURES + 31) / 32;
  uint16_t* to = reinterpret_cast<uint16_t*>(groups + at / 16 * CHUNKS * TILE_WORDS);
  for (int64_t d = 0; d < 32 * CHUNKS; ++d)
    to[2 * (d / 32 * TILE_WORDS + d % 32 / 2 * 16 + at % 16) + d % 2] = from_float<bfloat16>(d < FEATURES ? mean[d] : 0).bits;
}
static void store_mean(const float* key, const float* value, int64_t at, float* keys, float* values, float* rows) {
  turn_mean<D>(key, at, keys);
  turn_mean<DV>(value, at, values);
  rows += at / GROUP * ROW_GROUP;
  if (at % GROUP == 0) rows[KEY_TILES * TILE_WORDS] = 0;  // means of later tokens may be anything
  uint16_t* to = reinterpret_cast<uint16_t*>(rows);
  for (int64_t d = 0; d < KEY_WIDTH; ++d)
    to[2 * (d / 16 * TILE_WORDS + at % GROUP / 2 * 16 + d % 16) + at % 2] = from_float<bfloat16>(d < D ? key[d] : 0).bits;
}
$end

// to[GROUP][WIDTH] = what `count` parts, `apart` floats from one to the next, have summed of a group.
template <int64_t WIDTH> static void add_parts(const float* parts, int64_t count, int64_t apart, float* to) {
  for (int64_t feature = 0; feature < WIDTH; feature += 16)
    for (int64_t key = 0; key < 32; key += 16) {
      Floats block[LANES];
      for (int64_t i = 0; i < LANES; ++i) {
        const float* from = parts + (feature + i) * 32 + key;
        block[i] = load_floats(from);
        for (int64_t part = 1; part < count; ++part) block[i] += load_floats(from + part * apart);
      }
      transpose(block);
      for (int64_t i = 0; i < LANES; ++i) store_floats(to + (key + i) * WIDTH + feature, block[i]);
    }
}
