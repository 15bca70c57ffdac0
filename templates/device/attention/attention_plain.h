// GPU vocabulary of the attention kernels: rows by the definition, a warp a group of rows. For every head dim, stride and option, and for
// data that products of tiles cannot carry: a value that is not finite, behind a weight of 0.
#pragma once
#include "device/attention/attention_score.h"

// ADJUSTED: any of bias, mask and segments may be given. CAPPED: there may be a soft cap. DROPPED: weights may be dropped.
// ROWS: a warp works on them together, so that each key and value is loaded once for all of them. FEATURES: at most so many values a lane
// keeps of each row; WARP times as many is the largest head dim of v.
template <class T, bool ADJUSTED, bool CAPPED, bool DROPPED, int ROWS, int FEATURES> struct PlainRows {
  const Heads<const T>&k, &v;
  const Heads<T>& out;
  const ScoreRules& rules;
  const Sequence& sequence;
  const View& lse;
  const float* queries;  // [ROWS][head_dim] of this warp, in shared memory
  int64_t head_dim, value_dim;
  int kv_head;
  RowPlace place[ROWS];
  RowRules row[ROWS];
  float reference[ROWS], denominator[ROWS];
  float output[ROWS][FEATURES];  // of features lane + 32 i

  // Weights of this lane's key for each row; the running softmax follows.
  void weigh(int key, float (&weight)[ROWS]) {
    float dot[ROWS] = {};
    const bool some = key < sequence.keys;
    const T* at = k.row(sequence.batch, sequence.first_key + (some ? key : 0), kv_head);
#pragma unroll 1
    for (int64_t d = 0; some && d < head_dim; ++d) {
      const float x = to_float(at[d]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) dot[r] += queries[r * head_dim + d] * x;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (!ADJUSTED && !CAPPED) dot[r] *= rules.scale * LOG2_E;
      const float score = score_of<ADJUSTED, CAPPED, true>(dot[r], rules, row[r], key);
      float largest = score;
      for (int mask = WARP / 2; mask > 0; mask /= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      if (largest > reference[r]) {
        const float factor = exp2_of(reference[r] - largest);
        denominator[r] *= factor;
#pragma unroll
        for (int i = 0; i < FEATURES; ++i) output[r][i] *= factor;
        reference[r] = largest;
      }
      weight[r] = exp2_of(score - reference[r]);
      denominator[r] += weight[r];
      if (DROPPED && rules.drop_threshold > 0 && drops(r, key)) weight[r] = 0;
    }
  }

  bool drops(int r, int key) const {
    uint32_t words[4] = {static_cast<uint32_t>(key) >> 3, static_cast<uint32_t>(place[r].token),
                         static_cast<uint32_t>(sequence.index * rules.heads + place[r].head), 0};
    philox(words, rules.seed);
    return static_cast<float>(dropout_lane(words, key)) < rules.drop_threshold;
  }

  // Keys [first, first + WARP) of which each lane has the weights of one.
  void add_values(int first, const float (&weight)[ROWS]) {
#pragma unroll 1
    for (int j = 0; j < WARP; ++j) {
      float w[ROWS];
      bool some = false;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        w[r] = shuffle(weight[r], j);
        some = some || w[r] != 0;  // also NaN
      }
      if (!some) continue;
      const T* at = v.row(sequence.batch, sequence.first_key + first + j, kv_head);
#pragma unroll
      for (int i = 0; i < FEATURES; ++i) {
        const int64_t feature = lane() + WARP * i;
        if (WARP * i >= value_dim) break;
        const float x = feature < value_dim ? to_float(at[feature]) : 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) output[r][i] += w[r] == 0 ? 0 : w[r] * x;
      }
    }
  }

  void finish(int count) {
    const float kept = rules.drop_threshold < 65536 ? 65536 / (65536 - rules.drop_threshold) : 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float sum = denominator[r];
      for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      if (r >= count) continue;
      const float factor = sum == 0 ? 0 : kept / sum;
      T* to = out.row(sequence.batch, sequence.first_query + place[r].token, place[r].head);
#pragma unroll
      for (int i = 0; i < FEATURES; ++i)
        if (lane() + WARP * i < value_dim) to[lane() + WARP * i] = from_float<T>(output[r][i] * factor);
      if (lane() == 0) store_lse(lse, sequence, place[r], reference[r], sum);
    }
  }

  // The weights [B, Hq, Sq, Sk] of rows whose keys are all done. `seen`: what any of them sees.
  void store_weights(const View& weights, const RowRange& seen, int count) {
    const float kept = rules.drop_threshold < 65536 ? 65536 / (65536 - rules.drop_threshold) : 0;
    float factor[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float sum = denominator[r];
      for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      factor[r] = sum == 0 ? 0 : kept / sum;
    }
#pragma unroll 1
    for (int first = 0; first < weights.shape[3]; first += WARP) {
      float weight[ROWS] = {};
      if (first + WARP > seen.first && first < seen.end) weigh(first + lane(), weight);
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (r < count && first + lane() < weights.shape[3])
          static_cast<T*>(weights.data)[row_offset(weights, sequence.batch, place[r].head, place[r].token) + first + lane()] =
              from_float<T>(weight[r] == 0 ? 0 : weight[r] * factor[r]);
    }
  }
};

// All rows of the block, by all its warps; WEIGHTED: with their weights, where those are given. `queries`: [warps][ROWS][head_dim] floats of shared memory, not in use.
// Not inlined: it would take registers from the loop beside it.
template <int THREADS, bool ADJUSTED, bool CAPPED, bool DROPPED, int ROWS, int FEATURES, bool WEIGHTED = false, class T>
static __attribute__((noinline)) void attend_plainly(const Heads<const T>& q, const Heads<const T>& k, const Heads<const T>& v,
                                                     const Heads<T>& out, const ScoreRules& rules, const Sequence& sequence, const View& aux,
                                                     int64_t aux_type, const View& lse, const Rows& rows, int kv_head, int64_t head_dim,
                                                     int64_t value_dim, float* queries, const View* weights = nullptr) {
  float* mine = queries + warp() * ROWS * head_dim;
#pragma unroll 1
  for (int first = warp() * ROWS; first < rows.count; first += THREADS / WARP * ROWS) {
    PlainRows<T, ADJUSTED, CAPPED, DROPPED, ROWS, FEATURES> p{k, v, out, rules, sequence, lse, mine, head_dim, value_dim, kv_head, {}, {}, {}, {}, {}};
    RowRange all{0x7fffffff, 0};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int at = first + r < rows.count ? first + r : rows.count - 1;
      p.place[r] = rows.place(at);
      p.row[r] = rules_of<ADJUSTED>(rules, sequence, rows.range[at], p.place[r]);
      all = {p.row[r].range.first < all.first ? p.row[r].range.first : all.first, p.row[r].range.end > all.end ? p.row[r].range.end : all.end};
      start_row(aux, aux_type, p.place[r], q.heads, sequence, lane() == 0, p.reference[r], p.denominator[r]);
      const T* from = q.row(sequence.batch, sequence.first_query + p.place[r].token, p.place[r].head);
#pragma unroll 1
      for (int64_t d = lane(); d < head_dim; d += WARP) mine[r * head_dim + d] = to_float(from[d]);
    }
    sync_warp();
#pragma unroll 1
    for (int key = all.first / WARP * WARP; key < all.end; key += WARP) {
      float weight[ROWS];
      p.weigh(key + lane(), weight);
      p.add_values(key, weight);
    }
    p.finish(rows.count - first);
    if constexpr (WEIGHTED)
      if (is_given(*weights)) p.store_weights(*weights, all, rows.count - first);
    sync_warp();
  }
}
