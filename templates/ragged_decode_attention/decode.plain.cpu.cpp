// ragged_decode_attention, plain: one query row at a time, LANES keys at a time, by the definition (device/attention/attention_plain_cpu.h). Takes every
// legal call.
#include "device/cpu.h"
#include "device/attention/attention.h"
#include "device/number/math.h"
#include "device/attention/limited_bias.h"
#include "device/number/narrow.h"
#include "ragged_decode_attention/one_token.h"

using Element = ${ctype(E)};

#include "device/attention/attention_plain_cpu.h"

// Item (x, y): query head x of sequence y.
static void attend(${parameters('attend')}, const Group& group) {
  const View none = not_given(), one_lse = with_token(lse_view, 2);
  const Heads<const Element> q(with_token(query_view, 1)), k(key_view), v(value_view);
  const Call call{q, k, v, Heads<Element>(with_token(out_view, 1)), none, none, none, none, softmax_aux_view, one_lse, none,
                  Visibility{false, window_left, -1}, TYPE_F32, sinks_type, query_view.shape[2], value_view.shape[3], softmax_scale,
                  logits_soft_cap, 0, 0};
  const int64_t head = group.x;
  Query query{call, sequence_of(sequence_start, sequence_end, group.y), 0, head, head * k.heads / q.heads, 0, 0,
              static_cast<float*>(group.shared)};
  start(query);
  const KeyRange keys = visible_keys(call.visibility, query.sequence, 0);
  for (int64_t key = keys.first; key < keys.end; key += LANES) add_keys(query, key, keys.end - key < LANES ? keys.end - key : LANES);
  store(query);
}
