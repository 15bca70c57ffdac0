// mla_attention, plain: one query row at a time, one key at a time. The query takes w_kc in first ("absorbed"), the weighted latent features w_vc at the end,
// so that a key is met as it lies in memory. Takes every legal call.
#include "device/cpu.h"
#include "device/number/math.h"
#include "device/number/narrow.h"

using Element = ${ctype(E)};
using Cached = Element;
#include "mla_attention/latent_call.h"
#include "mla_decode/plain_row.h"
#include "mla_attention/plain_products.h"

// Item (x, y, z): head x of query y of sequence z.
static void attend(${parameters('attend')}, const Group& group) {
  const int64_t head = group.x, i = group.y, sequence = group.z, latent = features, rope = q_rope_view.shape[q_rope_view.rank - 1];
  const LatentCache rows{cache ? cache : kv_latent, cache ? cache + rope_at : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size};
  const LatentKeys keys{rows, block_tables ? block_tables + sequence * table_row : nullptr, nullptr, sequence};
  const LatentCall call{q_segment_ids_view, kv_segment_ids_view, context_lens, queries, tokens, offset_given, offset,
                        Visibility{causal, window_left, window_right}};
  const SeenKeys seen = call.keys(sequence, i);

  float *values = static_cast<float*>(group.shared), *query = values + latent, *key = query + latent + rope, *own = key + latent + rope;
  for (int64_t d = 0; d < latent; ++d) values[d] = 0;
  absorb(row_of<const Element>(q_nope_view, sequence, i, head), w_kc_view, head, own, query);
  for (int64_t d = 0; d < rope; ++d) query[latent + d] = to_float(row_of<const Element>(q_rope_view, sequence, i, head)[d]);

  Row row{-INFINITE, 0};
  for (int64_t k = seen.first; k < seen.end; ++k) {
    if (!seen.sees(k)) continue;
    const LatentRow at = keys[k];
    for (int64_t d = 0; d < latent; ++d) key[d] = to_float(at.latent[d]);
    for (int64_t d = 0; d < rope; ++d) key[latent + d] = to_float(at.rope[d]);
    float score = softmax_scale * dot(query, key, latent + rope);
    if (logits_soft_cap > 0) score = logits_soft_cap * tanh_of(splat(score / logits_soft_cap))[0];
    const float weight = weigh(row, score * LOG2_E, values, latent);
    if (weight == 0) continue;  // a value behind a weight of 0 may be NaN
    for (int64_t d = 0; d < latent; ++d) values[d] += key[d] * weight;
  }

  const float factor = row.sum == 0 ? 0 : static_cast<float>(1 / row.sum);
  project(values, factor, w_vc_view, head, own, row_of<Element>(out_view, sequence, i, head));
  if (!is_given(lse_view)) return;
  const float maximum = row.maximum == -INFINITE ? 0 : row.maximum * LN_2;
  *lse_place(lse_view, sequence, i, head) = maximum + log_of(splat(static_cast<float>(row.sum)))[0];
}
