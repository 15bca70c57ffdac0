// mean_pooling, forward, on GPUs, for any strides: a thread an output element. Takes what no faster variant takes.
#include "device/gpu.h"
#include "mean_pooling/pooling_rows.h"
#include "mean_pooling/pooling_numbering.h"
#include "mean_pooling/pooling_strided.h"

using Element = ${ctype(E)};

// Packed chunks only.
KERNEL(NUMBERING_THREADS, 1) number_chunks(${parameters('number_chunks')}) {
  number_rows(cum_seqlens, first_row, N, chunk_size);
}

// A block takes STRIDED_THREADS features of one row at a time.
KERNEL(STRIDED_THREADS, 1) mean_pooling(${parameters('mean_pooling')}) {
  const Line line{cum_seqlens, first_row, 0, sequences, sequence_tokens, chunk_size};
  for (int64_t item = block_x(); item < rows * columns; item += grid_x()) {
    const int64_t row = item / columns, c = item % columns * STRIDED_THREADS + thread_x();
    const RowTokens tokens = tokens_of(line, row);
    if (c >= C) continue;
    const Element* x = static_cast<const Element*>(x_view.data) + feature_offset(x_view, PACKED ? 1 : 2, c);
    if (!PACKED) x += tokens.sequence * x_view.strides[0];
    const int64_t token_stride = x_view.strides[PACKED ? 0 : 1];
    const bool* visible = MASKED ? mask + tokens.sequence * mask_stride : nullptr;

    float total = 0;  // of sums over 128 tokens each: keeps long rows exact
    int64_t count = 0;
    for (int64_t t = tokens.begin; t < tokens.end;) {
      float sum = 0;
      for (const int64_t stop = smaller(t + 128, tokens.end); t < stop; ++t) {
        if (MASKED && !visible[t]) continue;
        sum += to_float(x[t * token_stride]);
        ++count;
      }
      total += sum;
    }
    Element* out = static_cast<Element*>(out_view.data) + feature_offset(out_view, CHUNKED && !PACKED ? 2 : 1, c);
    out += CHUNKED && !PACKED ? tokens.sequence * out_view.strides[0] + tokens.chunk * out_view.strides[1] : row * out_view.strides[0];
    *out = from_float<Element>(total * (1.0f / static_cast<float>(larger(count, 1))));
  }
}
