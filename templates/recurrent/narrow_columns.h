// GPU vocabulary: a lane's columns of one head's state of bf16 in memory, f32 in registers: rows part, part + PARTS, ... Rounded once, after the
// call's last token.
#pragma once
#include "device/gpu.h"

struct NarrowColumns {
  bfloat16* data;
  int64_t stride;
  NarrowColumns(const View& view, int64_t sequence, int64_t head, int64_t column)
      : data(static_cast<bfloat16*>(view.data) + sequence * view.strides[0] + head * view.strides[1] + column), stride(view.strides[2]) {}

  // whole_packs: every row's columns are whole and aligned packs.
  template <int PARTS, int KEYS, int VEC>
  void load(float (&state)[KEYS][VEC], int keys, int part, int columns, bool whole_packs) const {
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const int64_t i = j * PARTS + part;
      Pack<bfloat16, VEC> row;
#pragma unroll
      for (int c = 0; c < VEC; ++c) row.at[c] = from_float<bfloat16>(0.0f);
      if (i < keys) {
        if (whole_packs && columns == VEC) {
          row = load_pack<VEC>(data + i * stride);
        } else {
#pragma unroll
          for (int c = 0; c < VEC; ++c)
            if (c < columns) row.at[c] = data[i * stride + c];
        }
      }
#pragma unroll
      for (int c = 0; c < VEC; ++c) state[j][c] = to_float(row.at[c]);
    }
  }

  template <int PARTS, int KEYS, int VEC>
  void store(const float (&state)[KEYS][VEC], int keys, int part, int columns, bool whole_packs) const {
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const int64_t i = j * PARTS + part;
      if (i >= keys) continue;
      Pack<bfloat16, VEC> row;
#pragma unroll
      for (int c = 0; c < VEC; ++c) row.at[c] = from_float<bfloat16>(state[j][c]);
      if (whole_packs && columns == VEC) {
        store_pack(data + i * stride, row);
      } else {
#pragma unroll
        for (int c = 0; c < VEC; ++c)
          if (c < columns) data[i * stride + c] = row.at[c];
      }
    }
  }
};
