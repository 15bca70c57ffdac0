// CPU vocabulary: a work item of attention by tiles of query rows, a chunk: its keys block by block, its rows tile by tile.
//
// A Chunk has heads q, k and v, a sequence, kv_head, `rows` rows in `tiles` tiles of ROWS, each row's `row`, and scratch: outputs
// [tile][feature][ROWS], maxima and denominators [tile][ROWS], scores [key of the block][ROWS].
#pragma once
#include "device/attention/attention_tile.h"

// Row tile `tile` of a chunk against keys [first, first + count), from a multiple of PANEL keys on; feature_rows: features that outputs
// have room for. False: no row sees one of them. every: the keys that all of its rows see.
template <int64_t PANEL, int VECTORS, class Chunk>
static inline bool start_tile(Tile<VECTORS>& t, const Chunk& c, int64_t tile, int64_t feature_rows, int64_t first, int64_t count,
                              KeyRange& every) {
  constexpr int64_t ROWS = Tile<VECTORS>::ROWS;
  t.row = c.row + tile * ROWS;
  t.scores = c.scores;
  t.outputs = c.outputs + tile * feature_rows * ROWS;
  t.maxima = c.maxima + tile * ROWS;
  t.denominators = c.denominators + tile * ROWS;
  t.batch = c.sequence.batch, t.sequence = c.sequence.index;
  t.unit = c.rules.scale * LOG2_E;
  KeyRange some;
  t.bounds(some, every);
  if (some.first >= first + count || some.end <= first) return false;
  t.first = first;
  t.begin = larger(some.first - first, 0) / PANEL * PANEL;
  t.end = smaller(some.end - first, count);
  return true;
}

// All keys that some row of the chunk sees, BLOCK at a time: load(first, count), then attend(tile, first, count) for every tile. The next
// block's keys of D and values of DV features are fetched meanwhile.
template <int64_t BLOCK, int64_t D, int64_t DV, class Chunk, class Load, class Attend>
static inline void attend_keys(const Chunk& c, Load load, Attend attend) {
  const KeyRange some = keys_of_rows(c.row, c.rows);
  for (int64_t first = some.first / BLOCK * BLOCK; first < some.end; first += BLOCK) {
    const int64_t count = smaller(BLOCK, some.end - first), next = first + count;
    load(first, count);
    for (int64_t tile = 0; tile < c.tiles; ++tile) {
      const int64_t ahead = smaller(BLOCK, some.end - next);
      const int64_t from = next + ahead * tile / c.tiles, to = next + ahead * (tile + 1) / c.tiles;
      prefetch(c.k, c.sequence, c.kv_head, from, to, D);
      prefetch(c.v, c.sequence, c.kv_head, from, to, DV);
      attend(tile, first, count);
    }
  }
}
