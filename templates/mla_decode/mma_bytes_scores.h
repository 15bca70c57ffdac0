// Scores of mla_decode on bytes in registers. A part of decode_mma_bytes.gpu.cu, whose constants it uses.
#pragma once
#include "mla_decode/byte_powers.h"

// A warp's: the sums over block warp() % BLOCKS of features; of all heads and the keys of half warp() / BLOCKS of a tile, or where there are more row tiles, of all keys and such a half
// of the heads. Operands A are queries, in registers all the time, or in shared memory. Lane l's features of 16 latent ones are 4 (l % 4) to 4 (l % 4) + 3, those of its four
// bytes of a key, where the instruction has two and two: their order is the same on both sides.
struct Scores {
  static constexpr bool BY_KEYS = ROW_TILES == 1, HELD = ROW_TILES <= 2;
  static constexpr int CHUNKS = 128 / 16, ROW = BY_KEYS ? 1 : ROW_TILES / 2, PAIRS = BY_KEYS ? KEYS / 32 : KEYS / 16;  // row tiles; 16 keys
  typedef uint32_t Operand[4];
  const Places& at;
  Operand held[HELD ? Places::SLICES : 1];  // latent features, then rope
  float inverse[ROW][2];                    // of what a row's queries are multiplied by

  static int block() { return warp() % BLOCKS; }
  static int half() { return warp() / BLOCKS; }
  static int first_row() { return BY_KEYS ? 0 : half() * (ROW * 16); }
  static int first_key() { return BY_KEYS ? half() * (KEYS / 2) : 0; }

  Scores(const Places& places, const Element* latent, int64_t latent_stride, const Element* rope, int64_t rope_stride, int heads) : at(places) {
#pragma unroll
    for (int n = 0; n < ROW; ++n) {
      Operand made[Places::SLICES];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row() + n * 16 + lane() / 4 + 8 * h;
        inverse[n][h] = make_row(made, h, row < heads, latent + row * latent_stride, rope + row * rope_stride);
      }
#pragma unroll
      for (int slice = 0; slice < Places::SLICES; ++slice) {
        const Pack<uint32_t, 4> words{{made[slice][0], made[slice][1], made[slice][2], made[slice][3]}};
        if constexpr (HELD)
          for (int i = 0; i < 4; ++i) held[slice][i] = words.at[i];
        else
          store_pack(reinterpret_cast<uint32_t*>(at.queries(n, slice)), words);
      }
    }
    sync_warp();
  }
  // The inverse of what latent features are multiplied by.
  static float make_row(Operand (&made)[Places::SLICES], int h, bool some, const Element* latent, const Element* rope) {
    const int l = lane() % 4;
    Pack<Element, 4> x[CHUNKS] = {};
    float largest = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (some) x[c] = load_pack<4>(latent + block() * 128 + c * 16 + l * 4);
#pragma unroll
      for (int k = 0; k < 4; ++k) largest = larger_of(largest, size_of(to_float(x[c].at[k])));
    }
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
    const int exponent = 8 - exponent_of(largest, 100);
    const float unit = power_of_two(exponent);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
#pragma unroll
      for (int k = 0; k < 2; ++k) made[c][h + 2 * k] = pack_pair<::half>(to_float(x[c].at[2 * k]) * unit, to_float(x[c].at[2 * k + 1]) * unit);
#pragma unroll
    for (int k = 0; k < 2; ++k) made[CHUNKS][h + 2 * k] = some ? *reinterpret_cast<const uint32_t*>(rope + block() * (ROPE / BLOCKS) + l * 2 + k * 8) : 0;
    return power_of_two(-exponent);
  }
  void load_operand(Operand& a, int n, int slice) const {
    if constexpr (HELD) {
      for (int i = 0; i < 4; ++i) a[i] = held[slice][i];
    } else {
      const Pack<uint32_t, 4> words = load_pack<4>(reinterpret_cast<const uint32_t*>(at.queries(n, slice)));
      for (int i = 0; i < 4; ++i) a[i] = words.at[i];
    }
  }

  void make(int tile) const {
    float s[ROW][2 * PAIRS][4] = {};
    const int l = lane();
    // Matrices of the instruction: two chunks of eight keys, then of the next eight.
    const SharedPointer from = at.row(tile, first_key() + l / 16 * 8 + l % 8) + l / 8 % 2 * 16;
#pragma unroll HELD ? CHUNKS : 1
    for (int c = 0; c < CHUNKS; c += 2) {
      Operand a[ROW][2];
#pragma unroll
      for (int n = 0; n < ROW; ++n) load_operand(a[n][0], n, c), load_operand(a[n][1], n, c + 1);
#pragma unroll
      for (int pair = 0; pair < PAIRS; ++pair) {
        uint32_t bytes[4];
        load_matrices(bytes, from + (pair * 16 * Places::ROW + block() * 128 + c * 16));
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          uint32_t low, high;
          widen_bytes<float8_e4m3>(bytes[m], low, high);
#pragma unroll
          for (int n = 0; n < ROW; ++n) mma_16x8x16<::half>(s[n][2 * pair + m / 2], a[n][m % 2], low, high);
        }
      }
    }
    Operand a[ROW];
#pragma unroll
    for (int n = 0; n < ROW; ++n) load_operand(a[n], n, CHUNKS);
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
      uint32_t keys[4];
      load_matrices(keys, from + (pair * 16 * Places::ROW + R + 4 * BLOCKS + block() * (2 * ROPE / BLOCKS)));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int key = first_key() + pair * 16 + m * 8 + l % 4 * 2;
        const float scale[2] = {at.scales(tile, key)[block()], at.scales(tile, key + 1)[block()]};
#pragma unroll
        for (int n = 0; n < ROW; ++n) {
          float(&sum)[4] = s[n][2 * pair + m];
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] *= inverse[n][e / 2] * scale[e % 2];
          mma_16x8x16<bfloat16>(sum, a[n], keys[2 * m], keys[2 * m + 1]);
#pragma unroll
          for (int h = 0; h < 2; ++h) store_pack(at.scores(block(), first_row() + n * 16 + l / 4 + 8 * h) + key, Pack<float, 2>{{sum[2 * h], sum[2 * h + 1]}});
        }
      }
    }
  }
};
