// GPU vocabulary of paged attention: tiles of keys or values in shared memory, of 16-bit or of 8-bit elements, and their products with
// query rows. 8-bit elements become halves between shared memory and the product.
//
// Operand A of the first product has its features in the order in which load_matrices brings those of the keys: see `feature`.
#pragma once
#include "device/gpu.h"
#include "device/widen_bytes.h"

// ROWS keys of FEATURES features, both multiples of 16; 8-bit: ROWS a multiple of 32. Eight rows lie in different banks at one column:
// chunks of 16 bytes are in another order in each, or where there are too few of them the rows are an odd number of chunks apart.
template <class T, int ROWS, int FEATURES> struct PageTile {
  static constexpr bool WIDE = sizeof(T) == 2;
  static constexpr int CHUNKS = FEATURES * static_cast<int>(sizeof(T)) / 16;  // of 16 bytes, a row
  static constexpr bool SWIZZLED = CHUNKS % 8 == 0;
  static constexpr int PITCH = (SWIZZLED ? CHUNKS : CHUNKS | 1) * 16, BYTES = ROWS * PITCH;
  static constexpr int TILES = ROWS / 8, FEATURE_TILES = FEATURES / 8;
  SharedPointer base;

  SharedPointer at(int row, int chunk) const { return base + row * PITCH + (SWIZZLED ? chunk ^ (row & 7) : chunk) * 16; }

  // Which features registers 0 and 2 of operand A have, of a slice of 16: a pair from this one on.
  static int feature(int half_slice) { return WIDE ? half_slice * 8 + lane() % 4 * 2 : lane() % 4 * 4 + half_slice * 2; }
  // The feature, of a slice of 16, that element `i` (0 or 1) of product tile `f` (0 or 1) of the slice belongs to.
  static int output_feature(int f, int i) { return WIDE ? f * 8 + lane() % 4 * 2 + i : lane() % 4 * 4 + i * 2 + f; }

  // s[n] += the products of one slice of 16 features with keys 8 n ...
  template <class Product> void multiply_keys(float (&s)[TILES][4], const uint32_t (&a)[4], int slice) const {
    if constexpr (WIDE) {
      const SharedPointer from = at(lane() % 8 + lane() / 16 * 8, slice * 2 + lane() / 8 % 2);
#pragma unroll
      for (int n = 0; n < TILES; n += 2) {
        uint32_t b[4];
        load_matrices(b, from + 8 * n * PITCH);
        mma_16x8x16<Product>(s[n], a, b[0], b[1]);
        mma_16x8x16<Product>(s[n + 1], a, b[2], b[3]);
      }
    } else {
      const SharedPointer from = at(lane(), slice);
#pragma unroll
      for (int n = 0; n < TILES; n += 4) {
        uint32_t bytes[4];
        load_matrices(bytes, from + 8 * n * PITCH);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t low, high;
          widen_bytes<T>(bytes[i], low, high);
          mma_16x8x16<Product>(s[n + i], a, low, high);
        }
      }
    }
  }

  // o[f] += the weights a[n / 2] of keys 8 n .. 8 n + 15 times their values.
  template <class Product> void add_values(float (&o)[FEATURE_TILES][4], const uint32_t (&a)[TILES / 2][4]) const {
    if constexpr (WIDE) {
#pragma unroll
      for (int f = 0; f < FEATURE_TILES; f += 2) {
        const SharedPointer from = at(lane() % 16, f + lane() / 16);
#pragma unroll
        for (int n = 0; n < TILES; n += 2) {
          uint32_t b[4];
          load_matrices_transposed(b, from + 8 * n * PITCH);
          mma_16x8x16<Product>(o[f], a[n / 2], b[0], b[1]);
          mma_16x8x16<Product>(o[f + 1], a[n / 2], b[2], b[3]);
        }
      }
    } else {
#pragma unroll
      for (int f = 0; f < FEATURE_TILES; f += 2) {
        const SharedPointer from = at(lane(), f / 2);
#pragma unroll
        for (int n = 0; n < TILES; n += 4) {
          uint32_t bytes[4], even[4], odd[4];
          load_matrices_transposed(bytes, from + 8 * n * PITCH);
#pragma unroll
          for (int i = 0; i < 4; ++i) widen_bytes<T>(swap_middle_bytes(bytes[i]), even[i], odd[i]);
#pragma unroll
          for (int i = 0; i < 4; i += 2) {
            mma_16x8x16<Product>(o[f], a[n / 2 + i / 2], even[i], even[i + 1]);
            mma_16x8x16<Product>(o[f + 1], a[n / 2 + i / 2], odd[i], odd[i + 1]);
          }
        }
      }
    }
  }
};
