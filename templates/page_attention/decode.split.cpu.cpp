// page_attention, split: a work item takes a part of a sequence's keys for all query heads of one kv head, block by block; parts are put
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

// The caches of one kv head and the pages of one sequence.
struct Pages {
  const Cached *keys, *values;
  const int32_t* table;
  int64_t key_page, key_token, value_page, value_token, size;
};

// Tokens [begin, end), at most BLOCK.
static void find_places(Places& places, const Pages& pages, int64_t begin, int64_t end) {
  places.count = end - begin < BLOCK ? end - begin : BLOCK;
  int64_t i = 0, page = begin / pages.size, slot = begin % pages.size;
  for (; i < places.count; ++page, slot = 0) {
    const int64_t at = pages.table[page];
    const Cached* key = pages.keys + at * pages.key_page + slot * pages.key_token;
    const Cached* value = pages.values + at * pages.value_page + slot * pages.value_token;
    for (; slot < pages.size && i < places.count; ++slot, ++i, key += pages.key_token, value += pages.value_token)
      places.key[i] = key, places.value[i] = value;
  }
  places.repeat_last();
}

#include "device/attention/decode_heads.h"

// Item (x, y, z): part x of sequence z for kv head y.
static void decode(${parameters('decode')}, const Group& group) {
  const int64_t part = group.x, kv_head = group.y, sequence = group.z, heads = query_view.shape[1];
  const int64_t passes = (rows_a_head + ROWS - 1) / ROWS;
  Rows* all = static_cast<Rows*>(group.shared);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t head = kv_head * rows_a_head + pass * ROWS, count = rows_a_head - pass * ROWS;
    if (query_type == TYPE_F32) load_query<float>(all[pass], query_view, sequence, head, count);
    if (query_type == TYPE_F16) load_query<half>(all[pass], query_view, sequence, head, count);
    if (query_type == TYPE_BF16) load_query<bfloat16>(all[pass], query_view, sequence, head, count);
    for (int r = 0; r < ROWS; ++r) {
      Sinks sinks(softmax_aux_view, sinks_type, r < count ? head + r : head, heads);
      if (part > 0) sinks.count = 0;
      all[pass].start(r, sinks);
    }
  }

  const int64_t length = context_lens[sequence];
  const int64_t first = window_left >= 0 && window_left < length ? length - 1 - window_left : 0;
  const Range range = part_of(first, length, part, parts);
  const Pages pages{key_cache + kv_head * key_head, value_cache + kv_head * value_head, block_tables + sequence * table_row,
                    key_page, key_token, value_page, value_token, ps};
  const Scoring scoring(softmax_scale * (k_scale ? k_scale[kv_head * k_scales] : 1), logits_soft_cap);
  const Floats token = lane_tokens();
  alignas(64) float scores[BLOCK * ROWS];
  Places places[2];
  int now = 0;
  find_places(places[now], pages, range.begin, range.end);
  for (int64_t key = range.begin; key < range.end; key += BLOCK, now = 1 - now) {
    Places& next = places[1 - now];
    find_places(next, pages, key + BLOCK < range.end ? key + BLOCK : range.end, range.end);
    const int64_t count = places[now].count;
    const auto adjust = [&](Floats products, int64_t i) {
      const Floats s = scoring(products);
      return i + Rows::TOKENS > count ? (token < splat(static_cast<float>(count - i)) ? s : splat(-INFINITE)) : s;
    };
    for (int64_t pass = 0; pass < passes; ++pass) {
      const Floats most = all[pass].score_block(places[now], next, scores, adjust);
      all[pass].weigh_block(most, count, scores);
      all[pass].add_values<false>(places[now], next, scores);
    }
  }

  const Result result{out_view, lse_view, query_type};
  const float value_scale = v_scale ? v_scale[kv_head * v_scales] : 1;
  for (int64_t i = 0; i < rows_a_head; ++i) {
    const Rows& rows = all[i / ROWS];
    const int r = static_cast<int>(i % ROWS);
    const int64_t head = kv_head * rows_a_head + i;
    if (parts > 1)
      rows.store_part(r, partial + ((sequence * heads + head) * parts + part) * Rows::PART);
    else
      result.store(sequence, head, rows.output[r], rows.maximum[r * Rows::TOKENS], rows.sum_of(r), value_scale);
  }
}

// Item (x, y): the parts of query head x of sequence y, put together.
static void combine(${parameters('combine')}, const Group& group) {
  const int64_t head = group.x, sequence = group.y, kv_head = head / rows_a_head;
  const Rows::Whole whole(partial + (sequence * group.grid_x + head) * parts * Rows::PART, parts);
  const float value_scale = v_scale ? v_scale[kv_head * v_scales] : 1;
  Result{out_view, lse_view, query_type}.store(sequence, head, whole.values, whole.maximum, whole.sum, value_scale);
}
