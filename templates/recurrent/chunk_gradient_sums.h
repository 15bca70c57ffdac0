// GPU vocabulary of the chunked recurrence's gradient: what warps add up of rows and states in shared memory, and where their sums of rows go.
// Part of backward.chunk.gpu.cu.
#pragma once

// sums += a's rows times `rows`, of tiles in parts, without the products that are below the last digits.
template <int A_PARTS, class Rows, int WIDTH>
static inline void add_part_rows(KeySums& sums, const Tile<Element, CHUNK, WIDTH>& a_tile, const Rows& rows, int row) {
#pragma unroll
  for (int part = 0; part < A_PARTS; ++part) {
    uint32_t a[4];
    Tile<Element, CHUNK, WIDTH>{a_tile.base + part * a_tile.BYTES}.load_a(a, 16 * row_slice(), row);
#pragma unroll
    for (int other = 0; other < PARTS && (A_PARTS == 1 || part + other < A_PARTS); ++other)
      add_rows(sums, a, Rows{rows.base + other * rows.BYTES}, row);
  }
}

// Sums over the lanes of a row, and over those of a column of `sums`.
static inline float sum_of_row(float x) {
  x += shuffle_xor(x, 1);
  return x + shuffle_xor(x, 2);
}
static inline float sum_of_column(float x) {
  x += shuffle_xor(x, 4), x += shuffle_xor(x, 8);
  return x + shuffle_xor(x, 16);
}
static inline void put_row_sums(const float (&rows)[2], float* to) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_of_row(rows[h]);
    if (lane() % 4 == 0) to[16 * row_slice() + 8 * h + lane() / 4] = sum;
  }
}

static inline void multiply_sums(PairSums& sums, const PairSums& by) {
#pragma unroll
  for (int j = 0; j < OWN<4>; ++j)
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][n][i] *= by[j][n][i];
}

// Calls use(h, word, x, y) for each two elements of a tile, a word, that the lane has sums of in the warp's slices, x and y; h: its row.
template <class Use> static inline void each_two(const char* tile, KeySums& sums, Use use) {
  each_slice<SLICES>([&](int j, int slice) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int t = 16 * row_slice() + 8 * h + lane() / 4, key = 16 * slice + 8 * n + lane() % 4 * 2;
        const uint32_t word = *reinterpret_cast<const uint32_t*>(tile + (t * KeyTile::PITCH + key) * 2);
        use(h, word, sums[j][n][2 * h], sums[j][n][2 * h + 1]);
      }
  });
}

// Adds products of each row of a tile with its sums, of the warp's slices.
static inline void multiply_with(const char* tile, KeySums& sums, float (&rows)[2]) {
  each_two(tile, sums, [&](int h, uint32_t word, float x, float y) { rows[h] += low_of(word) * x + high_of(word) * y; });
}

// The part of a row's gradient along the row does not change its norm: it is taken away.
static inline void take_along(const char* tile, const float (&dots)[HALVES][CHUNK], const float* norms, KeySums& sums) {
  float along[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int t = 16 * row_slice() + 8 * h + lane() / 4;
    along[h] = 0;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) along[h] += dots[half][t];
    along[h] *= norms[t] * norms[t];
  }
  each_two(tile, sums, [&](int h, uint32_t word, float& x, float& y) { x -= low_of(word) * along[h], y -= high_of(word) * along[h]; });
}

static inline void put_key_sums(char* tile, KeySums& sums) {
  each_slice<SLICES>([&](int j, int slice) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        put_word(tile, KeyTile::PITCH, 8 * h, 16 * slice + 8 * n, pack_pair<Element>(sums[j][n][2 * h], sums[j][n][2 * h + 1]));
  });
}
// Rows of a tile, of tokens below `count`, keys below `keys`.
static inline void store_tile(const char* tile, const GradientRows& to, int token, int count, int keys) {
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * KEYS / 8; i += THREADS) {
    const int row = i / (KEYS / 8), key = i % (KEYS / 8) * 8;
    if (token + row < count && key < keys)
      store_pack(static_cast<Element*>(to.first) + (token + row) * to.stride + key,
                 load_pack<8>(reinterpret_cast<const Element*>(tile) + row * KeyTile::PITCH + key));
  }
}
static inline void store_sums(KeySums& sums, const GradientRows& to, int token, int count, int keys) {
  each_slice<SLICES>([&](int j, int slice) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int t = token + 16 * row_slice() + 8 * h + lane() / 4, key = 16 * slice + 8 * n + lane() % 4 * 2;
        if (t < count && key < keys) to.store_two(t, key, sums[j][n][2 * h], sums[j][n][2 * h + 1]);
      }
  });
}

$if narrow and delta
// The warp's block of weights of pairs as two halves a number: to `rest` what rounding took from the first.
static inline void put_two_halves(PairUnits& units, char* square, char* rest, int slice, const float (&sums)[2][4]) {
  const Unit unit = common_unit(sums);
  float scaled[2][4], taken[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    scaled[i / 4][i % 4] = sums[i / 4][i % 4] * unit.of;
    taken[i / 4][i % 4] = scaled[i / 4][i % 4] - to_float(from_float<Element>(scaled[i / 4][i % 4]));
  }
  put_pair_of(square, slice, scaled);
  put_pair_of(rest, slice, taken);
  if (lane() == 0) units.inverses[row_slice()][slice] = unit.inverse;
}

$end
// What a state holds for the gradient after the chunk: the products of some columns of both, by a thread.
$if narrow  // inverse(k): of the products' units, of 16 columns
template <class Inverse> static inline float flow_through(const char* before, const char* after, Inverse inverse) {
$else
static inline float flow_through(const char* before, const char* after) {
$end
  float sum = 0;
#pragma unroll 2
  for (int i = thread_x(); i < COLUMNS * KEYS / 8; i += THREADS) {
    const int at = i / (KEYS / 8) * StateTile::PITCH + i % (KEYS / 8) * 8;
    float x[8] = {}, y[8] = {};
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const auto s = load_pack<8>(reinterpret_cast<const Element*>(before + part * StateTile::BYTES) + at);
      const auto d = load_pack<8>(reinterpret_cast<const Element*>(after + part * StateTile::BYTES) + at);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] += to_float(s.at[j]), y[j] += to_float(d.at[j]);
    }
$if narrow
    float own = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) own += x[j] * y[j];
    sum += own * inverse(i / (KEYS / 8) / 16);
$else
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += x[j] * y[j];
$end
  }
  return sum;
}
