// mean_pooling, forward, for any strides: one element at a time, in the order of the definition. Takes what no faster variant takes.
#include "device/cpu.h"

using Element = ${ctype(E)};
constexpr bool PACKED = ${form == 'packed' or form == 'packed_chunks'};  // sequences end to end, bounded by cum_seqlens
constexpr bool CHUNKED = ${form == 'chunks' or form == 'packed_chunks'};  // a row is a chunk of a sequence, not all of it
constexpr bool MASKED = ${masked};
constexpr int FIRST_FEATURE_X = PACKED ? 1 : 2;                     // x's dimensions before its features: [T] or [B, S]
constexpr int FIRST_FEATURE_OUT = CHUNKED && !PACKED ? 2 : 1;  // out's: [rows], or [B, chunks]

// Element offset of feature c: its index in the dimensions from `first` on, innermost fastest.
static int64_t feature_offset(const View& tensor, int first, int64_t c) {
  int64_t offset = 0;
  for (int64_t d = tensor.rank - 1; d >= first; --d) {
    offset += c % tensor.shape[d] * tensor.strides[d];
    c /= tensor.shape[d];
  }
  return offset;
}

$if form == 'packed_chunks'
// Rows that out has after the chunks of the sequences.
static void clear_rows_after(const int32_t* cum_seqlens, int64_t sequences, int64_t chunk_size, const View& out, int64_t C) {
  int64_t row = 0;
  for (int64_t n = 0; n < sequences; ++n) row += (cum_seqlens[n + 1] - cum_seqlens[n] + chunk_size - 1) / chunk_size;
  for (; row < out.shape[0]; ++row)
    for (int64_t c = 0; c < C; ++c)
      static_cast<Element*>(out.data)[row * out.strides[0] + feature_offset(out, FIRST_FEATURE_OUT, c)] = from_float<Element>(0);
}

$end
// Item x: sequence x, all its rows. Packed chunks have an item more, for rows of out after the last chunk.
static void mean_pooling(${parameters('mean_pooling')}, const Group& group) {
  const int64_t sequence = group.x;
  int64_t begin = 0, length = sequence_tokens, first_row = 0;
  if (PACKED) {
$if form == 'packed_chunks'
    if (sequence + 1 == group.grid_x) return clear_rows_after(cum_seqlens, sequence, chunk_size, out_view, C);
$end
    begin = cum_seqlens[sequence];
    length = cum_seqlens[sequence + 1] - begin;
    for (int64_t n = 0; CHUNKED && n < sequence; ++n) first_row += (cum_seqlens[n + 1] - cum_seqlens[n] + chunk_size - 1) / chunk_size;
  }
  const Element* tokens = static_cast<const Element*>(x_view.data) + (PACKED ? begin * x_view.strides[0] : sequence * x_view.strides[0]);
  const int64_t token_stride = x_view.strides[FIRST_FEATURE_X - 1];
  const int64_t rows = CHUNKED ? (length + chunk_size - 1) / chunk_size : 1, row_tokens = CHUNKED ? chunk_size : length;

  for (int64_t row = 0; row < rows; ++row) {
    Element* means = static_cast<Element*>(out_view.data);
    if (CHUNKED && PACKED) means += (first_row + row) * out_view.strides[0];
    if (CHUNKED && !PACKED) means += sequence * out_view.strides[0] + row * out_view.strides[1];
    if (!CHUNKED) means += sequence * out_view.strides[0];
    const int64_t end = (row + 1) * row_tokens < length ? (row + 1) * row_tokens : length;
    for (int64_t c = 0; c < C; ++c) {
      const Element* feature = tokens + feature_offset(x_view, FIRST_FEATURE_X, c);
      double sum = 0;
      int64_t count = 0;
      for (int64_t t = row * row_tokens; t < end; ++t) {
        if (MASKED && !mask[sequence * mask_stride + t]) continue;
        sum += to_float(feature[t * token_stride]);
        ++count;
      }
      means[feature_offset(out_view, FIRST_FEATURE_OUT, c)] = from_float<Element>(static_cast<float>(sum / static_cast<double>(count > 0 ? count : 1)));
    }
  }
}
