// Hopper vocabulary of the attention kernels: the tiles of a call, each some query rows of one head against a range of its keys, in the order
// in which blocks take them.
#pragma once
#include "device/attention/attention_rows.h"

// Rows [first_row, first_row + rows) of a sequence and a query head. Steps are of keys, from the sequence's first.
struct AttentionTile {
  static AttentionTile none() {
    AttentionTile tile;
    tile.rows = tile.first = tile.end = 0;
    return tile;
  }
  bool is_none() const { return rows == 0; }

  int batch, head, first_row, rows;
  int first_query, first_key;     // packed: tokens before the sequence's
  int first, end;                 // steps that some row sees; empty: first == end
  int first_whole, end_whole;     // of them, those of which every row sees every key
  int keys, offset;               // of the sequence; query i stands at position i + offset
  bool past_the_end;              // packed: tokens after the last sequence
  bool hides;                     // there are keys in its steps that some row does not see
  int16_t seeing;                 // with lengths: rows of it that are no padding
  float reference, sum;           // the softmax of a row before its keys

  Sequence sequence() const { return {batch, batch, first_query, first_key, 0, keys, offset, past_the_end}; }
  RowPlace place(int row) const { return {first_row + row, head}; }
};

// The keys that a query at a position sees, where positions and keys are below 2^30: no sum overflows.
struct KeyWindow {
  static constexpr int UNBOUNDED = 1 << 30;
  int left, right;
  KeyWindow(bool causal, int64_t window_left, int64_t window_right)
      : left(window_left < 0 ? UNBOUNDED : static_cast<int>(window_left)),
        right(causal ? 0 : window_right < 0 ? UNBOUNDED : static_cast<int>(window_right)) {}

  RowRange at(int position, int keys) const {
    const int end = position + right + 1 < 0 ? 0 : position + right + 1 < keys ? position + right + 1 : keys;
    const int first = position - left < 0 ? 0 : position - left < end ? position - left : end;
    return {first, end};
  }
};

// A call's tiles by number: heads in groups, whose keys and values fit in the L2 cache together; of a group first the last rows of all its
// heads: with a causal mask they have most keys, and the last tiles are short. The last group may be larger: by its short tiles all end together.
struct AttentionTiles {
  Sequences sequences;
  bool causal;
  int64_t window_left, window_right;
  int heads;           // query heads
  int row_blocks;      // of a sequence; packed: of all, or more
  int heads_together;  // of a group
  int count;
  bool numbers_sequences = false;  // packed: `batch` of a tile is the sequence's number
  int last_together = 0;           // heads of the last group, where it is not as the others

  bool bounded() const { return sequences.query_lengths || sequences.key_lengths; }

  // Every lane calls it. False: there is no such tile (packed).
  template <int ROWS, int KEYS> bool find(int number, AttentionTile& tile) const {
    const int all_heads = sequences.cum_queries ? heads : heads * static_cast<int>(sequences.count);
    const int grouped = all_heads - last_together;  // heads before the last group
    const bool last = last_together > 0 && number >= grouped * row_blocks;
    const int begin = last ? grouped : 0, end = last ? all_heads : grouped, together = last ? last_together : heads_together;
    number -= begin * row_blocks;
    const int group_tiles = together * row_blocks, group = number / group_tiles, in_group = number - group * group_tiles;
    const int first_head = begin + group * together, width = end - first_head < together ? end - first_head : together;
    int item = in_group / width;
    const int numbered = first_head + in_group - item * width;
    int batch = sequences.cum_queries ? 0 : numbered / heads;
    tile.head = numbered - batch * heads;
    if (bounded()) batch = ranked(batch);
    tile.batch = batch;
    tile.first_query = tile.first_key = 0, tile.past_the_end = false;
    int blocks = row_blocks, queries = static_cast<int>(sequences.queries);
    tile.keys = static_cast<int>(sequences.keys), tile.offset = static_cast<int>(sequences.offset_given ? sequences.offset : sequences.keys - sequences.queries);
    if (sequences.cum_queries) {
      Sequence sequence;
      int64_t item_of_sequence = item, items;
      if (!find_sequence(sequences, item_of_sequence, ROWS, 1, sequence, items)) return false;
      item = static_cast<int>(item_of_sequence), blocks = static_cast<int>(items), queries = static_cast<int>(sequence.queries);
      tile.first_query = static_cast<int>(sequence.first_query), tile.first_key = static_cast<int>(sequence.first_key);
      tile.keys = static_cast<int>(sequence.keys), tile.offset = static_cast<int>(sequence.offset), tile.past_the_end = sequence.past_the_end;
      if (numbers_sequences) tile.batch = static_cast<int>(sequence.index);
    }
$if slides
    // With a causal mask a head's last tile ends with its rows, and the first one, with fewest keys, is the short one. It has whole warps of rows:
    // rows that are the next tile's are stored there alone.
$if latent  // whatever the mask is: a choice spills
    const int end_row = ((queries + 15) & -16) - item * ROWS;
$else
    const int end_row = causal ? (queries + 15) / 16 * 16 - item * ROWS : (blocks - item) * ROWS;
$end
    tile.first_row = end_row > ROWS ? end_row - ROWS : 0;
    tile.rows = (end_row < queries ? end_row : queries) - tile.first_row;
$else
    tile.first_row = (blocks - 1 - item) * ROWS;
    if (bounded()) {
      const Sequence sequence = sequences[batch];
      const int seeing = static_cast<int>(sequence.seeing()), some = (seeing + ROWS - 1) / ROWS;  // blocks of rows that may see keys; others come last
      tile.keys = static_cast<int>(sequence.keys), tile.offset = static_cast<int>(sequence.offset);
      tile.first_row = (item < some ? some - 1 - item : item) * ROWS;
      const int left = seeing - tile.first_row;
      tile.seeing = static_cast<int16_t>(left < 0 ? 0 : left < ROWS ? left : ROWS);
    }
    tile.rows = queries - tile.first_row < ROWS ? queries - tile.first_row : ROWS;
$end
    find_steps<KEYS>(tile);
    return true;
  }

  // With lengths: rows of the batch with many keys come first, so that the last tiles are short. Of more than a warp knows, as they are.
  int ranked(int rank) const {
    const int count = static_cast<int>(sequences.count);
    if (count > WARP) return rank;
    const int mine = lane() < count ? static_cast<int>(sequences[lane()].keys) : -1;
    int before = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int other = shuffle(mine, i);
      before += other > mine || (other == mine && i < lane());
    }
    int found = lane() < count && before == rank ? lane() : 0;
    for (int mask = WARP / 2; mask > 0; mask /= 2) found |= shuffle_xor(found, mask);
    return found;
  }

  RowRange range(const AttentionTile& tile, int row) const {
    if (bounded() && row >= tile.seeing) return {tile.keys, tile.keys};
    return KeyWindow(causal, window_left, window_right).at(tile.first_row + row + tile.offset, tile.keys);
  }

  // Ranges move forwards with the rows.
  template <int KEYS> void find_steps(AttentionTile& tile) const {
    const bool padded = bounded() && tile.seeing < tile.rows;
    const RowRange low = range(tile, 0), high = range(tile, padded && tile.seeing > 0 ? tile.seeing - 1 : tile.rows - 1);
    const int some = low.first, some_end = high.end, all = high.first, all_end = low.end;
    tile.first = some / KEYS;
    tile.end = some < some_end ? (some_end + KEYS - 1) / KEYS : tile.first;
    tile.first_whole = (all + KEYS - 1) / KEYS;
    tile.end_whole = all_end / KEYS;
    tile.hides = some < all || all_end < some_end || some % KEYS != 0 || (some_end % KEYS != 0 && (sequences.cum_keys || some_end < tile.keys));
    if (padded) tile.end_whole = tile.first_whole;
    if (bounded()) tile.hides = true;
  }
};

// The numbers of a block's tiles, or of a cluster's: every other round they are taken from the other end, so that none gets the longest of each.
template <int CLUSTER> struct AttentionTurns {
  int round = 0;
  static int own() { return static_cast<int>(block_x()) / CLUSTER; }
  static int takers() { return static_cast<int>(grid_x()) / CLUSTER; }
  int next() {
    const int blocks = takers(), number = round * blocks + (round % 2 ? blocks - 1 - own() : own());
    ++round;
    return number;
  }
};

// Numbers of a block's tiles. `taken`: how many are taken beside the first of each block, then whose each tile is.
template <bool DYNAMIC, int CLUSTER> struct TileNumbers {
  static_assert(!DYNAMIC || CLUSTER == 1);
  int32_t* taken;
  AttentionTurns<CLUSTER> turns = {};

  int first() { return DYNAMIC ? block_x() : turns.next(); }
  int take() {
    if constexpr (!DYNAMIC) return turns.next();
    int number = 0;
    if (lane() == 0) number = atomicAdd(taken, 1) + grid_x();
    return shuffle(number, 0);
  }
  void own(int number) const {
    if (DYNAMIC && lane() == 0) taken[1 + number] = block_x();
  }
  bool owns(int number) const { return taken[1 + number] == block_x(); }
};
