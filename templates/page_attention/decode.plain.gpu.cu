// page_attention by the definition: a block a query row, its warps taking 32 keys in turn, a lane a key. Takes every type, head dim, stride
// and option; not fast.
#include "device/gpu.h"
#include "device/attention/exact_tanh.h"
#include "device/number/float8.h"
#include "device/attention/row_end.h"
#include "page_attention/page_shares.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int PARTS = 8, FEATURES = PARTS * WARP;  // features of the output that a lane, a warp, sums at a time; more take another turn

// Keys or values of one sequence and kv head. Strides in elements.
struct Cache {
  const Cached* data;
  int64_t page_stride, slot_stride;
  const int32_t* table;
  int page_size;
  const Cached* row(int key) const { return data + table[key / page_size] * page_stride + key % page_size * slot_stride; }
};

// Block x: query head x % heads of sequence x / heads.
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
  const int query_heads = static_cast<int>(heads), dim = static_cast<int>(features), size = static_cast<int>(page_size);
  const int sequence = block_x() / query_heads, head = block_x() % query_heads, kv_head = head / static_cast<int>(rows_a_kv_head);
  const VisibleKeys<WARP> keys = Lengths<WARP>{context_lens, static_cast<int>(sequences), window_left}[sequence];
  const int32_t* table = block_tables + sequence * table_stride;
  const Cache k{key_cache + kv_head * key_head, key_page, key_slot, table, size};
  const Cache v{value_cache + kv_head * value_head, value_page, value_slot, table, size};
  const Element* q = query + sequence * query_sequence + head * query_head;
  const float scale = softmax_scale * Factors{k_scale, k_scale_stride}[kv_head], v_factor = Factors{v_scale, v_scale_stride}[kv_head];
  const RowEnd row_end{softmax_aux_view, sinks_type, query_heads, {out, out_sequence, out_head}, {lse, lse_sequence, lse_head}};

  __shared__ float sums[WARPS][FEATURES];
  __shared__ Softmax softmaxes[WARPS];
#pragma unroll 1
  for (int turn = 0; turn < dim || turn == 0; turn += FEATURES) {
    Softmax mine{LOWEST, 0};
    float x[PARTS] = {};
#pragma unroll 1
    for (int first = (keys.first_tile() + warp()) * WARP; first < keys.end; first += THREADS) {
      const int key = first + lane();
      float score = -INFINITE;
      if (keys.has(key)) {
        const Cached* at = k.row(key);
        float dot = 0;
#pragma unroll 1
        for (int d = 0; d < dim; ++d) dot += to_float(q[d]) * to_float(at[d]);
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
        if (!keys.has(first + j)) continue;
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
      row_end.store<Element>(sequence, head, turn + feature, sum, factor);
    }
    if (turn == 0 && thread_x() == 0) row_end.store_lse(sequence, head, end);
    sync_block();
  }
}
