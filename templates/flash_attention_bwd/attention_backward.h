// GPU vocabulary of the attention kernels' gradients: what each query row brings to them, which rows see a key, and the sinks' gradient.
#pragma once
#include "device/attention/attention_score.h"
$if by_blocks  // blocksparse_attention_bwd
#include "blocksparse_attention/key_blocks.h"
$end
$if takes_bias
#include "flash_attention_bwd/faint_rows.h"
$end

// Query rows in the workspace: those of one head of one sequence lie together, from a multiple of `block` up to one.
struct RowSpace {
  int64_t heads, rows, block;  // rows: of one head, in a row of the batch or in all packed sequences
  bool packed;

  int64_t first(const Sequence& sequence, int64_t head) const {
    const int64_t before = packed ? (sequence.first_query / block + sequence.index) * block : 0;
    return (sequence.batch * heads + head) * rows + before;
  }
};

// Queries that see key j by causality and window, always one range: the inverse of visible_keys().
static inline RowRange seeing_queries(const Visibility& rule, int64_t j, int64_t given_offset, int64_t queries) {
  constexpr int64_t FAR = int64_t{1} << 61;
  const int64_t offset = given_offset > FAR ? FAR : given_offset < -FAR ? -FAR : given_offset, right = rule.causal ? 0 : rule.window_right;
  int64_t first = 0, end = queries;
  if (right >= 0 && right < FAR && j - right - offset > 0) first = j - right - offset;
  if (rule.window_left >= 0 && rule.window_left < FAR && j + rule.window_left - offset + 1 < queries)
    end = j + rule.window_left - offset + 1;
  if (end < 0) end = 0;
  if (first > end) first = end;
  return {static_cast<int>(first), static_cast<int>(end)};
}
$if by_blocks
// The same with chunks: those whose chunk the key is in, from its place on. Blocks are left to others.
static inline RowRange seeing_queries(const BlockVisibility& rule, int64_t j, int64_t given_offset, int64_t queries) {
  const RowRange seen = seeing_queries(static_cast<Visibility>(rule), j, given_offset, queries);
  constexpr int64_t FAR = int64_t{1} << 61;
  if (rule.chunk <= 0) return seen;
  const int64_t offset = given_offset > FAR ? FAR : given_offset < -FAR ? -FAR : given_offset;
  const int64_t from = j - offset, to = rule.chunk < FAR ? j - j % rule.chunk + rule.chunk - offset : seen.end;
  const int first = from > seen.first ? static_cast<int>(from < seen.end ? from : seen.end) : seen.first;
  const int end = to < seen.end ? static_cast<int>(to > first ? to : first) : seen.end;
  return {first, end};
}
$end

// Sequences by blocks of keys, as find_sequence() finds them by rows; `keys`: how many it has, those in no sequence included, which no
// query sees.
static inline bool find_keys(const Sequences& sequences, int64_t& item, int64_t block, Sequence& sequence, int64_t& keys) {
  const Sequences by_keys{sequences.cum_keys, sequences.cum_queries, sequences.count, sequences.keys, sequences.queries, true, 0};
  int64_t items;
  if (!find_sequence(by_keys, item, block, 1, sequence, items)) return false;
  keys = sequence.queries;
  sequence = sequences[sequence.index];
  return true;
}

// Writes of each row [first, first + count) of a head its log-sum-exp in units of log 2, INFINITE if it has no weights, so that
// 2^(score - it) is 0, and delta, the sum over features of out * dout. Rows past the sequence's end have no weights. LANES lanes share a
// row, VEC features each at a time.
template <int THREADS, int LANES, int VEC, class T>
static inline void prepare_rows(const Heads<const T>& out, const Heads<const T>& dout, const View& lse, const Sequence& sequence, int head,
                                int64_t first, int64_t count, int64_t value_dim, float* row_lse, float* row_delta) {
  const float* logs = static_cast<const float*>(lse.data) + (lse.rank == 3 ? sequence.batch * lse.strides[0] : 0) +
                      head * lse.strides[lse.rank - 2] + sequence.first_query;
#pragma unroll 1
  for (int64_t base = 0; base < count; base += THREADS / LANES) {
    const int64_t local = base + thread_x() / LANES, row = first + local;
$if by_blocks  // a row without keys, padding too, has its sinks' log-sum-exp: delta is for their gradient, which a NaN of dout reaches
    const bool some = local < count && row < sequence.queries;
$else
    const bool some = local < count && row < sequence.seeing();
$end
    const float log = some ? logs[row] : -INFINITE;
    const bool weighs = log != -INFINITE;
    float delta = 0;
    const T* a = out.row(sequence.batch, sequence.first_query + (some ? row : 0), head);
    const T* b = dout.row(sequence.batch, sequence.first_query + (some ? row : 0), head);
#pragma unroll 1
    for (int64_t d = thread_x() % LANES * VEC; weighs && d < value_dim; d += LANES * VEC) {
      const Pack<T, VEC> x = load_pack<VEC>(a + d), y = load_pack<VEC>(b + d);
#pragma unroll
$if by_blocks  // flash_attention_bwd's images are as they were measured
      for (int i = 0; i < VEC; ++i) delta += to_float(x.at[i]) * to_float(y.at[i]);
$else
      for (int i = 0; i < VEC; ++i) delta += to_float(x.at[i]) == 0 ? 0 : to_float(x.at[i]) * to_float(y.at[i]);
$end
    }
    for (int mask = LANES / 2; mask > 0; mask /= 2) delta += shuffle_xor(delta, mask);
    if (local < count && thread_x() % LANES == 0) {
$if by_blocks
      const bool sees = weighs && row < sequence.seeing();
      row_lse[local] = sees ? ${takes_bias ? 'usual_log(log * LOG2_E)' : 'log * LOG2_E'} : INFINITE;
$elif takes_bias
      row_lse[local] = weighs ? usual_log(log * LOG2_E) : INFINITE;
$else
      row_lse[local] = weighs ? log * LOG2_E : INFINITE;
$end
      row_delta[local] = delta;
    }
  }
}

$if takes_bias
// Of rows [first, first + count) of a head, those that are faint get faint_log() in place of their log-sum-exp; a warp a row. log_kept: what dropout adds
// to every row's log-sum-exp, in units of log 2. Rows whose keys have several biases stay as they are.
template <int WARPS>
static inline void mark_faint_rows(const ScoreRules& rules, const ${by_blocks ? 'BlockVisibility' : 'Visibility'}& visibility, const Sequence& sequence, const View& lse, int head,
                                   int64_t first, int64_t count, float log_kept, float* row_lse) {
  const float* logs = static_cast<const float*>(lse.data) + (lse.rank == 3 ? sequence.batch * lse.strides[0] : 0) +
                      head * lse.strides[lse.rank - 2] + sequence.first_query;
#pragma unroll 1
  for (int64_t local = warp(); local < count && first + local < sequence.seeing(); local += WARPS) {
    const int64_t token = first + local;
    const float log = logs[token];
    if (!(log < FAINT) || log == -INFINITE) continue;
    const KeyRange keys = visible_keys(visibility, sequence, token);
    const RowRange range{static_cast<int>(keys.first), static_cast<int>(keys.end)};
    const RowRules row = rules_of<true>(rules, sequence, range, {static_cast<int>(token), head});
    const float least = log * LOG2_E * (1 + FAINT_LEEWAY);
    float equal = 0, lower = 0;
#pragma unroll 1
    for (int key = range.first + lane(); key < range.end; key += WARP) {
$if by_blocks
      if (!visibility.has_block(sequence.batch, head, token, key)) continue;
$end
      const float score = score_of<true, false>(0, rules, row, key);
      if (score == -INFINITE) continue;
      if (score >= least)
        ++equal;
      else
        ++lower;
    }
    for (int mask = WARP / 2; mask > 0; mask /= 2) equal += shuffle_xor(equal, mask), lower += shuffle_xor(lower, mask);
    if (lane() == 0 && equal > 0 && lower == 0) row_lse[local] = faint_log(log_of(equal) * LOG2_E + log_kept);
  }
}

// What 2^ is taken of for a weight, the score being finite.
static inline float weight_exponent(float score, float log) { return is_faint(log) ? -log : score - log; }

$if by_blocks
// score_of()'s minus infinity is of a key that the row does not see, or of one whose bias is that: where the row's log-sum-exp is NaN, so is the
// latter's weight, and its score is made NaN. flash_attention_bwd's images are as they were measured.
static inline float seen_score(float score, float log, const RowRules& row, int key) {
  if (score != -INFINITE || log == log) return score;
  bool visible = key >= row.range.first && key < row.range.end;
  if (visible && row.mask) visible = row.mask[key];
  if (visible && row.segments) visible = row.segments[key] >= 0 && row.segments[key] == row.segment;
  return visible ? log : score;
}

$end
$end
static inline __attribute__((noinline)) void store_element(void* data, int64_t type, int64_t index, float x) {
  if (type == TYPE_F16) static_cast<half*>(data)[index] = from_float<half>(x);
  if (type == TYPE_BF16) static_cast<bfloat16*>(data)[index] = from_float<bfloat16>(x);
  if (type == TYPE_F32) static_cast<float*>(data)[index] = x;
}

// A sink's gradient, -sum over rows of 2^(sink - lse) delta, by a whole block: element `at` of softmax_aux, [Hq, A] or [A].
template <int THREADS>
static inline void differentiate_sink(const View& aux, const View& gradient, int64_t type, int64_t at, const Sequences& sequences,
                                      const RowSpace& space, const float* row_lse, const float* row_delta) {
  const bool by_head = aux.rank == 2, one_a_head = !by_head && aux.shape[0] == space.heads;
  const int64_t length = aux.shape[aux.rank - 1], of_head = by_head ? at / length : at, column = by_head ? at % length : at;
  const int64_t first_head = by_head || one_a_head ? of_head : 0, end_head = by_head || one_a_head ? of_head + 1 : space.heads;
  const float sink = element_of(aux.data, type, (by_head ? of_head * aux.strides[0] : 0) + column) * LOG2_E;
  float sum = 0;
#pragma unroll 1
  for (int64_t head = first_head; head < end_head; ++head)
#pragma unroll 1
    for (int64_t n = 0; n < sequences.count; ++n) {
      const Sequence sequence = sequences[n];
      const int64_t first = space.first(sequence, head);
#pragma unroll 1
$if takes_bias
      for (int64_t i = thread_x(); i < sequence.queries; i += THREADS)
        if (!is_faint(row_lse[first + i])) sum += exp2_of(sink - row_lse[first + i]) * row_delta[first + i];
$else
      for (int64_t i = thread_x(); i < sequence.queries; i += THREADS) sum += exp2_of(sink - row_lse[first + i]) * row_delta[first + i];
$end
    }
  __shared__ float sums[THREADS / WARP];
  for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane() == 0) sums[warp()] = sum;
  sync_block();
  if (thread_x() != 0) return;
  sum = 0;
  for (int i = 0; i < THREADS / WARP; ++i) sum += sums[i];
  store_element(gradient.data, type, (by_head ? of_head * gradient.strides[0] : 0) + column, sink == -INFINITE ? 0 : -sum);
}
