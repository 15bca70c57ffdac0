// mla_attention_bwd, plain, by the definition and absorbed. With q' = w_kc q_nope, do' = w_vc dout and o' = sum of p_j latent_j, all of R features, p_j of the
// forward pass's lse, a row's softmax gradient is ds_j = p_j (do' . latent_j - dout . out), and with dq' = sum of ds_j latent_j:
//   rows:    q', do', o', dq' of each query row to workspace; dq_nope = w_kc dq', dq_rope = sum of ds_j rope_j
//   keys:    dlatent_j = sum over rows of ds_j q' + p_j do', drope_j = sum of ds_j q_rope
//   weights: dw_kc = sum over rows of dq' q_nope, dw_vc = sum of o' dout
// Heads come in turns, as many at once as a bounded workspace holds; sums over heads wait in key_sums.
// A tensor is written by one work item an element, in one order: results are the same from run to run.
#include "device/cpu.h"
#include "device/number/math.h"
#include "device/number/narrow.h"

using Element = ${ctype(E)};
using Cached = Element;
#include "mla_attention/latent_call.h"
#include "mla_decode/plain_row.h"
#include "mla_attention/plain_products.h"
#include "mla_attention_bwd/saved_rows.h"

// A row's score of a key, in units of log 2; slope: of it by the scaled product.
static float score_of(const float* query, const float* key, int64_t features, float scale, float cap, float& slope) {
  const float score = scale * dot(query, key, features);
  slope = 1;
  if (!(cap > 0)) return score * LOG2_E;
  const float bent = tanh_of(splat(score / cap))[0];
  slope = 1 - bent * bent;
  return cap * bent * LOG2_E;
}

static void load_key(const LatentRow& at, int64_t latent, int64_t rope, float* key) {
  for (int64_t d = 0; d < latent; ++d) key[d] = to_float(at.latent[d]);
  for (int64_t d = 0; d < rope; ++d) key[latent + d] = to_float(at.rope[d]);
}

static void add(float* to, float factor, const float* from, int64_t count) {
  for (int64_t d = 0; d < count; ++d) to[d] += factor * from[d];
}

static float dot_of_rows(const Element* a, const Element* b, int64_t count) {
  float sum = 0;
  for (int64_t d = 0; d < count; ++d) sum += to_float(a[d]) * to_float(b[d]);
  return sum;
}

// Item (x, y, z): the turn's head x of query y of row z of the batch.
static void rows(${parameters('rows')}, const Group& group) {
  const TurnHeads turn(step, group.grid_x, heads);
  if (group.x >= turn.count) return;
  const int64_t head = turn.first + group.x, i = group.y, batch = group.z, latent = features, rope = rope_features, width = latent + rope;
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, nullptr, queries, tokens, offset_given, offset, Visibility{causal, window_left, window_right}};
  const LatentCache keys{kv_latent, k_rope, latent_outer, latent_inner, rope_outer, rope_inner, 1};
  const SeenKeys seen = call.keys(batch, i);
  const SavedRow saved(saved_rows, softmaxes, (batch * queries + i) * group.grid_x + group.x, latent, rope);
  float *key = static_cast<float*>(group.shared), *drope = key + width, *own = drope + rope, slope;
  absorb(row_of<const Element>(q_nope_view, batch, i, head), w_kc_view, head, own, saved.query);
  absorb(row_of<const Element>(dout_view, batch, i, head), w_vc_view, head, own, saved.dout);
  for (int64_t d = 0; d < rope; ++d) saved.query[latent + d] = to_float(row_of<const Element>(q_rope_view, batch, i, head)[d]), drope[d] = 0;
  for (int64_t r = 0; r < latent; ++r) saved.out[r] = 0, saved.dquery[r] = 0;

  saved.set_softmax(lse_of_row(lse_view, batch, head, i), dot_of_rows(row_of<const Element>(out_view, batch, i, head), row_of<const Element>(dout_view, batch, i, head), w_vc_view.shape[2]));
  for (int64_t j = seen.first; j < seen.end; ++j) {
    if (!seen.sees(j)) continue;
    load_key(keys.row(batch, j), latent, rope, key);
    const float score = score_of(saved.query, key, width, softmax_scale, logits_soft_cap, slope);
    const float weight = exp2_of(splat(score - saved.softmax[0]))[0] * saved.softmax[1];
    if (weight == 0) continue;  // what is behind it may be NaN
    const float dscore = weight * (dot(saved.dout, key, latent) - saved.softmax[2]) * slope * softmax_scale;
    add(saved.out, weight, key, latent);
    add(saved.dquery, dscore, key, latent);
    add(drope, dscore, key + latent, rope);
  }
  project(saved.dquery, 1, w_kc_view, head, own, row_of<Element>(dq_nope_view, batch, i, head));
  for (int64_t d = 0; d < rope; ++d) row_of<Element>(dq_rope_view, batch, i, head)[d] = from_float<Element>(drope[d]);
}

// Item (x, y): key x of row y of the batch.
static void keys(${parameters('keys')}, const Group& group) {
  const int64_t j = group.x, batch = group.y, latent = features, rope = rope_features, width = latent + rope;
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, nullptr, queries, tokens, offset_given, offset, Visibility{causal, window_left, window_right}};
  const LatentCache cache{kv_latent, k_rope, latent_outer, latent_inner, rope_outer, rope_inner, 1};
  float *key = static_cast<float*>(group.shared), *sum = key + width, slope;
  load_key(cache.row(batch, j), latent, rope, key);
  const TurnHeads turn(step, head_slots, heads);
  float* const sums = key_sums + (batch * tokens + j) * width;
  for (int64_t d = 0; d < width; ++d) sum[d] = step > 0 ? sums[d] : 0;
  for (int64_t i = 0; i < queries; ++i) {
    const SeenKeys seen = call.keys(batch, i);
    if (j < seen.first || j >= seen.end || !seen.sees(j)) continue;
    for (int64_t slot = 0; slot < turn.count; ++slot) {
      const SavedRow saved(saved_rows, softmaxes, (batch * queries + i) * head_slots + slot, latent, rope);
      const float score = score_of(saved.query, key, width, softmax_scale, logits_soft_cap, slope);
      const float weight = exp2_of(splat(score - saved.softmax[0]))[0] * saved.softmax[1];
      if (weight == 0) continue;
      const float dscore = weight * (dot(saved.dout, key, latent) - saved.softmax[2]) * slope * softmax_scale;
      add(sum, dscore, saved.query, width);
      add(sum, weight, saved.dout, latent);
    }
  }
  if (turn.first + turn.count < heads) {
    for (int64_t d = 0; d < width; ++d) sums[d] = sum[d];
    return;
  }
  Element* dlatent = static_cast<Element*>(dkv_latent_view.data) + batch * dkv_latent_view.strides[0] + j * dkv_latent_view.strides[1];
  Element* drope = static_cast<Element*>(dk_rope_view.data) + batch * dk_rope_view.strides[0] + j * dk_rope_view.strides[1];
  for (int64_t r = 0; r < latent; ++r) dlatent[r] = from_float<Element>(sum[r]);
  for (int64_t d = 0; d < rope; ++d) drope[d] = from_float<Element>(sum[latent + d]);
}

// to[d] = the sum over all rows of the head of factor(saved row) * row[d].
template <class Factor>
static void sum_rows(const View& view, int64_t rows, int64_t head, int64_t count, float* sums, Element* to, const Factor& factor) {
  for (int64_t d = 0; d < count; ++d) sums[d] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const Element* from = row_of<const Element>(view, row / view.shape[1], row % view.shape[1], head);
    const float f = factor(row);
    for (int64_t d = 0; d < count; ++d) sums[d] += f * to_float(from[d]);
  }
  for (int64_t d = 0; d < count; ++d) to[d] = from_float<Element>(sums[d]);
}

// Item (x, y): latent feature x of the weights of the turn's head y.
static void weights(${parameters('weights')}, const Group& group) {
  const TurnHeads turn(step, group.grid_y, heads);
  if (group.y >= turn.count) return;
  const int64_t r = group.x, head = turn.first + group.y, rows = q_nope_view.shape[0] * q_nope_view.shape[1];
  float* sums = static_cast<float*>(group.shared);
  const auto saved = [&](int64_t row) { return SavedRow(saved_rows, softmaxes, row * group.grid_y + group.y, features, rope_features); };
  sum_rows(q_nope_view, rows, head, dw_kc_view.shape[2], sums, const_cast<Element*>(weight_row<Element>(dw_kc_view, r, head)),
           [&](int64_t row) { return saved(row).dquery[r]; });
  sum_rows(dout_view, rows, head, dw_vc_view.shape[2], sums, const_cast<Element*>(weight_row<Element>(dw_vc_view, r, head)),
           [&](int64_t row) { return saved(row).out[r]; });
}
