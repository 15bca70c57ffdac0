// GPU vocabulary of the attention kernels: the query rows of a block, and which keys they see.
#pragma once
#include "device/attention/attention.h"
#include "device/attention/softmax.h"
#include "device/tile/tile.h"

struct RowRange {
  int first, end;  // keys, end excluded
};

struct RowPlace {
  int token;  // of the sequence
  int head;   // query head
};

// Rows [first_row, first_row + count) of a sequence and kv head; `heads` rows a token. Local rows from `count` on are copies of the last.
// Rows, keys and positions of a sequence are below 2^31.
struct Rows {
  RowRange* range;  // shared memory, one a row
  int first_row, count, first_head, heads;

  RowPlace place(int row) const {
    const unsigned at = first_row + (row < count ? row : count - 1);
    if (heads == 1) return {static_cast<int>(at), first_head};
    return {static_cast<int>(at / heads), first_head + static_cast<int>(at % heads)};
  }

  // Every thread must call it; ends with a barrier.
  template <int THREADS, int ROWS> void find_ranges(const Visibility& rule, const Sequence& sequence) const {
#pragma unroll 1
    for (int row = thread_x(); row < ROWS; row += THREADS) {
      const KeyRange keys = visible_keys(rule, sequence, place(row).token);
      range[row] = {static_cast<int>(keys.first), static_cast<int>(keys.end)};
    }
    sync_block();
  }

  // Ranges move forwards with the rows: keys that any, or all, of rows [row, row + n) see.
  RowRange some_see(int row, int n) const { return {range[row].first, range[row + n - 1].end}; }
  RowRange all_see(int row, int n) const { return {range[row + n - 1].first, range[row].end}; }

  // Whether rows follow one another at a tensor's token stride.
  bool evenly() const { return heads == 1; }
  // A local row of q or out.
  template <class T> T* row_of(const Heads<T>& x, const Sequence& sequence, int row) const {
    const RowPlace at = place(row);
    return x.row(sequence.batch, sequence.first_query + at.token, at.head);
  }

  template <int THREADS, int FILLED, class T, int ROWS, int COLUMNS>
  void copy_queries(const Tile<T, ROWS, COLUMNS>& tile, const Heads<const T>& q, const Sequence& sequence) const {
    if (evenly()) {
      TileReader<T, ROWS, COLUMNS, THREADS, FILLED>(row_of(q, sequence, 0), q.token_stride, count).copy_async(tile);
      return;
    }
    constexpr int CHUNKS = COLUMNS / 8;
#pragma unroll 1
    for (int i = thread_x(); i < ROWS * CHUNKS; i += THREADS) {
      const int row = i / CHUNKS, column = i % CHUNKS * 8;
      copy_async_16(tile.at(row, column), row_of(q, sequence, row) + column, row < count && column < FILLED);
    }
  }
};

// The log-sum-exp of a row, from its reference (in units of log 2) and its denominator relative to it.
static inline void store_lse(const View& lse, const Sequence& sequence, const RowPlace& place, float reference, float sum) {
  if (!is_given(lse)) return;
  const int64_t at = (lse.rank == 3 ? sequence.batch * lse.strides[0] : 0) + place.head * lse.strides[lse.rank - 2];
  static_cast<float*>(lse.data)[at + sequence.first_query + place.token] = sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum);
}

// The softmax of a row before its keys: its sinks, whose weights one of the lanes that share the row counts (`counts`).
static inline void start_row(const View& aux, int64_t type, const RowPlace& place, int64_t heads, const Sequence& sequence, bool counts,
                             float& reference, float& denominator) {
  const Sinks sinks(aux, type, place.head, heads);
  const int64_t count = sequence.past_the_end ? 0 : sinks.count;
  reference = LOWEST;
  denominator = 0;
#pragma unroll 1
  for (int64_t i = 0; i < count; ++i) reference = larger_of(reference, sinks[i] * LOG2_E);
  if (!counts) return;
#pragma unroll 1
  for (int64_t i = 0; i < count; ++i) denominator += exp2_of(sinks[i] * LOG2_E - reference);
}

// Sequences::find() by a whole warp: 32 sequences at a time.
static inline bool find_sequence(const Sequences& sequences, int64_t& item, int64_t item_rows, int64_t token_rows, Sequence& sequence,
                                 int64_t& items) {
#pragma unroll 1
  for (int64_t base = 0; base <= sequences.count; base += WARP) {
    const int64_t mine = base + lane();
    int here = 0;  // items of my sequence, then of all up to mine
    if (mine <= sequences.count) here = static_cast<int>((sequences[mine].queries * token_rows + item_rows - 1) / item_rows);
    const int own = here;
    for (int by = 1; by < WARP; by *= 2) {
      const int before = shuffle(here, lane() - by < 0 ? lane() : lane() - by);
      if (lane() >= by) here += before;
    }
    int found = item < here ? lane() : WARP;  // the first lane whose sequences reach the item
    for (int mask = WARP / 2; mask > 0; mask /= 2) {
      const int other = shuffle_xor(found, mask);
      found = other < found ? other : found;
    }
    if (found < WARP) {
      items = shuffle(own, found);
      item -= shuffle(here, found) - items;
      sequence = sequences[base + found];
      return true;
    }
    item -= shuffle(here, WARP - 1);
  }
  return false;
}
