// mean_pooling, backward, for any strides: one element at a time. Takes what no faster variant takes.
#include "device/cpu.h"

using Element = ${ctype(E)};
constexpr bool PACKED = ${form == 'packed' or form == 'packed_chunks'};  // sequences end to end, bounded by cum_seqlens
constexpr bool CHUNKED = ${form == 'chunks' or form == 'packed_chunks'};  // a row is a chunk of a sequence, not all of it
constexpr bool MASKED = ${masked};
constexpr int FIRST_FEATURE_DX = PACKED ? 1 : 2;                     // dx's dimensions before its features: [T] or [B, S]
constexpr int FIRST_FEATURE_DOUT = CHUNKED && !PACKED ? 2 : 1;  // dout's: [rows], or [B, chunks]

// Element offset of feature c: its index in the dimensions from `first` on, innermost fastest.
static int64_t feature_offset(const View& tensor, int first, int64_t c) {
  int64_t offset = 0;
  for (int64_t d = tensor.rank - 1; d >= first; --d) {
    offset += c % tensor.shape[d] * tensor.strides[d];
    c /= tensor.shape[d];
  }
  return offset;
}

// Item x: sequence x, all its rows; in the packed form the item after the last sequence clears the tokens that no sequence holds.
static void mean_pooling_bwd(${parameters('mean_pooling_bwd')}, const Group& group) {
  const int64_t sequence = group.x;
  const bool leftover = PACKED && sequence == sequences;
  int64_t begin = 0, length = token_count, first_row = 0;
  if (PACKED) {
    begin = cum_seqlens[sequence];
    length = (leftover ? token_count : cum_seqlens[sequence + 1]) - begin;
    for (int64_t n = 0; CHUNKED && n < sequence; ++n) first_row += (cum_seqlens[n + 1] - cum_seqlens[n] + chunk_size - 1) / chunk_size;
  }
  Element* tokens = static_cast<Element*>(dx_view.data) + (PACKED ? begin * dx_view.strides[0] : sequence * dx_view.strides[0]);
  const int64_t token_stride = dx_view.strides[FIRST_FEATURE_DX - 1];
  const int64_t rows = CHUNKED && !leftover ? (length + chunk_size - 1) / chunk_size : 1;
  const int64_t row_tokens = CHUNKED && !leftover ? chunk_size : length;

  for (int64_t row = 0; row < rows; ++row) {
    const Element* means = static_cast<const Element*>(dout_view.data);
    if (CHUNKED && PACKED) means += (first_row + row) * dout_view.strides[0];
    if (CHUNKED && !PACKED) means += sequence * dout_view.strides[0] + row * dout_view.strides[1];
    if (!CHUNKED) means += sequence * dout_view.strides[0];
    const int64_t first = row * row_tokens, end = first + row_tokens < length ? first + row_tokens : length;
    int64_t count = 0;
    for (int64_t t = first; t < end; ++t) count += MASKED ? mask[sequence * mask_stride + t] : 1;
    for (int64_t c = 0; c < C; ++c) {
      Element share = from_float<Element>(0);
      if (count > 0 && !leftover) {
        share = from_float<Element>(to_float(means[feature_offset(dout_view, FIRST_FEATURE_DOUT, c)]) / static_cast<float>(count));
      }
      Element* feature = tokens + feature_offset(dx_view, FIRST_FEATURE_DX, c);
      for (int64_t t = first; t < end; ++t) {
        feature[t * token_stride] = MASKED && !mask[sequence * mask_stride + t] ? from_float<Element>(0) : share;
      }
    }
  }
}
