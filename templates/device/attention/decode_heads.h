// CPU vocabulary of decoding, one query row a head: queries of any type, results. Part of a template, which has defined
// before: Rows, a DecodeRows of ROWS rows, and DIM, the features of a row of out.
#pragma once

template <class T> static void load_query(Rows& rows, const View& view, int64_t sequence, int64_t head, int64_t count) {
  const T* from = static_cast<const T*>(view.data) + sequence * view.strides[0] + head * view.strides[1];
  for (int r = 0; r < ROWS; ++r) rows.load_query(r, r < count ? from + r * view.strides[1] : nullptr);
}

// Where a row's result goes, and what it is multiplied by.
struct Result {
  const View &out, &lse;
  int64_t type;

  void store(int64_t sequence, int64_t head, const float* values, float maximum, float sum, float scale) const {
    const float factor = sum == 0 ? 0 : scale / sum;
    const int64_t at = sequence * out.strides[0] + head * out.strides[1];
    if (type == TYPE_F32) store_row<DIM>(values, factor, static_cast<float*>(out.data) + at);
    if (type == TYPE_F16) store_row<DIM>(values, factor, static_cast<half*>(out.data) + at);
    if (type == TYPE_BF16) store_row<DIM>(values, factor, static_cast<bfloat16*>(out.data) + at);
    if (is_given(lse)) static_cast<float*>(lse.data)[sequence * lse.strides[0] + head] = lse_of(maximum, sum);
  }
};
