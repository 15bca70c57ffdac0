// page_attention, split: a work item takes a part of a sequence's keys, block by block, for all query heads of some kv heads; parts are put
// together by a second launch.
$if C == 'i8' and D % (arch.vector_bytes / 4) != 0
#include "device/cpu.h"
#include "device/number/some_bytes.h"
$end
#include "device/attention/decode_rows.h"

using Cached = ${ctype(C)};
constexpr int64_t DIM = ${D};      // features of a head
constexpr int ROWS = ${rows};      // query heads at a time
constexpr int BLOCK = ${block_n};  // keys a block
$require D % 8 == 0
$require block_n % 16 == 0
using Rows = DecodeRows<Cached, DIM, DIM, ROWS, BLOCK>;
using Places = Rows::Places;

#include "device/attention/decode_heads.h"
#include "device/attention/decode_keys.h"
#include "device/attention/page_places.h"

// Item (x, y, z): part x of sequence z for kv heads y * heads_together ..., which take turns with blocks of keys.
static void decode(${parameters('decode')}, const Group& group) {
  const int64_t part = group.x, first_kv_head = group.y * heads_together, sequence = group.z, heads = query_view.shape[1];
  const int64_t left = heads / rows_a_head - first_kv_head, kv_heads = left < heads_together ? left : heads_together;
  const int64_t passes = (rows_a_head + ROWS - 1) / ROWS, first_head = first_kv_head * rows_a_head;
  Rows* all = static_cast<Rows*>(group.shared);
  for (int64_t i = 0; i < kv_heads * passes; ++i) {
    const int64_t in_kv_head = i % passes * ROWS, head = first_head + i / passes * rows_a_head + in_kv_head, count = rows_a_head - in_kv_head;
    if (query_type == TYPE_F32) load_query<float>(all[i], query_view, sequence, head, count);
    if (query_type == TYPE_F16) load_query<half>(all[i], query_view, sequence, head, count);
    if (query_type == TYPE_BF16) load_query<bfloat16>(all[i], query_view, sequence, head, count);
    for (int r = 0; r < ROWS; ++r) {
      Sinks sinks(softmax_aux_view, sinks_type, r < count ? head + r : head, heads);
      if (part > 0) sinks.count = 0;
      all[i].start(r, sinks);
    }
  }

  const int64_t length = context_lens[sequence];
  const int64_t first = window_left >= 0 && window_left < length ? length - 1 - window_left : 0;
  const PagedCache cache{key_cache + first_kv_head * key_head, value_cache + first_kv_head * value_head, block_tables + sequence * table_row,
                         {key_page, key_token, key_head}, {value_page, value_token, value_head}, ps};
  attend_keys(all, kv_heads, passes, cache, part_of(first, length, part, parts), [&](int64_t head) {
    return Scoring(softmax_scale * (k_scale ? k_scale[(first_kv_head + head) * k_scales] : 1), logits_soft_cap);
  });

  const Result result{out_view, lse_view, query_type};
  for (int64_t i = 0; i < kv_heads * rows_a_head; ++i) {
    const Rows& rows = all[i / rows_a_head * passes + i % rows_a_head / ROWS];
    const int r = static_cast<int>(i % rows_a_head % ROWS);
    const int64_t head = first_head + i;
    if (parts > 1)
      rows.store_part(r, partial + ((sequence * heads + head) * parts + part) * Rows::PART);
    else
      result.store(sequence, head, rows.output[r], rows.maximum[r * Rows::TOKENS], rows.sum_of(r),
                   v_scale ? v_scale[head / rows_a_head * v_scales] : 1);
  }
}

// Item (x, y): the parts of query head x of sequence y, put together.
static void combine(${parameters('combine')}, const Group& group) {
  const int64_t head = group.x, sequence = group.y, kv_head = head / rows_a_head;
  const Rows::Whole whole(partial + (sequence * group.grid_x + head) * parts * Rows::PART, parts);
  const float value_scale = v_scale ? v_scale[kv_head * v_scales] : 1;
  Result{out_view, lse_view, query_type}.store(sequence, head, whole.values, whole.maximum, whole.sum, value_scale);
}
