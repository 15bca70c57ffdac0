// GPU vocabulary: rows of one block of queries, of one head or of several that share the mask, by the definition.
#pragma once
#include "device/attention/attention_plain.h"
#include "blocksparse_attention/key_blocks.h"

// Rows::find_ranges(), in chunks. Every thread must call it; ends with a barrier.
template <int THREADS, int ROWS>
static inline void find_ranges_in_chunks(const Rows& rows, const Visibility& rule, const Sequence& sequence, int64_t chunk) {
#pragma unroll 1
  for (int row = thread_x(); row < ROWS; row += THREADS) {
    const int token = rows.place(row).token;
    const KeyRange keys = within_chunk(visible_keys(rule, sequence, token), sequence, token, chunk);
    rows.range[row] = {static_cast<int>(keys.first), static_cast<int>(keys.end)};
  }
  sync_block();
}

static inline RowRange both(const RowRange& a, const RowRange& b) {
  const RowRange range{a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
  return {range.first, range.end > range.first ? range.end : range.first};
}

// attend_plainly() of rows that see the same blocks: each run of them is a range of keys that cuts the rows' own.
template <int THREADS, bool ADJUSTED, bool CAPPED, bool DROPPED, int ROWS, int FEATURES, class T>
static __attribute__((noinline)) void attend_blocks_plainly(const Heads<const T>& q, const Heads<const T>& k, const Heads<const T>& v,
                                                            const Heads<T>& out, const ScoreRules& rules, const Sequence& sequence,
                                                            const View& aux, int64_t aux_type, const View& lse, const Rows& rows,
                                                            const KeyBlocks& blocks, int kv_head, int64_t head_dim, int64_t value_dim,
                                                            float* queries) {
  float* mine = queries + warp() * ROWS * head_dim;
#pragma unroll 1
  for (int first = warp() * ROWS; first < rows.count; first += THREADS / WARP * ROWS) {
    PlainRows<T, ADJUSTED, CAPPED, DROPPED, ROWS, FEATURES> p{k, v, out, rules, sequence, lse, mine, head_dim, value_dim, kv_head, {}, {}, {}, {}, {}};
    RowRange seen[ROWS], all{0x7fffffff, 0};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int at = first + r < rows.count ? first + r : rows.count - 1;
      p.place[r] = rows.place(at);
      seen[r] = rows.range[at];
      p.row[r] = rules_of<ADJUSTED>(rules, sequence, seen[r], p.place[r]);
      all = {seen[r].first < all.first ? seen[r].first : all.first, seen[r].end > all.end ? seen[r].end : all.end};
      start_row(aux, aux_type, p.place[r], q.heads, sequence, lane() == 0, p.reference[r], p.denominator[r]);
      const T* from = q.row(sequence.batch, sequence.first_query + p.place[r].token, p.place[r].head);
#pragma unroll 1
      for (int64_t d = lane(); d < head_dim; d += WARP) mine[r * head_dim + d] = to_float(from[d]);
    }
    sync_warp();
#pragma unroll 1
    for (KeyRange run = blocks.next(all.first, all.end); run.first < run.end; run = blocks.next(run.end, all.end)) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) p.row[r].range = both(seen[r], {static_cast<int>(run.first), static_cast<int>(run.end)});
#pragma unroll 1
      for (int key = static_cast<int>(run.first); key < run.end; key += WARP) {
        float weight[ROWS];
        p.weigh(key + lane(), weight);
        p.add_values(key, weight);
      }
    }
    p.finish(rows.count - first);
    sync_warp();
  }
}
