// ragged_decode_attention, split: a work item takes a part of a sequence's keys, block by block, for all query heads of some kv heads; parts are put
// together by a second launch.
#include "device/attention/decode_rows.h"

using Element = ${ctype(E)};
constexpr int64_t D = ${D}, DIM = ${Dv};  // features of a key; of a value, and of a row of out
constexpr int ROWS = ${rows};             // query heads at a time
constexpr int BLOCK = ${block_n};         // keys a block
$require D % 8 == 0 and Dv % 8 == 0
$require block_n % 16 == 0
using Rows = DecodeRows<Element, D, DIM, ROWS, BLOCK>;
using Places = Rows::Places;

#include "device/attention/decode_keys.h"
#include "device/attention/token_places.h"
#include "device/attention/decode_heads.h"

// The keys that a sequence's query sees: the last window_left + 1 of [start, end).
static Range visible_keys(int64_t start, int64_t end, int64_t window_left) {
  if (start >= end) return {0, 0};
  return {window_left >= 0 && window_left < end - 1 - start ? end - 1 - window_left : start, end};
}

// Item (x, y, z): part y of the keys of sequence z, for kv heads x * heads_together ..., which take turns with blocks of keys: a token's keys lie
// together in memory, and are asked for in that order.
static void decode(${parameters('decode')}, const Group& group) {
  const Heads<const Element> k(key_view), v(value_view);
  const int64_t part = group.y, first_kv_head = group.x * heads_together, sequence = group.z, heads = query_view.shape[1];
  const int64_t kv_heads = k.heads - first_kv_head < heads_together ? k.heads - first_kv_head : heads_together;
  const int64_t passes = (rows_a_kv_head + ROWS - 1) / ROWS, first_head = first_kv_head * rows_a_kv_head;
  Rows* all = static_cast<Rows*>(group.shared);
  for (int64_t i = 0; i < kv_heads * passes; ++i) {
    const int64_t in_kv_head = i % passes * ROWS, head = first_head + i / passes * rows_a_kv_head + in_kv_head;
    const int64_t count = rows_a_kv_head - in_kv_head;
    load_query<Element>(all[i], query_view, sequence, head, count);
    for (int r = 0; r < ROWS; ++r) {
      Sinks sinks(softmax_aux_view, sinks_type, r < count ? head + r : head, heads);
      if (part > 0) sinks.count = 0;
      all[i].start(r, sinks);
    }
  }

  const Range keys = visible_keys(sequence_start[sequence], sequence_end[sequence], window_left);
  const Range range = part_of(keys.begin, keys.end, part, parts);
  const Cache cache{k.row(sequence, 0, first_kv_head), v.row(sequence, 0, first_kv_head), k.token_stride, k.head_stride,
                    v.token_stride, v.head_stride};
  attend_keys(all, kv_heads, passes, cache, range, [&](int64_t) { return Scoring(softmax_scale, logits_soft_cap); });

  const Result result{out_view, lse_view, out_type};
  for (int64_t i = 0; i < kv_heads * rows_a_kv_head; ++i) {
    const Rows& rows = all[i / rows_a_kv_head * passes + i % rows_a_kv_head / ROWS];
    const int r = static_cast<int>(i % rows_a_kv_head % ROWS);
    const int64_t head = first_head + i;
    if (parts > 1)
      rows.store_part(r, partial + ((sequence * heads + head) * parts + part) * Rows::PART);
    else
      result.store(sequence, head, rows.output[r], rows.maximum[r * Rows::TOKENS], rows.sum_of(r), 1);
  }
}

// Item (x, y): the parts of query head x of sequence y, put together.
static void combine(${parameters('combine')}, const Group& group) {
  const int64_t head = group.x, sequence = group.y;
  const Rows::Whole whole(partial + (sequence * group.grid_x + head) * parts * Rows::PART, parts);
  Result{out_view, lse_view, out_type}.store(sequence, head, whole.values, whole.maximum, whole.sum, 1);
}
