// CPU vocabulary of ragged_page_attention: a sequence's only new token, whose heads meet its keys where they lie, as in page_attention. Part of a
// template, which has defined before: Rows, ROWS, RowSource, Results.
#pragma once

// The query heads of some kv heads; `rows`: those of a kv head that are taken, all or, of a single kv head, a chunk of them.
struct TokenHeads {
  int64_t first, kv_heads, a_kv_head, rows;  // first: the first query head
  int64_t passes() const { return (rows + ROWS - 1) / ROWS; }
  int64_t query_head(int64_t kv_head, int64_t row) const { return first + kv_head * a_kv_head + row; }
};

// `of(kv head)`, counted from the first: its HeadCall.
template <class Of>
static void attend_token(const Group& group, int64_t token, const TokenHeads& heads, const PagedCache& cache, const Range& keys, float cap, Of of) {
  const int64_t passes = heads.passes();
  Rows* all = static_cast<Rows*>(group.shared);
  for (int64_t i = 0; i < heads.kv_heads * passes * ROWS; ++i) {
    const int64_t kv_head = i / ROWS / passes, row = i / ROWS % passes * ROWS + i % ROWS;
    const int64_t head = heads.query_head(kv_head, smaller(row, heads.rows - 1));
    const RowSource source = of(kv_head).source;
    Rows& rows = all[i / ROWS];
    const int r = static_cast<int>(i % ROWS);
    source.load(rows.query[r], token, head, Rows::PADDED);
    rows.start(r, source.sinks(head));
  }
  attend_keys(all, heads.kv_heads, passes, cache, keys, [&](int64_t kv_head) { return Scoring(of(kv_head).scale, cap); });
  for (int64_t i = 0; i < heads.kv_heads * heads.rows; ++i) {
    const int64_t kv_head = i / heads.rows, row = i % heads.rows;
    const Rows& rows = all[kv_head * passes + row / ROWS];
    const int r = static_cast<int>(row % ROWS);
    of(kv_head).results.put(token, heads.query_head(kv_head, row), rows.output[r], rows.maximum[r * Rows::TOKENS], rows.sum_of(r));
  }
}
