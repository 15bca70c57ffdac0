// mla_attention by the definition, absorbed: a block a query row. Its warps make the query that has w_kc in it, take 32 keys in turn, a lane a key, and
// give the weighted latent features to w_vc. Takes every type, size, stride and option; not fast.
#include "device/gpu.h"
#include "device/attention/exact_tanh.h"
#include "device/attention/row_scale.h"

using Element = ${ctype(E)};
using Cached = Element;
#include "mla_attention/latent_call.h"
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
#include "mla_attention/plain_products_gpu.h"
constexpr int PARTS = 8, FEATURES = PARTS * WARP;  // latent features that a lane, a warp, sums at a time; more take another turn

// A query row, in shared memory, against a key.
struct AbsorbedQuery {
  float *latent, *rope;
  int latent_features, rope_features;

  float dot(const LatentRow& key) const {
    float sum = 0;
#pragma unroll 1
    for (int d = 0; d < latent_features; ++d) sum += latent[d] * to_float(key.latent[d]);
#pragma unroll 1
    for (int d = 0; d < rope_features; ++d) sum += rope[d] * to_float(key.rope[d]);
    return sum;
  }
};

// Block x: head x % heads of query x / heads % queries of a sequence.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const int heads = static_cast<int>(w_kc_view.shape[1]), head = block_x() % heads, row = block_x() / heads;
  const int i = row % static_cast<int>(queries), sequence = row / static_cast<int>(queries);
  const LatentCache rows{cache ? cache : kv_latent, cache ? cache + rope_at : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size};
  const LatentKeys keys{rows, block_tables ? block_tables + sequence * table_row : nullptr, nullptr, sequence};
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, context_lens, queries, tokens, offset_given, offset,
                        Visibility{causal, window_left, window_right}};
  const SeenKeys seen = call.keys(sequence, i);
  const int dim = static_cast<int>(features), begin = static_cast<int>(seen.first), end = static_cast<int>(seen.end);
  float* const memory = reinterpret_cast<float*>(dynamic_shared());
  const int rope = static_cast<int>(q_rope_view.shape[q_rope_view.rank - 1]);
  const AbsorbedQuery query{memory, memory + dim, dim, rope};
  float *const values = memory + dim + rope, *const own = values + dim;
#pragma unroll 1
  for (int d = thread_x(); d < rope; d += THREADS) query.rope[d] = to_float(row_of<const Element>(q_rope_view, sequence, i, head)[d]);
  absorb(row_of<const Element>(q_nope_view, sequence, i, head), w_kc_view, head, own, query.latent);

  __shared__ float sums[WARPS][FEATURES];
  __shared__ Softmax softmaxes[WARPS];
#pragma unroll 1
  for (int turn = 0; turn < dim || turn == 0; turn += FEATURES) {
    Softmax mine{LOWEST, 0};
    float x[PARTS] = {};
#pragma unroll 1
    for (int first = begin + warp() * WARP; first < end; first += THREADS) {
      const int key = first + lane();
      float score = -INFINITE;
      if (key < end && seen.sees(key)) {
        score = query.dot(keys[key]) * softmax_scale;
        if (logits_soft_cap > 0) score = logits_soft_cap * exact_tanh_of(score / logits_soft_cap);
        score *= LOG2_E;
      }
      float largest = score;
#pragma unroll
      for (int mask = WARP / 2; mask > 0; mask /= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      const float reference = larger_of(mine.reference, largest), factor = factor_of(mine, reference), weight = exp2_of(score - reference);
      mine = {reference, mine.sum * factor + weight};
#pragma unroll
      for (int k = 0; k < PARTS; ++k) x[k] *= factor;
#pragma unroll 1
      for (int j = 0; j < WARP && first + j < end; ++j) {
        const float w = shuffle(weight, j);
        if (!seen.sees(first + j)) continue;
        const LatentRow value = keys[first + j];
#pragma unroll
        for (int k = 0; k < PARTS; ++k)
          if (turn + WARP * k + lane() < dim) x[k] += w * to_float(value.latent[turn + WARP * k + lane()]);
      }
    }
    mine.sum = sum_of_warp(mine.sum);
#pragma unroll
    for (int k = 0; k < PARTS; ++k) sums[warp()][WARP * k + lane()] = x[k];
    if (lane() == 0) softmaxes[warp()] = mine;
    sync_block();
    Softmax all{LOWEST, 0};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all.reference = larger_of(all.reference, softmaxes[w].reference);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all.sum += softmaxes[w].sum * factor_of(softmaxes[w], all.reference);
    const float factor = scale_of(all, all);
#pragma unroll 1
    for (int feature = thread_x(); feature < FEATURES && turn + feature < dim; feature += THREADS) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) sum += sums[w][feature] * factor_of(softmaxes[w], all.reference);
      values[turn + feature] = sum * factor;
    }
    if (turn == 0 && thread_x() == 0 && is_given(lse_view))
      *lse_place(lse_view, sequence, i, head) = all.sum == 0 ? -INFINITE : all.reference * LN_2 + log_of(all.sum);
    sync_block();
  }
  project(values, w_vc_view, head, row_of<Element>(out_view, sequence, i, head));
}
