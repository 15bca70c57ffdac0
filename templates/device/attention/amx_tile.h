// CPU vocabulary: both products of a tile of attention on AMX tiles of bf16.
//
//   scores  S^T[key][row]     = sum over d   of K[key][d]       * Q^T[d][row]
//   output  O^T[feature][row] = sum over key of V^T[feature][key] * P^T[key][row]
// Left operands lie row by row (K as it is, V transposed once a block), right operands in pairs along the sum. Rows lie along the
// vectors, so the softmax between the products is attention_tile.h's. Weights are rounded to bf16 for the second product, and summed in f32
// before that. Part of a template, which has defined before: D_PAD and OUTPUT_ROWS, the features of keys and of values up to a multiple of 32,
// DV, VECTORS (2), BLOCK_M (32), BLOCK_N, and Chunk, which has
//   keys [BLOCK_N][D_PAD], values [OUTPUT_ROWS][BLOCK_N], weights [BLOCK_N / 2][VECTORS]: two bf16 a word, of keys 2 p and 2 p + 1.
#pragma once
#include "device/attention/attention_tile.h"
#include "device/matrix/amx.h"

// Scores of keys [t.begin, t.end), in steps of 32 keys.
static void multiply_keys(const Chunk& c, const Tile<VECTORS>& t, const float* queries) {
  constexpr int64_t ROW = BLOCK_M * 4, KEY = D_PAD * 2;
  for (int64_t j = t.begin; j < t.end; j += 32) {
    amx_zero<0>(), amx_zero<1>(), amx_zero<2>(), amx_zero<3>();
    for (int64_t d = 0; d < D_PAD; d += 32) {
      amx_load<4>(c.keys + j * D_PAD + d, KEY);
      amx_load<6>(queries + d / 2 * BLOCK_M, ROW);
      amx_multiply<0, 4, 6>();
      amx_load<7>(queries + d / 2 * BLOCK_M + 16, ROW);
      amx_multiply<1, 4, 7>();
      amx_load<5>(c.keys + (j + 16) * D_PAD + d, KEY);
      amx_multiply<2, 5, 6>();
      amx_multiply<3, 5, 7>();
    }
    float* to = t.scores + j * BLOCK_M;
    amx_store<0>(to, ROW), amx_store<1>(to + 16, ROW);
    amx_store<2>(to + 16 * BLOCK_M, ROW), amx_store<3>(to + 16 * BLOCK_M + 16, ROW);
  }
}

static void take_maxima(Tile<VECTORS>& t) {
  for (int v = 0; v < VECTORS; ++v) {
    Floats most[2] = {splat(-INFINITE), splat(-INFINITE)};
    for (int64_t j = t.begin; j + 2 <= t.end; j += 2) {
      most[0] = larger_of(load_floats(t.at(j, v)), most[0]);
      most[1] = larger_of(load_floats(t.at(j + 1, v)), most[1]);
    }
    if (t.end % 2) most[0] = larger_of(load_floats(t.at(t.end - 1, v)), most[0]);
    store_floats(t.largest + v * LANES, larger_of(most[0], most[1]));
  }
}

// Weights to pairs of bf16, rounded half up; zeros from t.end up to a multiple of 32.
static void pack_weights(const Chunk& c, const Tile<VECTORS>& t) {
  const int64_t full = t.end / 2;
  for (int64_t p = t.begin / 2; p < (t.end + 31) / 32 * 16; ++p)
    for (int v = 0; v < VECTORS; ++v) {
      const Words even = p < full || 2 * p < t.end ? reinterpret_cast<Words>(load_floats(t.at(2 * p, v))) + 0x8000 : Words{};
      const Words odd = p < full ? reinterpret_cast<Words>(load_floats(t.at(2 * p + 1, v))) + 0x8000 : Words{};
      c.weights[p * VECTORS + v] = even >> 16 | (odd & 0xffff0000);
    }
}

// outputs += weights * values.
static void multiply_values(const Chunk& c, const Tile<VECTORS>& t) {
  constexpr int64_t ROW = BLOCK_M * 4, FEATURE = BLOCK_N * 2;
  for (int64_t d = 0; d < OUTPUT_ROWS; d += 32) {
    float* to = t.outputs + d * BLOCK_M;
    amx_load<0>(to, ROW), amx_load<1>(to + 16, ROW);
    amx_load<2>(to + 16 * BLOCK_M, ROW), amx_load<3>(to + 16 * BLOCK_M + 16, ROW);
    for (int64_t j = t.begin; j < t.end; j += 32) {
      amx_load<4>(c.values + d * BLOCK_N + j, FEATURE);
      amx_load<6>(c.weights + j / 2 * VECTORS, ROW);
      amx_multiply<0, 4, 6>();
      amx_load<7>(c.weights + j / 2 * VECTORS + 1, ROW);
      amx_multiply<1, 4, 7>();
      amx_load<5>(c.values + (d + 16) * BLOCK_N + j, FEATURE);
      amx_multiply<2, 5, 6>();
      amx_multiply<3, 5, 7>();
    }
    amx_store<0>(to, ROW), amx_store<1>(to + 16, ROW);
    amx_store<2>(to + 16 * BLOCK_M, ROW), amx_store<3>(to + 16 * BLOCK_M + 16, ROW);
  }
}

// The same, where a value behind a weight of 0 counts as 0 even if it is NaN: another row's key, masked in this one.
static void __attribute__((noinline)) add_values_guarded(const Chunk& c, const Tile<VECTORS>& t) {
  for (int64_t d = 0; d < DV; ++d)
    for (int v = 0; v < VECTORS; ++v) {
      Floats sum = {};
      for (int64_t j = t.begin; j < t.end; ++j) {
        const Floats weight = load_floats(t.at(j, v));
        sum += weight == Floats{} ? Floats{} : weight * to_float(c.values[d * BLOCK_N + j]);
      }
      float* output = t.outputs + d * BLOCK_M + v * LANES;
      store_floats(output, load_floats(output) + sum);
    }
}
