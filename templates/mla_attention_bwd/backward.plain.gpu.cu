// mla_attention_bwd, plain, by the definition and absorbed; backward.plain.cpu.cpp says what the three launches compute. A warp a key or a query row, its
// lanes along the features; each warp's sums are its own until the block adds them up in order: results are the same from run to run.
#include "device/gpu.h"
#include "device/attention/exact_tanh.h"
#include "device/attention/row_scale.h"

using Element = ${ctype(E)};
using Cached = Element;
#include "mla_attention/latent_call.h"
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
#include "mla_attention/plain_products_gpu.h"
#include "mla_attention_bwd/saved_rows.h"

// Of a row and a key: the score in units of log 2, its slope by the scaled product, and dout times the value.
struct Pair {
  float score, slope, dvalue;
};

// All lanes of a warp.
static inline Pair meet(const float* query, const float* dout, const LatentRow& key, int latent, int rope, float scale, float cap) {
  float product = 0, dvalue = 0;
#pragma unroll 1
  for (int d = lane(); d < latent; d += WARP) {
    const float x = to_float(key.latent[d]);
    product += query[d] * x, dvalue += dout[d] * x;
  }
#pragma unroll 1
  for (int d = lane(); d < rope; d += WARP) product += query[latent + d] * to_float(key.rope[d]);
  const float score = sum_of_warp(product) * scale;
  dvalue = sum_of_warp(dvalue);
  if (!(cap > 0)) return {score * LOG2_E, 1, dvalue};
  const float bent = exact_tanh_of(score / cap);
  return {cap * bent * LOG2_E, 1 - bent * bent, dvalue};
}

// All threads of the block: to[d] = the sum of the warps' sums, each times its factor; `sums` has a row of `pitch` floats for each warp.
static inline void add_up(const float* sums, int pitch, int count, const float* factors, float* to) {
#pragma unroll 1
  for (int d = thread_x(); d < count; d += THREADS) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += sums[w * pitch + d] * factors[w];
    to[d] = sum;
  }
}

// Block x: the turn's head x % slots of query x / slots % queries of a row of the batch.
KERNEL(THREADS, 1) rows(${parameters('rows')}) {
  const TurnHeads turn(step, head_slots, heads);
  const int slots = static_cast<int>(head_slots), slot = block_x() % slots, head = static_cast<int>(turn.first) + slot, query = block_x() / slots;
  if (slot >= turn.count) return;
  const int i = query % static_cast<int>(queries), batch = query / static_cast<int>(queries);
  const int latent = static_cast<int>(features), rope = static_cast<int>(rope_features), width = latent + rope;
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, nullptr, queries, tokens, offset_given, offset, Visibility{causal, window_left, window_right}};
  const LatentCache keys{kv_latent, k_rope, latent_outer, latent_inner, rope_outer, rope_inner, 1};
  const SeenKeys seen = call.keys(batch, i);
  const SavedRow saved(saved_rows, softmaxes, block_x(), latent, rope);
  float* const own_query = reinterpret_cast<float*>(dynamic_shared());
  float *const dout = own_query + width, *const out = dout + latent, *const dquery = out + latent, *const own = dquery + width;
  float *const sums = own + (w_kc_view.shape[2] > w_vc_view.shape[2] ? w_kc_view.shape[2] : w_vc_view.shape[2]), *const mine = sums + warp() * width;
  __shared__ Softmax parts[WARPS];
  __shared__ float factors[WARPS];
#pragma unroll 1
  for (int d = thread_x(); d < rope; d += THREADS) own_query[latent + d] = to_float(row_of<const Element>(q_rope_view, batch, i, head)[d]);
  absorb(row_of<const Element>(q_nope_view, batch, i, head), w_kc_view, head, own, own_query);
  absorb(row_of<const Element>(dout_view, batch, i, head), w_vc_view, head, own, dout);

  Softmax softmax{LOWEST, 0};
#pragma unroll 1
  for (int d = lane(); d < width; d += WARP) mine[d] = 0;
#pragma unroll 1
  for (int64_t j = seen.first + warp(); j < seen.end; j += WARPS) {
    if (!seen.sees(j)) continue;
    const LatentRow key = keys.row(batch, j);
    const float score = meet(own_query, dout, key, latent, rope, softmax_scale, logits_soft_cap).score;
    const float reference = larger_of(softmax.reference, score), factor = factor_of(softmax, reference), weight = exp2_of(score - reference);
    softmax = {reference, softmax.sum * factor + weight};
#pragma unroll 1
    for (int d = lane(); d < latent; d += WARP) mine[d] = mine[d] * factor + weight * to_float(key.latent[d]);
  }
  if (lane() == 0) parts[warp()] = softmax;
  sync_block();
  Softmax all{LOWEST, 0};
#pragma unroll
  for (int w = 0; w < WARPS; ++w) all.reference = larger_of(all.reference, parts[w].reference);
#pragma unroll
  for (int w = 0; w < WARPS; ++w) all.sum += parts[w].sum * factor_of(parts[w], all.reference);
  const float factor = scale_of(all, all);
  if (thread_x() == 0)
#pragma unroll
    for (int w = 0; w < WARPS; ++w) factors[w] = factor_of(parts[w], all.reference) * factor;
  sync_block();
  add_up(sums, width, latent, factors, out);
  sync_block();
  float delta = 0;
#pragma unroll 1
  for (int d = lane(); d < latent; d += WARP) delta += dout[d] * out[d];
  delta = sum_of_warp(delta);

#pragma unroll 1
  for (int d = lane(); d < width; d += WARP) mine[d] = 0;
#pragma unroll 1
  for (int64_t j = seen.first + warp(); j < seen.end; j += WARPS) {
    if (!seen.sees(j)) continue;
    const LatentRow key = keys.row(batch, j);
    const Pair pair = meet(own_query, dout, key, latent, rope, softmax_scale, logits_soft_cap);
    const float dscore = exp2_of(pair.score - all.reference) * factor * (pair.dvalue - delta) * pair.slope * softmax_scale;
#pragma unroll 1
    for (int d = lane(); d < latent; d += WARP) mine[d] += dscore * to_float(key.latent[d]);
#pragma unroll 1
    for (int d = lane(); d < rope; d += WARP) mine[latent + d] += dscore * to_float(key.rope[d]);
  }
  if (thread_x() < WARPS) factors[thread_x()] = 1;
  sync_block();
  add_up(sums, width, width, factors, dquery);
  sync_block();
  project(dquery, w_kc_view, head, row_of<Element>(dq_nope_view, batch, i, head));
#pragma unroll 1
  for (int d = thread_x(); d < width; d += THREADS) {
    saved.query[d] = own_query[d];
    if (d < latent)
      saved.dout[d] = dout[d], saved.out[d] = out[d], saved.dquery[d] = dquery[d];
    else
      row_of<Element>(dq_rope_view, batch, i, head)[d - latent] = from_float<Element>(dquery[d]);
  }
  if (thread_x() == 0) saved.softmax[0] = all.reference, saved.softmax[1] = factor, saved.softmax[2] = delta;
}

// Block x: key x % tokens of row x / tokens of the batch.
KERNEL(THREADS, 1) keys(${parameters('keys')}) {
  const int key_count = static_cast<int>(tokens), j = block_x() % key_count, batch = block_x() / key_count;
  const int latent = static_cast<int>(features), rope = static_cast<int>(rope_features), width = latent + rope;
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, nullptr, queries, tokens, offset_given, offset, Visibility{causal, window_left, window_right}};
  const LatentCache cache{kv_latent, k_rope, latent_outer, latent_inner, rope_outer, rope_inner, 1};
  const LatentRow key = cache.row(batch, j);
  float *const sums = reinterpret_cast<float*>(dynamic_shared()), *const mine = sums + warp() * width, *const whole = sums + WARPS * width;
  const TurnHeads turn(step, head_slots, heads);
  float* const before = key_sums + int64_t{block_x()} * width;
  __shared__ float factors[WARPS];
  if (thread_x() < WARPS) factors[thread_x()] = 1;
#pragma unroll 1
  for (int d = lane(); d < width; d += WARP) mine[d] = step > 0 && warp() == 0 ? before[d] : 0;
#pragma unroll 1
  for (int64_t row = warp(); row < queries * turn.count; row += WARPS) {
    const SeenKeys seen = call.keys(batch, row / turn.count);
    if (j < seen.first || j >= seen.end || !seen.sees(j)) continue;
    const SavedRow saved(saved_rows, softmaxes, (batch * queries + row / turn.count) * head_slots + row % turn.count, latent, rope);
    const Pair pair = meet(saved.query, saved.dout, key, latent, rope, softmax_scale, logits_soft_cap);
    const float weight = exp2_of(pair.score - saved.softmax[0]) * saved.softmax[1];
    const float dscore = weight * (pair.dvalue - saved.softmax[2]) * pair.slope * softmax_scale;
#pragma unroll 1
    for (int d = lane(); d < latent; d += WARP) mine[d] += dscore * saved.query[d] + weight * saved.dout[d];
#pragma unroll 1
    for (int d = latent + lane(); d < width; d += WARP) mine[d] += dscore * saved.query[d];
  }
  sync_block();
  add_up(sums, width, width, factors, whole);  // each thread reads what it writes there
  if (turn.first + turn.count < heads) {
#pragma unroll 1
    for (int d = thread_x(); d < width; d += THREADS) before[d] = whole[d];
    return;
  }
  Element* const dlatent = static_cast<Element*>(dkv_latent_view.data) + batch * dkv_latent_view.strides[0] + j * dkv_latent_view.strides[1];
  Element* const drope = static_cast<Element*>(dk_rope_view.data) + batch * dk_rope_view.strides[0] + j * dk_rope_view.strides[1];
#pragma unroll 1
  for (int d = thread_x(); d < width; d += THREADS) (d < latent ? dlatent + d : drope + (d - latent))[0] = from_float<Element>(whole[d]);
}

// Block x: latent feature x / slots of the weights of the turn's head x % slots; a thread a feature of them.
KERNEL(THREADS, 1) weights(${parameters('weights')}) {
  const TurnHeads turn(step, head_slots, heads);
  const int slots = static_cast<int>(head_slots), slot = block_x() % slots, head = static_cast<int>(turn.first) + slot, r = block_x() / slots;
  if (slot >= turn.count) return;
  const int64_t row_count = q_nope_view.shape[0] * q_nope_view.shape[1];
  const int own = static_cast<int>(dw_kc_view.shape[2]), all = own + static_cast<int>(dw_vc_view.shape[2]);
#pragma unroll 1
  for (int d = thread_x(); d < all; d += THREADS) {
    const bool of_key = d < own;
    float sum = 0;
#pragma unroll 1
    for (int64_t row = 0; row < row_count; ++row) {
      const SavedRow saved(saved_rows, softmaxes, row * slots + slot, features, rope_features);
      const int64_t batch = row / queries, i = row % queries;
      sum += of_key ? saved.dquery[r] * to_float(row_of<const Element>(q_nope_view, batch, i, head)[d])
                    : saved.out[r] * to_float(row_of<const Element>(dout_view, batch, i, head)[d - own]);
    }
    const Element* const to = of_key ? weight_row<Element>(dw_kc_view, r, head) + d : weight_row<Element>(dw_vc_view, r, head) + (d - own);
    *const_cast<Element*>(to) = from_float<Element>(sum);
  }
}
