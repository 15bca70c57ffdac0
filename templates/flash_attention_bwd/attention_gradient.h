// CPU vocabulary for the gradients of attention: what a query row brings to its gradients, sequences by their keys, and the sinks' gradient.
#pragma once
#include "device/attention/attention.h"
#include "device/number/math.h"

// The forward pass's log-sum-exps, [B, Hq, Sq] or packed [Hq, Tq] as the caller gave them, and each row's delta: the sum over features of
// out * dout, without gaps.
struct RowTable {
  const View& lse;
  float* delta;
  int64_t heads, tokens;

  const float* lse_of(int64_t batch, int64_t head) const {
    const int64_t at = (lse.rank == 3 ? batch * lse.strides[0] : 0) + head * lse.strides[lse.rank - 2];
    return static_cast<const float*>(lse.data) + at;
  }
  float* delta_of(int64_t batch, int64_t head) const { return delta + (batch * heads + head) * tokens; }
};

// Tokens [begin, end) of one head. A row that sees nothing has delta 0, whatever dout holds.
template <class T>
static void fill_delta(const RowTable& rows, const Heads<const T>& out, const Heads<const T>& dout, int64_t batch, int64_t head, int64_t begin,
                       int64_t end, int64_t dim) {
  const float* lse = rows.lse_of(batch, head);
  float* delta = rows.delta_of(batch, head);
  for (int64_t token = begin; token < end; ++token) {
    const T *a = out.row(batch, token, head), *b = dout.row(batch, token, head);
    Floats sums = {};
    for (int64_t d = 0; d < dim; d += LANES) sums += load_some(a + d, dim - d) * load_some(b + d, dim - d);
    float sum = 0;
    for (int lane = 0; lane < LANES; ++lane) sum += sums[lane];
    delta[token] = lse[token] == -INFINITE ? 0 : sum;
  }
}

// Sequences by blocks of `block` keys, as Sequences::find() finds them by queries; `keys`: how many this sequence has, those in no
// sequence included, which no query sees.
static inline bool find_keys(const Sequences& sequences, int64_t& item, int64_t block, Sequence& sequence, int64_t& keys) {
  for (int64_t n = 0; n <= sequences.count; ++n) {
    sequence = sequences[n];
    keys = n == sequences.count ? sequences.keys - sequence.first_key : sequence.keys;
    const int64_t items = (keys + block - 1) / block;
    if (item < items) return true;
    item -= items;
  }
  return false;
}

static inline void store_element(void* data, int64_t type, int64_t index, float value) {
  if (type == TYPE_F16) {
    static_cast<half*>(data)[index] = from_float<half>(value);
  } else if (type == TYPE_BF16) {
    static_cast<bfloat16*>(data)[index] = from_float<bfloat16>(value);
  } else {
    static_cast<float*>(data)[index] = value;
  }
}

// The sum of exp(sink - lse) * delta over the rows of one head, in the batch or in the sequences.
static double sink_weight(const RowTable& rows, float sink, int64_t batches, int64_t head, int64_t tokens) {
  double sum = 0;
  if (sink == -INFINITE) return 0;
  for (int64_t b = 0; b < batches; ++b) {
    const float *lse = rows.lse_of(b, head), *delta = rows.delta_of(b, head);
    for (int64_t i = 0; i < tokens; i += LANES) {
      const Floats of_rows = load_some(lse + i, tokens - i), exponent = (sink - of_rows) * LOG2_E;
      const Floats product = exp2_of(exponent) * load_some(delta + i, tokens - i);
      const Floats counted = of_rows == splat(-INFINITE) ? Floats{} : product;  // a row that sees nothing
      for (int lane = 0; lane < LANES && i + lane < tokens; ++lane) sum += counted[lane];
    }
  }
  return sum;
}

// Element `element` of dsoftmax_aux: [Hq, A]; or [A], one a head if A is Hq, else shared by all heads. `tokens`: of a row of the batch, or
// of all packed sequences.
static void store_sink_gradient(const RowTable& rows, const View& sinks_view, const View& gradient, int64_t type, int64_t element,
                                int64_t batches, int64_t tokens) {
  const int64_t last = sinks_view.shape[sinks_view.rank - 1];
  const bool by_row = sinks_view.rank == 2, one_a_head = !by_row && last == rows.heads;
  const int64_t row = by_row ? element / last : 0, column = by_row ? element % last : element;
  const int64_t first = by_row ? row : one_a_head ? column : 0, end = by_row || one_a_head ? first + 1 : rows.heads;
  const float sink = element_of(sinks_view.data, type, (by_row ? row * sinks_view.strides[0] : 0) + column);
  double sum = 0;
  for (int64_t head = first; head < end; ++head) sum += sink_weight(rows, sink, batches, head, tokens);
  store_element(gradient.data, type, (by_row ? row * gradient.strides[0] : 0) + column, static_cast<float>(-sum));
}
