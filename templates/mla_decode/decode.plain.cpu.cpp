// mla_decode, plain: one query row at a time, one key at a time, by the definition. Takes every legal call.
//
// The running softmax: `maximum` is the largest score so far, `sum` the denominator and `values` the weighted values, both relative to it.
// Scores are in units of log 2. Only keys that the row sees are read.
#include "device/cpu.h"
#include "device/number/math.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"

#include "mla_decode/plain_row.h"

// Item (x, y, z): head x of query y of sequence z.
static void decode(${parameters('decode')}, const Group& group) {
  const int64_t head = group.x, i = group.y, sequence = group.z, latent = q_latent_view.shape[3], rope = q_rope_view.shape[3];
  const bool listed = is_given(indices_view);
  const LatentCache rows{cache ? cache : kv_latent, cache ? cache + rope_at : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size};
  const LatentKeys keys{rows, block_tables ? block_tables + sequence * table_row : nullptr,
                        listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1] : nullptr,
                        sequence};
  const int64_t count =
      listed ? indices_view.shape[2] : visible_tokens(context_lens ? context_lens[sequence] : tokens, q_latent_view.shape[1], i);

  float *values = static_cast<float*>(group.shared), *query = values + latent, *key = query + latent + rope;
  const auto row_of = [&](const View& view) {
    return static_cast<const Element*>(view.data) + sequence * view.strides[0] + i * view.strides[1] + head * view.strides[2];
  };
  for (int64_t d = 0; d < latent; ++d) values[d] = 0, query[d] = to_float(row_of(q_latent_view)[d]);
  for (int64_t d = 0; d < rope; ++d) query[latent + d] = to_float(row_of(q_rope_view)[d]);

  Row row{-INFINITE, 0};
  for (int64_t k = 0; k < count; ++k) {
    const LatentRow at = keys[k];
    if (!at.latent) continue;
    for (int64_t d = 0; d < latent; ++d) key[d] = latent_of(at.latent, d, latent);
    for (int64_t d = 0; d < rope; ++d) key[latent + d] = rope_of(at.rope, d);
    float score = softmax_scale * dot(query, key, latent + rope);
    if (logits_soft_cap > 0) score = logits_soft_cap * tanh_of(splat(score / logits_soft_cap))[0];
    const float weight = weigh(row, score * LOG2_E, values, latent);
    if (weight == 0) continue;  // a value behind a weight of 0 may be NaN
    for (int64_t d = 0; d < latent; ++d) values[d] += key[d] * weight;
  }

  const float factor = row.sum == 0 ? 0 : static_cast<float>(1 / row.sum);
  Element* out = static_cast<Element*>(out_view.data) + sequence * out_view.strides[0] + i * out_view.strides[1] + head * out_view.strides[2];
  for (int64_t d = 0; d < latent; ++d) out[d] = from_float<Element>(values[d] * factor);
  if (!is_given(lse_view)) return;
  const float maximum = row.maximum == -INFINITE ? 0 : row.maximum * LN_2;
  static_cast<float*>(lse_view.data)[sequence * lse_view.strides[0] + head * lse_view.strides[1] + i] =
      maximum + log_of(splat(static_cast<float>(row.sum)))[0];
}
