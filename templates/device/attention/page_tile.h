// GPU vocabulary of paged attention: tiles of keys or values in shared memory, of 16-bit or of 8-bit elements, and their products with
// query rows. 8-bit elements become halves between shared memory and the product.
//
// Keys, and in the second product features, are the 16 rows of a product; query rows are its 8 columns. So lane 4 g + t has of each
//   score tile s    keys g (s[0], s[1]) and g + 8 (s[2], s[3]) of rows 2 t and 2 t + 1
//   output tile o   the features output_feature(0) (o[0], o[1]) and output_feature(1) (o[2], o[3]) of rows 2 t and 2 t + 1
//   query slice q   features query_feature(i), and the one after it, in q[i], of row g
#pragma once
#include "device/gpu.h"
#include "device/number/bytes_to_halves.h"

// Score or output tiles of ROW_TILES times 8 rows.
template <int TILES, int ROW_TILES> static inline void clear(float (&x)[TILES][ROW_TILES][4]) {
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[m][r][i] = 0;
}
// Of row 8 r + 2 t + i, what this lane has of it: the largest; all times a factor.
template <int TILES, int ROW_TILES> static inline float largest_of_row(const float (&x)[TILES][ROW_TILES][4], int r, int i) {
  float largest = -INFINITE;
#pragma unroll
  for (int m = 0; m < TILES; ++m) largest = larger_of(largest, larger_of(x[m][r][i], x[m][r][i + 2]));
  return largest;
}
template <int TILES, int ROW_TILES> static inline void multiply_row(float (&x)[TILES][ROW_TILES][4], int r, int i, float factor) {
#pragma unroll
  for (int m = 0; m < TILES; ++m) x[m][r][i] *= factor, x[m][r][i + 2] *= factor;
}

// KEYS keys of FEATURES features, both multiples of 16; 8-bit: KEYS a multiple of 32. Eight rows lie in different banks at one column:
// chunks of 16 bytes are in another order in each, or where there are too few of them the rows are an odd number of chunks apart.
template <class T, int KEYS, int FEATURES> struct PageTile {
  static constexpr bool WIDE = sizeof(T) == 2;
  static constexpr int CHUNKS = FEATURES * static_cast<int>(sizeof(T)) / 16;
  static constexpr bool SWIZZLED = CHUNKS % 8 == 0;
  static constexpr int PITCH = (SWIZZLED ? CHUNKS : CHUNKS | 1) * 16, BYTES = KEYS * PITCH;
  static constexpr int TILES = KEYS / 16, SLICES = FEATURES / 16;
  SharedPointer base;

  SharedPointer at(int row, int chunk) const { return base + row * PITCH + (SWIZZLED ? chunk ^ (row & 7) : chunk) * 16; }

  // i rows below the chunk at `first`, for rows that are a multiple of STEP, a power of two, apart, from one of the first STEP on.
  template <int STEP> static SharedPointer below(SharedPointer first, int i) {
    static_assert((STEP & (STEP - 1)) == 0, "rows have other swizzles");
    return (SWIZZLED ? first ^ (i & 7) * 16 : first) + i * PITCH;
  }

  static int query_feature(int i) { return WIDE ? i * 8 + lane() % 4 * 2 : lane() % 4 * 4 + i * 2; }
  static int output_feature(int i) { return WIDE ? lane() / 4 + i * 8 : lane() / 4 * 2 + i; }

  // All products of the tile's keys with `ROW_TILES` times 8 rows.
  template <class Product, int ROW_TILES>
  void multiply(float (&s)[TILES][ROW_TILES][4], const uint32_t (&q)[SLICES][ROW_TILES][2]) const {
    clear(s);
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) multiply_keys<Product>(s, q[slice], slice);
  }

  // s[m][r] += the products of one slice of 16 features of keys 16 m ... and rows 8 r ...
  template <class Product, int ROW_TILES>
  void multiply_keys(float (&s)[TILES][ROW_TILES][4], const uint32_t (&q)[ROW_TILES][2], int slice) const {
    if constexpr (WIDE) {
      const SharedPointer from = at(lane() % 16, slice * 2 + lane() / 16);
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
        uint32_t a[4];
        load_matrices(a, from + 16 * m * PITCH);
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r) mma_16x8x16<Product>(s[m][r], a, q[r][0], q[r][1]);
      }
    } else {
      const SharedPointer from = at(lane(), slice);
#pragma unroll
      for (int m = 0; m < TILES; m += 2) {
        uint32_t bytes[4];
        load_matrices(bytes, from + 16 * m * PITCH);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t a[4];
          widen_bytes<T>(bytes[2 * i], a[0], a[2]);
          widen_bytes<T>(bytes[2 * i + 1], a[1], a[3]);
#pragma unroll
          for (int r = 0; r < ROW_TILES; ++r) mma_16x8x16<Product>(s[m + i][r], a, q[r][0], q[r][1]);
        }
      }
    }
  }

  // o[f][r] += the weights p[m][r] of keys 16 m ... times features 16 f ... of their values.
  template <class Product, int ROW_TILES>
  void add_values(float (&o)[SLICES][ROW_TILES][4], const uint32_t (&p)[TILES][ROW_TILES][2]) const {
#pragma unroll
    for (int f = 0; f < SLICES; ++f) {
      if constexpr (WIDE) {
        const SharedPointer from = at(lane() % 8 + lane() / 16 * 8, f * 2 + lane() / 8 % 2);
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
          uint32_t a[4];
          load_matrices_transposed(a, from + 16 * m * PITCH);
#pragma unroll
          for (int r = 0; r < ROW_TILES; ++r) mma_16x8x16<Product>(o[f][r], a, p[m][r][0], p[m][r][1]);
        }
      } else {
        const SharedPointer from = at(lane(), f);
#pragma unroll
        for (int m = 0; m < TILES; m += 2) {
          uint32_t bytes[4];
          load_matrices_transposed(bytes, from + 16 * m * PITCH);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            uint32_t a[4];
            widen_bytes<T>(swap_middle_bytes(bytes[2 * i]), a[0], a[1]);
            widen_bytes<T>(swap_middle_bytes(bytes[2 * i + 1]), a[2], a[3]);
#pragma unroll
            for (int r = 0; r < ROW_TILES; ++r) mma_16x8x16<Product>(o[f][r], a, p[m + i][r][0], p[m + i][r][1]);
          }
        }
      }
    }
  }
};
