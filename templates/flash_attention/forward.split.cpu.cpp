// flash_attention, forward, for few query rows a kv head: a work item takes a part of its keys for all of them, block by block; parts are
// put together by a second launch. A row is one query token of one of the query heads that share the kv head: row = token * heads + head.
#include "device/attention/decode_rows.h"

$require D % 8 == 0 and Dv % 8 == 0
$require block_n % 16 == 0
using Element = ${ctype(E)};
constexpr int64_t D = ${D}, DV = ${Dv};  // head dim of q and k; of v and out
constexpr int ROWS = ${rows};            // query rows at a time
constexpr int BLOCK = ${block_n};        // keys a block
using RowGroup = DecodeRows<Element, D, DV, ROWS, BLOCK>;
using Places = RowGroup::Places;

// ROWS rows in the worker's scratch; past the last row: padding rows, with the last row's visible keys.
struct Pass {
  RowGroup group;
  KeyRange keys[ROWS];
};

#include "device/attention/token_places.h"

// Lane-wise: does row lane / TOKENS see key i + lane % TOKENS of the block that starts at key `first`?
struct Sight {
  Integers begin, end;

  Sight(const KeyRange (&keys)[ROWS], int64_t first, int64_t count) {
    const auto inside = [&](int64_t key) { return static_cast<int32_t>(key < first ? 0 : key - first < count ? key - first : count); };
    for (int lane = 0; lane < LANES; ++lane) {
      const int token = lane % RowGroup::TOKENS;
      begin[lane] = inside(keys[lane / RowGroup::TOKENS].first) - token, end[lane] = inside(keys[lane / RowGroup::TOKENS].end) - token;
    }
  }
  Integers operator()(int64_t i) const {
    const Integers key = splat_integer(static_cast<int32_t>(i));
    return (key >= begin) & (key < end);
  }
};

// Where the results go.
struct Result {
  const Heads<Element> out;
  const View& lse;

  void store(int64_t batch, int64_t token, int64_t head, const float* values, float maximum, float sum) const {
    store_row<DV>(values, sum == 0 ? 0 : 1 / sum, out.row(batch, token, head));
    if (is_given(lse)) static_cast<float*>(lse.data)[batch * lse.strides[0] + head * lse.strides[1] + token] = lse_of(maximum, sum);
  }
};

static void attend_block(Pass& pass, const Places& places, const Places& next, int64_t first, const KeyRange& every,
                         const Scoring& scoring) {
  alignas(64) float scores[BLOCK * ROWS];
  const int64_t count = places.count;
  if (first >= every.first && first + count <= every.end && count % RowGroup::TOKENS == 0) {
    const Floats most = pass.group.score_block(places, next, scores, [&](Floats products, int64_t) { return scoring(products); });
    pass.group.weigh_block(most, count, scores);
    return pass.group.template add_values<false>(places, next, scores);
  }
  const Sight sees(pass.keys, first, count);
  const Floats most = pass.group.score_block(places, next, scores,
                                             [&](Floats products, int64_t i) { return sees(i) ? scoring(products) : splat(-INFINITE); });
  pass.group.weigh_block(most, count, scores);
  pass.group.template add_values<true>(places, next, scores);
}

// Item (x, y, z): part y of the keys of kv heads x * heads_together ... of row z of the batch, which take turns with blocks of keys: a token's
// keys lie together in memory, and are asked for in that order.
static void attend(${parameters('attend')}, const Group& group) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const int64_t part = group.y, first_head = group.x * heads_together, batch = group.z, heads = k.heads > 0 ? q.heads / k.heads : 1;
  const int64_t kv_heads = k.heads - first_head < heads_together ? k.heads - first_head : heads_together;
  const int64_t rows = q.tokens * heads, passes = (rows + ROWS - 1) / ROWS, position = offset_given ? offset : k.tokens - q.tokens;
  const Visibility visibility{causal, window_left, window_right};
  Pass* all = static_cast<Pass*>(group.shared);
  KeyRange some{__INT64_MAX__, 0}, every{0, k.tokens};
  for (int64_t i = 0; i < kv_heads * passes * ROWS; ++i) {
    const int r = static_cast<int>(i % ROWS);
    const int64_t row = i / ROWS % passes * ROWS + r, asked = row < rows ? row : rows - 1;
    const int64_t token = asked / heads, head = (first_head + i / ROWS / passes) * heads + asked % heads;
    const KeyRange keys = visible_keys(visibility, token, position, k.tokens);
    Sinks sinks(softmax_aux_view, sinks_type, head, q.heads);
    if (part > 0) sinks.count = 0;
    Pass& pass = all[i / ROWS];
    pass.keys[r] = keys;
    pass.group.load_query(r, row < rows ? q.row(batch, token, head) : nullptr);
    pass.group.start(r, sinks);
    if (keys.first < keys.end) some = {keys.first < some.first ? keys.first : some.first, keys.end > some.end ? keys.end : some.end};
    every = {keys.first > every.first ? keys.first : every.first, keys.end < every.end ? keys.end : every.end};
  }

  const Range range = some.first < some.end ? part_of(some.first, some.end, part, parts) : Range{0, 0};
  const Cache cache{k.row(batch, 0, first_head), v.row(batch, 0, first_head), k.token_stride, k.head_stride, v.token_stride, v.head_stride};
  const Scoring scoring(softmax_scale, logits_soft_cap);
  Places now, ahead;
  for (int64_t key = range.begin; key < range.end; key += BLOCK) {
    const int64_t next = key + BLOCK < range.end ? key + BLOCK : range.end, end = next + BLOCK < range.end ? next + BLOCK : range.end;
    for (int64_t head = 0; head < kv_heads; ++head) {
      cache.find(now, head, key, next);
      cache.find_ahead(ahead, kv_heads, head * BLOCK, next, end);
      for (int64_t pass = 0; pass < passes; ++pass) attend_block(all[head * passes + pass], now, ahead, key, every, scoring);
    }
  }

  const Result result{out, lse_view};
  for (int64_t i = 0; i < kv_heads * rows; ++i) {
    const int64_t row = i % rows, kv_head = first_head + i / rows;
    const RowGroup& done = all[i / rows * passes + row / ROWS].group;
    const int r = static_cast<int>(row % ROWS);
    if (parts > 1)
      done.store_part(r, partial + (((batch * k.heads + kv_head) * rows + row) * parts + part) * RowGroup::PART);
    else
      result.store(batch, row / heads, kv_head * heads + row % heads, done.output[r], done.maximum[r * RowGroup::TOKENS], done.sum_of(r));
  }
}

// Item (x, y, z): the parts of row x of kv head y of row z of the batch, put together.
static void combine(${parameters('combine')}, const Group& group) {
  const int64_t row = group.x, kv_head = group.y, batch = group.z;
  const RowGroup::Whole whole(partial + ((batch * group.grid_y + kv_head) * group.grid_x + row) * parts * RowGroup::PART, parts);
  const int64_t head = kv_head * heads_a_kv_head + row % heads_a_kv_head;
  Result{Heads<Element>(out_view), lse_view}.store(batch, row / heads_a_kv_head, head, whole.values, whole.maximum, whole.sum);
}
