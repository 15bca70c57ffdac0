// ragged_page_attention by the definition: a block a query row, its warps taking 32 keys in turn, a lane a key. Takes every type, head dim, stride and
// option; not fast.
#include "device/gpu.h"
#include "device/attention/exact_tanh.h"
#include "device/attention/row_end.h"
#include "device/number/quantise.h"
#include "ragged_page_attention/ragged_batch.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int PARTS = 8, FEATURES = PARTS * WARP;  // features of the output that a lane, a warp, sums at a time; more take another turn
$if v3
#include "ragged_page_attention/write_launch.gpu.h"
$end

// Keys or values of one sequence and kv head. Strides in elements.
struct Pages {
  const Cached* data;
  int64_t page_stride, slot_stride;
  const int32_t* table;
  int page_size;
  const Cached* row(int key) const { return data + table[key / page_size] * page_stride + key % page_size * slot_stride; }
};

static inline float query_of(const Element* q, int feature, const float* scale) {
  const float x = to_float(q[feature]);
  return scale ? as_cached<Cached>(x, *scale) : x;
}

// Block x: query head x % heads of token x / heads.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
$if v3
  wait_for_previous_launch();
  let_next_launch_go();
$end
  const int query_heads = static_cast<int>(heads), dim = static_cast<int>(features), size = static_cast<int>(page_size);
  const int token = block_x() / query_heads, head = block_x() % query_heads, kv_head = head / static_cast<int>(heads_a_kv_head);
  const RaggedBatch batch{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, tokens};
  const RaggedSequence sequence = batch[batch.sequence_of(token)];
  const bool exists = sequence.number < batch.count && token >= sequence.first;
  const int64_t query = token - sequence.first;
  const KeyRange range = visible_keys(Visibility{!is_given(tree_mask_view), window_left, -1}, query, sequence.old_keys(), exists ? sequence.keys : 0);
  const TreeRow tree(tree_mask_view, sequence, query);
  const int32_t* table = block_tables + sequence.number * table_stride;
  const Pages k{kv_pages + 2 * kv_head * head_stride, page_stride, slot_stride, table, size};
  const Pages v{kv_pages + (2 * kv_head + 1) * head_stride, page_stride, slot_stride, table, size};
  const Element* q = queries + token * query_token + head * query_head;
  const float scale = softmax_scale * Factors{k_scale, k_scale_stride}[kv_head], v_factor = Factors{v_scale, v_scale_stride}[kv_head];
  const float* const q_factor = ${v3 ? 'q_scale ? q_scale + kv_head * q_scale_stride : nullptr' : 'nullptr'};
  const RowEnd row_end{softmax_aux_view, exists ? sinks_type : -1, query_heads, {out, out_token, out_head}, {${v3 ? 'nullptr, 0, 0' : 'lse, lse_token, lse_head'}}};
  const int first_key = static_cast<int>(range.first), end_key = static_cast<int>(range.end);

  __shared__ float sums[WARPS][FEATURES];
  __shared__ Softmax softmaxes[WARPS];
#pragma unroll 1
  for (int turn = 0; turn < dim || turn == 0; turn += FEATURES) {
    Softmax mine{LOWEST, 0};
    float x[PARTS] = {};
#pragma unroll 1
    for (int first = first_key + warp() * WARP; first < end_key; first += THREADS) {
      const int key = first + lane();
      float score = -INFINITE;
      if (key < end_key && !tree.hides(key)) {
        const Cached* at = k.row(key);
        float dot = 0;
#pragma unroll 1
        for (int d = 0; d < dim; ++d) dot += query_of(q, d, q_factor) * to_float(at[d]);
        score = dot * scale;
        if (logits_soft_cap > 0) score = logits_soft_cap * exact_tanh_of(score / logits_soft_cap);
        score *= LOG2_E;
      }
      float largest = score;
#pragma unroll
      for (int mask = WARP / 2; mask > 0; mask /= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      const float reference = larger_of(mine.reference, largest), factor = factor_of(mine, reference), weight = exp2_of(score - reference);
      mine = {reference, mine.sum * factor + weight};
#pragma unroll
      for (int i = 0; i < PARTS; ++i) x[i] *= factor;
#pragma unroll 1
      for (int j = 0; j < WARP; ++j) {
        const float w = shuffle(weight, j);
        if (first + j >= end_key || w == 0) continue;
        const Cached* at = v.row(first + j) + turn;
#pragma unroll
        for (int i = 0; i < PARTS; ++i)
          if (turn + WARP * i + lane() < dim) x[i] += w * to_float(at[WARP * i + lane()]);
      }
    }
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) mine.sum += shuffle_xor(mine.sum, mask);
#pragma unroll
    for (int i = 0; i < PARTS; ++i) sums[warp()][WARP * i + lane()] = x[i];
    if (lane() == 0) softmaxes[warp()] = mine;
    sync_block();
    Softmax all{LOWEST, 0};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all.reference = larger_of(all.reference, softmaxes[w].reference);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all.sum += softmaxes[w].sum * factor_of(softmaxes[w], all.reference);
    const Softmax end = row_end.with_sinks(all, head);
    const float factor = scale_of(all, end) * v_factor;
#pragma unroll 1
    for (int feature = thread_x(); feature < FEATURES && turn + feature < dim; feature += THREADS) {
      float sum[1] = {0};
#pragma unroll
      for (int w = 0; w < WARPS; ++w) sum[0] += sums[w][feature] * factor_of(softmaxes[w], all.reference);
      row_end.store<Element>(token, head, turn + feature, sum, factor);
    }
    if (turn == 0 && thread_x() == 0) row_end.store_lse(token, head, end);
    sync_block();
  }
}
