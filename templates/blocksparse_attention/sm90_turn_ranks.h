// Hopper vocabulary of blocksparse_attention's gradients whose results are the same bits each time: blocks of keys add to the sums of a tile of rows in the
// order of their keys, as flash_attention_bwd/sm90_attention_order.h has it, but of a mask of blocks only some add. How many come before a turn is known
// from the mask, and what windows and chunks keep away from it comes before those: a tile's count begins there, and not at 0.
//
// No block waits for ever. One waits for blocks of the same kv head with lower keys, and for sums at 0, which blocks of earlier heads make
// (sm90_sums_ahead.h): all of them are before it in the list (sm90_attention_list.h). The list is taken in order, by a counter, and whoever takes a block
// has taken only earlier ones before, and computes them first. So of the blocks that are not done the first in the list is being computed, and all that
// it waits for is done, whatever the order in which blocks of the grid run.
// Within a CTA the thread that copies opens turns, each when queries and gradients of the turn after it are on their way: all that a warpgroup needs
// before it adds. Another warp counts additions; before it does so for a block, it waits for nothing else but sums at 0. Two teams of a CTA share no
// warp but those that make dq, for which nobody waits.
#pragma once
#include "blocksparse_attention/sm90_listed_turns.h"

// Of steps of queries and blocks of the mask's keys: how many blocks of keys of the kernel's size, of those that the mask leaves to the step's queries,
// come before the mask's block.
struct TurnRanks {
  int32_t* words;  // [batches of the mask][its heads][its blocks of keys][row_words]
  const View& mask;
  int row_words, steps_a_block;
  int blocks;  // of keys, in one of the mask

  int32_t* row(int64_t of_heads, int64_t key_block) const { return words + (of_heads * mask.shape[3] + key_block) * row_words; }

  // By blocks of the grid from `first_block` on: a warp for each row of the mask.
  template <int THREADS> void make(int64_t first_block) const {
    const int64_t number = (block_x() - first_block) * (THREADS / WARP) + warp(), of_heads = number / mask.shape[2], at = number % mask.shape[2];
    if (block_x() < first_block || of_heads >= mask.shape[0] * mask.shape[1]) return;
    const bool* const on = static_cast<const bool*>(mask.data) + row_offset(mask, of_heads / mask.shape[1], of_heads % mask.shape[1], at);
    int found = 0;
#pragma unroll 1
    for (int64_t first = 0; first < mask.shape[3]; first += WARP) {
      const int64_t mine = first + lane();
      const int is_on = mine < mask.shape[3] && on[mine] ? 1 : 0;
      int up_to = is_on;  // of lanes up to this one
#pragma unroll
      for (int by = 1; by < WARP; by *= 2) {
        const int other = shuffle(up_to, lane() < by ? lane() : lane() - by);
        if (lane() >= by) up_to += other;
      }
      const int before = (found + up_to - is_on) * blocks;
      found += shuffle(up_to, WARP - 1);
      if (mine >= mask.shape[3]) continue;
      int32_t* const to = row(of_heads, mine) + at * steps_a_block;
#pragma unroll 1
      for (int step = 0; step < steps_a_block; ++step) to[step] = before;
    }
  }

  // Of the mask's blocks of keys that rows from `first` on have, how many the kernel's blocks come before all that any of them sees. KEYS: of such a block.
  int unseen(const BlockVisibility& visibility, const Sequence& sequence, int64_t head, int64_t first, int keys) const {
    if (first >= sequence.seeing()) return 0;
    const int64_t key = visible_keys(visibility, sequence, first).first, block = key / visibility.block_k, query_block = first / visibility.block_q;
    if (key < keys || key >= sequence.keys) return 0;
    const int64_t batch = mask.shape[0] == 1 ? 0 : sequence.index, of_heads = batch * mask.shape[1] + (mask.shape[1] == 1 ? 0 : head);
    const bool is_on = static_cast<const bool*>(mask.data)[row_offset(mask, batch, of_heads % mask.shape[1], query_block) + block];
    return row(of_heads, block)[first * steps_a_block / visibility.block_q] + (is_on ? static_cast<int>(key % visibility.block_k / keys) : 0);
  }
};

// Counts of tiles of ROWS rows, of each head in the workspace, begin with the blocks that come before all that they see. By a grid. PARTS: as in AddOrder.
template <int THREADS, int ROWS, int PARTS, class All>
static inline void start_counts(int32_t* counts, int64_t count, const TurnRanks& ranks, const BlockVisibility& visibility, const All& sequences, int64_t heads,
                                int64_t space_rows) {
  const int64_t tiles_a_head = space_rows / ROWS;
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * THREADS + thread_x(); i < count; i += int64_t{grid_x()} * THREADS) {
    const int64_t numbered = i / tiles_a_head, head = numbered % heads;
$if packed
    int64_t first;
    const Sequence sequence = sequences.cut(sequence_of_rows<ROWS>(sequences, i % tiles_a_head, first));
$else
    const int64_t first = i % tiles_a_head * ROWS;
    const Sequence sequence = sequences[numbered / heads];
$end
    counts[i] = ranks.unseen(visibility, sequence, head, first, PARTS * 64) * (PARTS == 2 ? 0x10001 : 1);
  }
}

// A turn that is to add next, as AddOrder::open_turn() takes it.
struct HeldTurn {
  int number, block, before;
};

// The turn at which the thread that tells of additions stands, by team: it goes through the lists by itself, later than the one that copies.
__shared__ volatile ListPlace told_places[${keys == 64 ? 2 : 1}];

// That turn, as AddOrder::pass_turns() takes one.
template <int TEAM> struct AddedTurn {
  int number, block;

  template <class Block> AddedTurn(const Block&, int number) : number(number), block(place().block) {}
  template <class Block> void next(const Block&) { ++number; }
  static volatile ListPlace& place() { return told_places[TEAM]; }
};
