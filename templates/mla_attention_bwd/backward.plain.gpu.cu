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

static inline float weight_of(float score, const SavedRow& row) { return exp2_of(score - row.softmax[0]) * row.softmax[1]; }

// All lanes of a warp.
static inline float dot_of_rows(const Element* a, const Element* b, int count) {
  float sum = 0;
#pragma unroll 1
  for (int d = lane(); d < count; d += WARP) sum += to_float(a[d]) * to_float(b[d]);
  return sum_of_warp(sum);
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
  __shared__ float factors[WARPS];
#pragma unroll 1
  for (int d = thread_x(); d < rope; d += THREADS) own_query[latent + d] = to_float(row_of<const Element>(q_rope_view, batch, i, head)[d]);
  absorb(row_of<const Element>(q_nope_view, batch, i, head), w_kc_view, head, own, own_query);
  absorb(row_of<const Element>(dout_view, batch, i, head), w_vc_view, head, own, dout);

  const float lse = lse_of_row(lse_view, batch, head, i), delta = dot_of_rows(row_of<const Element>(out_view, batch, i, head), row_of<const Element>(dout_view, batch, i, head), static_cast<int>(w_vc_view.shape[2]));
  if (thread_x() == 0) saved.set_softmax(lse, delta);
  if (thread_x() < WARPS) factors[thread_x()] = 1;
  sync_block();
#pragma unroll 1
  for (int d = lane(); d < width; d += WARP) mine[d] = 0;
#pragma unroll 1
  for (int64_t j = seen.first + warp(); j < seen.end; j += WARPS) {
    if (!seen.sees(j)) continue;
    const LatentRow key = keys.row(batch, j);
    const float weight = weight_of(meet(own_query, dout, key, latent, rope, softmax_scale, logits_soft_cap).score, saved);
#pragma unroll 1
    for (int d = lane(); d < latent; d += WARP) mine[d] += weight * to_float(key.latent[d]);
  }
  sync_block();
  add_up(sums, width, latent, factors, out);
  sync_block();

#pragma unroll 1
  for (int d = lane(); d < width; d += WARP) mine[d] = 0;
#pragma unroll 1
  for (int64_t j = seen.first + warp(); j < seen.end; j += WARPS) {
    if (!seen.sees(j)) continue;
    const LatentRow key = keys.row(batch, j);
    const Pair pair = meet(own_query, dout, key, latent, rope, softmax_scale, logits_soft_cap);
    const float dscore = weight_of(pair.score, saved) * (pair.dvalue - saved.softmax[2]) * pair.slope * softmax_scale;
#pragma unroll 1
    for (int d = lane(); d < latent; d += WARP) mine[d] += dscore * to_float(key.latent[d]);
#pragma unroll 1
    for (int d = lane(); d < rope; d += WARP) mine[latent + d] += dscore * to_float(key.rope[d]);
  }
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
    const float weight = weight_of(pair.score, saved);
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
