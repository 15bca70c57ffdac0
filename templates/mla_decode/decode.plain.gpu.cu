// mla_decode by the definition: a block a query row, its warps taking 32 keys in turn, a lane a key. Takes every type, size, stride and option; not fast.
#include "device/gpu.h"
#include "device/attention/exact_tanh.h"
#include "device/attention/row_scale.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int PARTS = 8, FEATURES = PARTS * WARP;  // features of the output that a lane, a warp, sums at a time; more take another turn

// A query row against a key.
struct LatentQuery {
  const Element *latent, *rope;
  int latent_features, rope_features;

  float dot(const LatentRow& key) const {
    float sum = 0;
#pragma unroll 1
    for (int d = 0; d < latent_features; ++d) sum += to_float(latent[d]) * latent_of(key.latent, d, latent_features);
#pragma unroll 1
    for (int d = 0; d < rope_features; ++d) sum += to_float(rope[d]) * rope_of(key.rope, d);
    return sum;
  }
};

// Block x: head x % heads of query x / heads % queries of a sequence.
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
  const int heads = static_cast<int>(q_latent_view.shape[2]), queries = static_cast<int>(q_latent_view.shape[1]);
  const int head = block_x() % heads, i = block_x() / heads % queries, sequence = block_x() / heads / queries;
  const bool listed = is_given(indices_view);
  const LatentCache rows{cache ? cache : kv_latent, cache ? cache + rope_at : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size};
  const LatentKeys keys{rows, block_tables ? block_tables + sequence * table_row : nullptr,
                        listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1] : nullptr,
                        sequence};
  const int count = static_cast<int>(
      listed ? indices_view.shape[2] : visible_tokens(context_lens ? context_lens[sequence] : tokens, queries, i));
  const LatentQuery query{
      static_cast<const Element*>(q_latent_view.data) + sequence * q_latent_view.strides[0] + i * q_latent_view.strides[1] + head * q_latent_view.strides[2],
      static_cast<const Element*>(q_rope_view.data) + sequence * q_rope_view.strides[0] + i * q_rope_view.strides[1] + head * q_rope_view.strides[2],
      static_cast<int>(q_latent_view.shape[3]), static_cast<int>(q_rope_view.shape[3])};
  Element* out = static_cast<Element*>(out_view.data) + sequence * out_view.strides[0] + i * out_view.strides[1] + head * out_view.strides[2];
  const int dim = query.latent_features;

  __shared__ float sums[WARPS][FEATURES];
  __shared__ Softmax softmaxes[WARPS];
#pragma unroll 1
  for (int turn = 0; turn < dim || turn == 0; turn += FEATURES) {
    Softmax mine{LOWEST, 0};
    float x[PARTS] = {};
#pragma unroll 1
    for (int first = warp() * WARP; first < count; first += THREADS) {
      const LatentRow key = first + lane() < count ? keys[first + lane()] : LatentRow{nullptr, nullptr};
      float score = -INFINITE;
      if (key.latent) {
        score = query.dot(key) * softmax_scale;
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
      for (int j = 0; j < WARP && first + j < count; ++j) {
        const float w = shuffle(weight, j);
        const LatentRow value = keys[first + j];
        if (!value.latent) continue;
#pragma unroll
        for (int k = 0; k < PARTS; ++k)
          if (turn + WARP * k + lane() < dim) x[k] += w * latent_of(value.latent, turn + WARP * k + lane(), dim);
      }
    }
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) mine.sum += shuffle_xor(mine.sum, mask);
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
      out[turn + feature] = from_float<Element>(sum * factor);
    }
    if (turn == 0 && thread_x() == 0 && is_given(lse_view))
      static_cast<float*>(lse_view.data)[sequence * lse_view.strides[0] + head * lse_view.strides[1] + i] =
          all.sum == 0 ? -INFINITE : all.reference * LN_2 + log_of(all.sum);
    sync_block();
  }
}
