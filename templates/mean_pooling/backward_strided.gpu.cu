// mean_pooling, backward, on GPUs, for any strides: a thread an element of dx. Takes what no faster variant takes.
#include "device/gpu.h"
#include "mean_pooling/pooling_rows.h"
#include "mean_pooling/pooling_numbering.h"
#include "mean_pooling/pooling_counts.h"
#include "mean_pooling/pooling_strided.h"

using Element = ${ctype(E)};

// Packed chunks only.
KERNEL(NUMBERING_THREADS, 1) number_chunks(${parameters('number_chunks')}) {
  number_rows(cum_seqlens, first_row, N, chunk_size);
}

// With a mask only.
KERNEL(WARP * COUNT_WARPS, 1) count_visible(${parameters('count_visible')}) {
  count_parts({nullptr, nullptr, 0, 0, S, chunk_size}, mask, mask_stride, counts, rows, parts);
}

// A block takes STRIDED_THREADS features of one token at a time.
KERNEL(STRIDED_THREADS, 1) mean_pooling_bwd(${parameters('mean_pooling_bwd')}) {
  const Line line{cum_seqlens, first_row, token_count, sequences, sequence_tokens, chunk_size};
  for (int64_t item = block_x(); item < token_count * columns; item += grid_x()) {
    const int64_t t = item / columns, c = item % columns * STRIDED_THREADS + thread_x();
    const RowCursor rows(line, t);
    const int64_t count = rows.row < 0 ? 0 : visible_tokens(rows, counts, parts);
    if (c >= C) continue;
    Element* dx = static_cast<Element*>(dx_view.data) + feature_offset(dx_view, PACKED ? 1 : 2, c);
    dx += PACKED ? t * dx_view.strides[0] : rows.sequence * dx_view.strides[0] + (t - rows.sequence_begin) * dx_view.strides[1];
    const bool visible = rows.row >= 0 && (!MASKED || mask[rows.sequence * mask_stride + t - rows.sequence_begin]);
    *dx = from_float<Element>(0);
    if (!visible) continue;
    const Element* dout = static_cast<const Element*>(dout_view.data) + feature_offset(dout_view, CHUNKED && !PACKED ? 2 : 1, c);
    if (CHUNKED && !PACKED)
      dout += rows.sequence * dout_view.strides[0] + (rows.row - rows.sequence * row_count) * dout_view.strides[1];
    else
      dout += rows.row * dout_view.strides[0];
    *dx = from_float<Element>(to_float(*dout) / static_cast<float>(count));
  }
}
