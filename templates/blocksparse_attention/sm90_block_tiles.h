// Hopper vocabulary: tiles of attention that go by a list of the steps that a mask of blocks leaves, and by chunks of positions.
#pragma once
#include "blocksparse_attention/step_list.h"
#include "device/sm90/sm90_attention_tiles.h"

// The steps of a tile, which lies in one block of queries.
struct TileSteps : StepList<2> {
  int32_t* of(const AttentionTile& tile) const { return row_of(tile.batch, tile.head, tile.first_row); }
  // A tile's steps become places in the list.
  void take(AttentionTile& tile) const {
    const RowRange range = places(of(tile), tile.first, tile.end);
    tile.first = range.first, tile.end = range.end;
  }
  // Whether a row of a tile may see a key; step_keys: of a step.
  bool has(const AttentionTile& tile, int key, int step_keys) const {
    const int32_t* const before = of(tile) + row_words + key / step_keys;
    return before[0] < before[1];
  }
};

$if packed
// Tokens of the mask's blocks, which may be more than there are.
static inline int cut_to(int64_t tokens) { return static_cast<int>(tokens < (1 << 30) ? tokens : 1 << 30); }

$end
// AttentionTiles with chunks of positions: a query sees keys of its own chunk, up to itself.
struct ChunkedTiles : AttentionTiles {
  int chunk;  // positions; 0: off
$if packed
  int mask_queries, mask_keys;  // a sequence's tokens after them see nothing, and are not seen
$end

  RowRange range(const AttentionTile& tile, int row) const {
    const RowRange keys = AttentionTiles::range(tile, row);
    if (chunk == 0) return keys;
    const int position = tile.first_row + row + tile.offset, begin = position < 0 ? 0 : position - position % chunk;
    const int end = position < 0 ? 0 : keys.end < position + 1 ? keys.end : position + 1, first = keys.first > begin ? keys.first : begin;
    return {first < end ? first : end, end};
  }

  template <int ROWS, int KEYS> bool find(int number, AttentionTile& tile) const {
    const bool found = AttentionTiles::find<ROWS, KEYS>(number, tile);
$if packed
    if (!found) return false;
    if (tile.past_the_end || tile.first_row >= mask_queries) tile.keys = 0;
    if (tile.keys > mask_keys) tile.keys = mask_keys;
    AttentionTiles::find_steps<KEYS>(tile);
$end
    if (chunk == 0) return found;
    const int seeing = bounded() ? tile.seeing : tile.rows;
    const RowRange low = range(tile, 0), high = range(tile, seeing > 0 ? seeing - 1 : 0);
    const int first = low.first / KEYS, end = low.first < high.end ? (high.end + KEYS - 1) / KEYS : first;
    tile.first = tile.first > first ? tile.first : first;
    tile.end = tile.end < end ? tile.end : end;
    if (tile.end < tile.first) tile.end = tile.first;
    const int first_whole = (high.first + KEYS - 1) / KEYS, end_whole = low.end / KEYS;
    tile.first_whole = tile.first_whole > first_whole ? tile.first_whole : first_whole;
    tile.end_whole = tile.end_whole < end_whole ? tile.end_whole : end_whole;
    tile.hides = true;
    return found;
  }
};
