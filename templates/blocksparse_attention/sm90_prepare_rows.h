// Hopper vocabulary of blocksparse_attention's gradients: what is known of rows of queries before any block of keys: log-sum-exps and deltas. In few
// registers, and with all of a thread's loads on their way at once, so that it takes no longer than memory does.
#pragma once
#include "device/attention/attention.h"

// ROWS rows of a head, from row `first` on, by a block of THREADS threads. DROPPED: as in Gradients; kept: of all weights.
template <class T, int DV, int ROWS, int THREADS, bool DROPPED> struct RowPreparer {
  static constexpr int LANES = DV <= 64 ? 8 : 16, STEP = THREADS / LANES, COUNT = ROWS / STEP;  // lanes a row; rows at a time; rows a thread
  static_assert(DV <= LANES * 8 && ROWS % STEP == 0 && COUNT <= LANES);
  const Sequence& sequence;
  int head, first;

  // Of a thread's rows the log-sum-exp of one. A row past the end, or without weights, has weights of 0.
  void run(const View& out, const View& dout, const View& lse, float* row_lse, float* row_delta, float kept) const {
    const int own = thread_x() % LANES, row = first + thread_x() / LANES, logs_row = row + own * STEP, queries = ${packed ? 'sequence.past_the_end ? 0 : ' : ''}static_cast<int>(sequence.queries);
    Pack<T, 8> x[COUNT], y[COUNT];
    load(x, out, row, own * 8, queries);
    load(y, dout, row, own * 8, queries);
    float log = -INFINITE, delta = 0;
    if (own < COUNT && logs_row < queries) log = (static_cast<const float*>(lse.data) + ${packed ? 'head * lse.strides[0] + sequence.first_query' : 'sequence.batch * lse.strides[0] + head * lse.strides[1]'})[logs_row];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += to_float(x[i].at[j]) * to_float(y[i].at[j]);
#pragma unroll
      for (int mask = LANES / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      if (i == own) delta = sum;
    }
    if (own >= COUNT) return;
    const bool weighs = log != -INFINITE && (!DROPPED || kept > 0), sees = weighs && logs_row < sequence.seeing();
    row_lse[logs_row - first] = sees ? log * LOG2_E + (DROPPED ? log_of(kept) * LOG2_E : 0) : INFINITE;
    row_delta[logs_row - first] = weighs ? DROPPED ? delta * kept : delta : 0;
  }
  void load(Pack<T, 8> (&x)[COUNT], const View& from, int row, int feature, int queries) const {
    const Heads<const T> rows(from);
    const T* at = rows.row(sequence.batch, ${packed ? 'sequence.first_query + ' : ''}row, head) + feature;
#pragma unroll
    for (int i = 0; i < COUNT; ++i, at += STEP * rows.token_stride) {
      x[i] = {};
      if (row + i * STEP < queries && feature < DV) x[i] = load_pack<8>(at);
    }
  }
};
