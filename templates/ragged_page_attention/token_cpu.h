// CPU vocabulary of ragged_page_attention: a sequence's only new token, whose heads meet its keys where they lie, as in page_attention. Part of a
// template, which has defined before: Rows, ROWS, DECODE_BLOCK, RaggedPages, Results.
#pragma once

using Places = Rows::Places;

static inline Floats lane_tokens() {
  Floats t;
  for (int lane = 0; lane < LANES; ++lane) t[lane] = static_cast<float>(lane % Rows::TOKENS);
  return t;
}

// Keys [begin, end), at most DECODE_BLOCK.
static void find_places(Places& places, const RaggedPages& pages, int64_t begin, int64_t end) {
  places.count = end - begin < DECODE_BLOCK ? end - begin : DECODE_BLOCK;
  int64_t i = 0, page = begin / pages.size, slot = begin % pages.size;
  for (; i < places.count; ++page, slot = 0) {
    int64_t at = pages.table[page] * pages.page_stride + slot * pages.slot_stride;
    for (; slot < pages.size && i < places.count; ++slot, ++i, at += pages.slot_stride)
      places.key[i] = pages.keys + at, places.value[i] = pages.values + at;
  }
  places.repeat_last();
}

// Rows [first_row, first_row + most) of the heads of a kv head.
static void attend_token(const Group& group, const RaggedSequence& sequence, const KeyRange& keys, const RaggedPages& pages, const Results& results,
                         const RowSource& source, int64_t kv_head, int64_t first_row, int64_t most, int64_t rows_a_head, float scale, float cap) {
  const int64_t first_head = kv_head * rows_a_head + first_row, count = smaller(most, rows_a_head - first_row), passes = (count + ROWS - 1) / ROWS;
  Rows* all = static_cast<Rows*>(group.shared);
  for (int64_t i = 0; i < passes * ROWS; ++i) {
    const int r = static_cast<int>(i % ROWS);
    const int64_t head = first_head + smaller(i, count - 1);
    source.load(all[i / ROWS].query[r], sequence.first, head, Rows::PADDED);
    all[i / ROWS].start(r, source.sinks(head));
  }
  const Range range = part_of(keys.first, keys.end, results.part, results.parts);
  const Scoring scoring(scale, cap);
  const Floats token = lane_tokens();
  alignas(64) float scores[DECODE_BLOCK * ROWS];
  Places places[2];
  int now = 0;
  find_places(places[now], pages, range.begin, range.end);
  for (int64_t key = range.begin; key < range.end; key += DECODE_BLOCK, now = 1 - now) {
    Places& next = places[1 - now];
    find_places(next, pages, smaller(key + DECODE_BLOCK, range.end), range.end);
    const int64_t block = places[now].count;
    const auto adjust = [&](Floats products, int64_t i) {
      const Floats s = scoring(products);
      return i + Rows::TOKENS > block ? (token < splat(static_cast<float>(block - i)) ? s : splat(-INFINITE)) : s;
    };
    for (int64_t pass = 0; pass < passes; ++pass) {
      const Floats largest = all[pass].score_block(places[now], next, scores, adjust);
      all[pass].weigh_block(largest, block, scores);
      all[pass].template add_values<false>(places[now], next, scores);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const Rows& rows = all[i / ROWS];
    const int r = static_cast<int>(i % ROWS);
    results.put(sequence.first, first_head + i, rows.output[r], rows.maximum[r * Rows::TOKENS], rows.sum_of(r));
  }
}
