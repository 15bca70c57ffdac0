// GPU vocabulary of the attention kernels' gradients: by the definition, a warp a row or a key. For every head dim, stride and option, and
// for data that products of tiles cannot carry: a value that is not finite, behind a weight of 0.
#pragma once
#include "flash_attention_bwd/attention_backward.h"

// ADJUSTED: any of bias, mask and segments may be given. CAPPED: there may be a soft cap. DROPPED: weights may be dropped. KEPT_ROWS: row_lse and
// row_delta are those of weights that count what they do if they are kept (sm90_attention_gradient.h).
template <class T, bool ADJUSTED, bool CAPPED, bool DROPPED, bool KEPT_ROWS = false>
struct PlainGradients {
  Heads<const T> q, k, v, dout;
  const ScoreRules& rules;
  ${by_blocks ? 'BlockVisibility' : 'Visibility'} visibility;
  const Sequence& sequence;
  const float *row_lse, *row_delta;  // of all rows of the workspace
  RowSpace space;
  int64_t head_dim, value_dim;
  float* memory;  // of this warp, shared memory: 2 (head_dim + value_dim)
  const View* dweights = nullptr;  // gradients of the weights themselves; null: they have none

  struct Pair {
    float weight;          // after dropout: of the value in the output
    float score, product;  // gradients: of the score after the soft cap, which is bias's too, and of scale * dot
  };

  // From dot(q, k) and dot(dout, v).
  Pair differentiate(int token, int head, int key, float dot, float dout_dot) const {
    const int64_t at = space.first(sequence, head) + token;
    const KeyRange keys = visible_keys(visibility, sequence, token);
    const RowPlace place{token, head};
    const RowRules row = rules_of<ADJUSTED>(rules, sequence, {static_cast<int>(keys.first), static_cast<int>(keys.end)}, place);
$if by_blocks
    if (!visibility.has_block(sequence.${packed ? 'index' : 'batch'}, head, token, key)) return {0, 0, 0};
$end
    if (!ADJUSTED && !CAPPED) dot *= rules.scale * LOG2_E;
$if by_blocks and takes_bias
    const float score = seen_score(score_of<ADJUSTED, CAPPED, true>(dot, rules, row, key), row_lse[at], row, key);
$else
    const float score = score_of<ADJUSTED, CAPPED, true>(dot, rules, row, key);
$end
    if (score == -INFINITE) return {0, 0, 0};
$if takes_bias
    float weight = exp2_of(weight_exponent(score, row_lse[at])), kept = 1;
$else
    float weight = exp2_of(score - row_lse[at]), kept = 1;
$end
    if (weight == 0) return {0, 0, 0};
    if (DROPPED && rules.drop_threshold > 0)
      kept = drops(token, head, key) || rules.drop_threshold >= 65536 ? 0 : KEPT_ROWS ? 1 : 65536 / (65536 - rules.drop_threshold);
    const float gradient = weight * ((kept == 0 ? 0 : (dout_dot + weight_gradient(token, head, key)) * kept) - row_delta[at]);
    float slope = 1;
    if (CAPPED && rules.soft_cap > 0) slope = tanh_slope_of(dot * (rules.scale / rules.soft_cap));
    return {weight * kept, gradient, gradient * slope};
  }

  float weight_gradient(int token, int head, int key) const {
    if (!dweights || !is_given(*dweights)) return 0;
    return to_float(static_cast<const T*>(dweights->data)[row_offset(*dweights, sequence.batch, head, token) + key]);
  }

  bool drops(int token, int head, int key) const {
    uint32_t words[4] = {static_cast<uint32_t>(key) >> 3, static_cast<uint32_t>(token),
                         static_cast<uint32_t>(sequence.index * rules.heads + head), 0};
    philox(words, rules.seed);
    const uint32_t low = key & 2 ? words[1] : words[0], high = key & 2 ? words[3] : words[2];  // by selection: an index needs a stack
    return static_cast<float>((key & 4 ? high : low) >> 16 * (key & 1) & 0xffff) < rules.drop_threshold;
  }

  const T* q_row(int64_t token, int64_t head) const { return q.row(sequence.batch, sequence.first_query + token, head); }
  const T* dout_row(int64_t token, int64_t head) const { return dout.row(sequence.batch, sequence.first_query + token, head); }
  const T* k_row(int64_t key, int64_t head) const { return k.row(sequence.batch, sequence.first_key + key, head); }
  const T* v_row(int64_t key, int64_t head) const { return v.row(sequence.batch, sequence.first_key + key, head); }

  // What the warp compares others with, and its sums, at 0. Each lane has every WARP-th element of the sums.
  void start(const T* with_heads, const T* with_values) const {
    sync_warp();
#pragma unroll 1
    for (int64_t d = lane(); d < head_dim; d += WARP) memory[d] = to_float(with_heads[d]), sums()[d] = 0;
#pragma unroll 1
    for (int64_t d = lane(); d < value_dim; d += WARP) memory[head_dim + d] = to_float(with_values[d]), sums()[head_dim + d] = 0;
    sync_warp();
  }
  float* sums() const { return memory + head_dim + value_dim; }

  static float dot(const float* own, const T* other, int64_t dim) {
    float sum = 0;
#pragma unroll 1
    for (int64_t d = 0; d < dim; ++d) sum += own[d] * to_float(other[d]);
    return sum;
  }
  static void add(float* sums, float factor, const T* row, int64_t dim) {
    if (factor == 0) return;  // what lies behind it may not be finite
#pragma unroll 1
    for (int64_t d = lane(); d < dim; d += WARP) sums[d] += factor * to_float(row[d]);
  }
  static void store(const float* sums, float factor, T* to, int64_t dim) {
#pragma unroll 1
    for (int64_t d = lane(); d < dim; d += WARP) to[d] = from_float<T>(sums[d] * factor);
  }

  // dq of one row, by a whole warp.
  void differentiate_query(int token, int head, const Heads<T>& dq) const {
    const int kv_head = static_cast<int>(head / (q.heads / k.heads));
    const KeyRange keys = visible_keys(visibility, sequence, token);
    start(q_row(token, head), dout_row(token, head));
#pragma unroll 1
    for (int64_t first = keys.first; first < keys.end; first += WARP) {
      const int64_t key = first + lane();
      float mine = 0;
      if (key < keys.end)
        mine = differentiate(token, head, static_cast<int>(key), dot(memory, k_row(key, kv_head), head_dim),
                             dot(memory + head_dim, v_row(key, kv_head), value_dim))
                   .product;
#pragma unroll 1
      for (int j = 0; j < WARP && first + j < keys.end; ++j) add(sums(), shuffle(mine, j), k_row(first + j, kv_head), head_dim);
    }
    store(sums(), rules.scale, dq.row(sequence.batch, sequence.first_query + token, head), head_dim);
  }

  // dk and dv of one key, by a whole warp. One without data is not wanted.
  void differentiate_key(int key, int kv_head, const Heads<T>& dk, const Heads<T>& dv) const {
    const int heads_a_kv_head = static_cast<int>(q.heads / k.heads);
    const RowRange rows = key < sequence.keys ? seeing_queries(visibility, key, sequence.offset, sequence.seeing()) : RowRange{0, 0};
    start(k_row(key, kv_head), v_row(key, kv_head));
#pragma unroll 1
    for (int head = kv_head * heads_a_kv_head; head < (kv_head + 1) * heads_a_kv_head; ++head)
#pragma unroll 1
      for (int first = rows.first; first < rows.end; first += WARP) {
        const int token = first + lane();
        Pair mine{0, 0, 0};
        if (token < rows.end)
          mine = differentiate(token, head, key, dot(memory, q_row(token, head), head_dim),
                               dot(memory + head_dim, dout_row(token, head), value_dim));
#pragma unroll 1
        for (int i = 0; i < WARP && first + i < rows.end; ++i) {
          add(sums(), shuffle(mine.product, i), q_row(first + i, head), head_dim);
          add(sums() + head_dim, shuffle(mine.weight, i), dout_row(first + i, head), value_dim);
        }
      }
    if (dk.data) store(sums(), rules.scale, dk.row(sequence.batch, sequence.first_key + key, kv_head), head_dim);
    if (dv.data) store(sums() + head_dim, 1, dv.row(sequence.batch, sequence.first_key + key, kv_head), value_dim);
  }
};
