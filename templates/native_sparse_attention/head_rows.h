// GPU vocabulary: query heads of a token by the definition, ROWS of them a warp, and the importance of blocks. Part of a template, which
// has defined before: Element, WARPS, THREADS, ROWS and FEATURES (values of each row a lane), and included gates.h.
#pragma once
#include "device/attention/attention_plain.h"
#include "native_sparse_attention/select_blocks_gpu.h"
$if packed
#include "native_sparse_attention/packed_tokens.h"
#include "native_sparse_attention/empty_tokens_gpu.h"
$end

// ROWS query heads of a token.
struct HeadRows {
  const float* queries;  // [ROWS][head_dim], in shared memory
  int64_t head_dim, value_dim;
  int batch, token, kv_head;
  float scale;
};

static inline View no_view() { return {nullptr, -1, {}, {}}; }
$if packed

// [1, T, heads, features] from a token on.
static inline View view_from(const View& view, int64_t token) {
  View from = view;
  from.data = static_cast<Element*>(view.data) + token * view.strides[1];
  return from;
}
$end

// One branch: of the keys [seen.first, seen.end) those that blocks leave (all, where blocks.bits is null). Values join `result`, times the
// gates. The logarithms of the sums are to the base 2.
template <bool VALUES, class T>
static inline void attend_branch(const HeadRows& rows, const View& k_view, const View& v_view, const KeyRange& seen, const SelectedBlocks& blocks,
                                 const float (&gate)[ROWS], float (&result)[ROWS][FEATURES], float (&lse)[ROWS]) {
  const Heads<const T> k(k_view), v(v_view);
  const Heads<T> nowhere(v_view);
  const View none = no_view();
  const ScoreRules rules{none, none, none, none, TYPE_F32, rows.scale, 0, 0, 0, 1};
  const Sequence sequence{rows.batch, rows.batch, 0, 0, 1, seen.end, 0, false, 0};
  PlainRows<T, false, false, false, ROWS, FEATURES> p{
      k, v, nowhere, rules, sequence, none, rows.queries, rows.head_dim, rows.value_dim, rows.kv_head, {}, {}, {}, {}, {}};
#pragma unroll
  for (int r = 0; r < ROWS; ++r) p.reference[r] = LOWEST, p.denominator[r] = 0;
#pragma unroll 1
  for (KeyRange run = blocks.bits ? blocks.next(seen.first, seen.end) : seen; run.first < run.end;
       run = blocks.bits ? blocks.next(run.end, seen.end) : KeyRange{0, 0}) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) p.row[r] = {{static_cast<int>(run.first), static_cast<int>(run.end)}, 0, nullptr, nullptr, 0};
#pragma unroll 1
    for (int key = static_cast<int>(run.first); key < run.end; key += WARP) {
      float weight[ROWS];
      p.weigh(key + lane(), weight);
      if (VALUES) p.add_values(key, weight);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    float sum = p.denominator[r];
    for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    const float factor = sum == 0 ? 0 : gate[r] / sum;
#pragma unroll
    for (int i = 0; VALUES && i < FEATURES; ++i) result[r][i] += p.output[r][i] * factor;
    lse[r] = sum == 0 ? -INFINITE : p.reference[r] + log_of(sum) * LOG2_E;
  }
}

static inline void load_queries(float* to, const View& q_view, int64_t batch, int64_t token, int64_t first_head, int heads) {
  const Heads<const Element> q(q_view);
  const int64_t head_dim = q_view.shape[3];
  const int padded = (heads + ROWS - 1) / ROWS * ROWS;
#pragma unroll 1
  for (int head = warp(); head < padded; head += WARPS)
#pragma unroll 1
    for (int64_t d = lane(); d < head_dim; d += WARP)
      to[head * head_dim + d] = head < heads ? to_float(q.row(batch, token, first_head + head)[d]) : 0;
}

$if gated
// [B, means, Hkv, features]
static inline View view_of_means(const float* means, int64_t count, int64_t heads, int64_t features) {
  return {const_cast<float*>(means), 4, {1, count, heads, features, 0, 0, 0, 0}, {count * heads * features, heads * features, features, 1, 0, 0, 0, 0}};
}

// Of means [0, past) the sums over the heads of their softmax weights; lse: of each head, to the base 2.
static inline void find_importance(float* importance, const HeadRows& rows, const float* lse, int heads, const View& key_means, int past) {
#pragma unroll 1
  for (int c = thread_x(); c < past; c += THREADS) {
    const float* mean = Heads<const float>(key_means).row(rows.batch, c, rows.kv_head);
    float sum = 0;
#pragma unroll 1
    for (int head = 0; head < heads; ++head) {
      float dot = 0;
#pragma unroll 1
      for (int64_t d = 0; d < rows.head_dim; ++d) dot += rows.queries[head * rows.head_dim + d] * mean[d];
      sum += exp2_of(dot * (rows.scale * LOG2_E) - lse[head]);
    }
    importance[c] = sum;
  }
}

// Block (x, y, z): the means of block x of kv head y of row z of the batch.
KERNEL(THREADS, 1) find_means(${parameters('find_means')}) {
  const Heads<const Element> k(k_view), v(v_view);
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, false, k.tokens);
  if (!block.is_whole(block_size)) return;
$end
  const int64_t at = (static_cast<int64_t>(block_z()) * grid_x() + block_x()) * k.heads + block_y(), first = ${packed ? 'block.of.first + block.number * block_size' : 'block_x() * block_size'};
  const int64_t head_dim = k_view.shape[3], value_dim = v_view.shape[3];
  mean_of_rows<THREADS>(k.row(block_z(), first, block_y()), k.token_stride, block_size, head_dim, key_means + at * head_dim);
  if (is_given(g_cmp_view))
    mean_of_rows<THREADS>(v.row(block_z(), first, block_y()), v.token_stride, block_size, value_dim, value_means + at * value_dim);
}
$end
