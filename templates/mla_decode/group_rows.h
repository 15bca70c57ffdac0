// CPU vocabulary of mla_decode: which query tokens and heads are rows, how they come into a group and where their results go. Part of a template, which
// has defined before: R, ROPE, GROUP; and RowGroup.
#pragma once
#include "device/attention/attention.h"

struct RowsOfCall {
  const View &latent, &rope, &out, &lse;
  bool listed;  // each query token has keys of its own: the rows are its heads; else those of all tokens of a sequence
  int64_t type;

  int64_t queries() const { return latent.shape[1]; }
  int64_t heads() const { return latent.shape[2]; }
  int64_t rows() const { return listed ? heads() : queries() * heads(); }
  // Of item z of a launch.
  int64_t sequence(int64_t z) const { return listed ? z / queries() : z; }
  int64_t query(int64_t z) const { return listed ? z % queries() : 0; }

  // Rows from `first` on of item z, whose keys are `length`; past the last one, zeros that see what it sees.
  void load(RowGroup& group, int64_t z, int64_t first, int64_t length) const {
    group.start();
    for (int r = 0; r < GROUP; ++r) {
      const bool padding = first + r >= rows();
      const Place at = place(z, padding ? rows() - 1 : first + r);
      group.softmax.limit[r] = static_cast<int32_t>(listed ? length : visible_tokens(length, queries(), at.query));
      if (padding) continue;
$if not amx  // which takes bf16 alone
      if (type == TYPE_F32) group.load_row(r, row_of<float>(latent, at), row_of<float>(rope, at));
      if (type == TYPE_F16) group.load_row(r, row_of<half>(latent, at), row_of<half>(rope, at));
$end
      if (type == TYPE_BF16) group.load_row(r, row_of<bfloat16>(latent, at), row_of<bfloat16>(rope, at));
    }
    group.end_loading();
  }

  // Features [from, from + count) of rows from `first` on, of values [count][GROUP]; with the first of them the rows' LSE.
  void store(const float* values, const float* maximum, const float* sum, int64_t z, int64_t first, int64_t from, int64_t count) const {
    for (int r = 0; r < GROUP && first + r < rows(); ++r) {
      const Place at = place(z, first + r);
      const float factor = sum[r] == 0 ? 0 : 1 / sum[r];
      const int64_t to = at.sequence * out.strides[0] + at.query * out.strides[1] + at.head * out.strides[2] + from;
      if (type == TYPE_F32) store_features(static_cast<float*>(out.data) + to, values + r, factor, count);
      if (type == TYPE_F16) store_features(static_cast<half*>(out.data) + to, values + r, factor, count);
      if (type == TYPE_BF16) store_features(static_cast<bfloat16*>(out.data) + to, values + r, factor, count);
      if (from == 0 && is_given(lse))
        static_cast<float*>(lse.data)[at.sequence * lse.strides[0] + at.head * lse.strides[1] + at.query] = lse_of(maximum[r], sum[r]);
    }
  }

 private:
  struct Place {
    int64_t sequence, query, head;
  };
  Place place(int64_t z, int64_t row) const { return {sequence(z), listed ? query(z) : row / heads(), row % heads()}; }

  template <class T> static const T* row_of(const View& view, const Place& at) {
    return static_cast<const T*>(view.data) + at.sequence * view.strides[0] + at.query * view.strides[1] + at.head * view.strides[2];
  }
  template <class T> static void store_features(T* to, const float* values, float factor, int64_t count) {
    for (int64_t d = 0; d < count; ++d) to[d] = from_float<T>(values[d * GROUP] * factor);
  }
};
