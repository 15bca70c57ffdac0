// Hopper vocabulary of the attention kernels' gradients: the list of a call's blocks of keys, made by the launch before; blocks of the grid take
// from it, one after another, and so need not find out by themselves what is next.
#pragma once
#include "flash_attention_bwd/sm90_attention_gradient.h"
#include "flash_attention_bwd/sm90_block_copy.h"

// A block of keys in the list.
template <class Keys> struct alignas(16) Listed {
  static constexpr int NONE = -1, END = -2;
  static constexpr int WORDS = 24;  // of 8 bytes, in the workspace
  Keys block;
  int64_t numbered;               // by kv head, in `broken`; or NONE; or, once, after all others, END
  int opens_from, closes_before;  // steps to whose sums no block of the same kv head before this one adds; none after it
};

// heads_together kv heads at a time, by keys, then by heads, where the kv heads of all rows of the batch are numbered through (packed: by
// keys of all sequences). batches_together: rows of the batch whose blocks of one kv head come after one another; all, or 1.
template <class Keys> struct BlockList {
  using Entry = Listed<Keys>;
  static_assert(sizeof(Entry) <= Entry::WORDS * sizeof(int64_t));
  ${by_blocks ? (packed ? 'MaskedSequences' : 'Sequences') : 'Sequences'} sequences;
  ${chunked ? 'ChunkVisibility' : 'Visibility'} visibility;
  RowSpace space;
  int kv_heads, heads_together, key_blocks, batches_together = 1;

  bool find(Keys& block, int numbered, int number) const {
    return number >= 0 && number < key_blocks && block.find(sequences, visibility, space, kv_heads, numbered, number);
  }
  // Of the n-th kv head that the list goes through; the last group's heads may be more than there are.
  int number_of(int n) const {
    return batches_together > 1 && n < batches_together * kv_heads ? n % batches_together * kv_heads + n / batches_together : n;
  }
  // Number i of the list; a whole warp calls it. NEIGHBOURS: also where it stands among those of its kv head.
  template <bool NEIGHBOURS> Entry make(int i) const {
    const int row = i / heads_together, numbered = number_of(row / key_blocks * heads_together + i % heads_together), number = row % key_blocks;
    Entry entry;
$if by_steps
    // Blocks that begin together go from the end, where all of them see; those that follow them, longest after shortest, meet at each step from the first on.
    entry.block.backwards = row / key_blocks % 2 == 0;
$end
    entry.numbered = find(entry.block, numbered, number) ? int64_t{numbered} * key_blocks + number : Entry::NONE;
    Keys other;
    entry.opens_from = NEIGHBOURS && find(other, numbered, number - 1) ? other.end_step : 0;
    entry.closes_before = NEIGHBOURS && find(other, numbered, number + 1) && other.steps() > 0 ? other.first_step : entry.block.end_step;
    return entry;
  }
  // narrow(block): takes steps away from a block, by a whole warp.
  template <int THREADS, bool NEIGHBOURS, class Narrow> void write(Entry* list, int64_t count, int64_t blocks, Narrow narrow) const {
#pragma unroll 1
    for (int64_t i = block_number() * (THREADS / WARP) + warp(); i < count; i += blocks * (THREADS / WARP)) {
      Entry entry = make<NEIGHBOURS>(static_cast<int>(i));
      if (entry.numbered >= 0) narrow(entry.block);
      if (lane() == 0) list[i] = entry;
    }
    if (block_number() == 0 && thread_x() == 0) list[count].numbered = Entry::END;
  }
  template <int THREADS, bool NEIGHBOURS> void write(Entry* list, int64_t count, int64_t blocks) const {
    write<THREADS, NEIGHBOURS>(list, count, blocks, [](const Keys&) {});
  }
};

// Entries in shared memory, in a ring of AHEAD; those of the blocks of a cluster are the same. READERS warps of each block read each.
template <class Entry, int READERS, int BLOCKS = 1> struct ListQueue {
  static constexpr uint32_t AHEAD = 2, BARRIER_BYTES = 16 * AHEAD;
  const Entry* list;
  int64_t count;      // without the one that says END
  int32_t* taken;     // how often clusters have taken `run` entries; 0 before
  int run;
  Entry* entries;
  uint32_t barriers;  // AHEAD pairs, full and empty
  uint32_t full(uint32_t round) const { return barriers + 16 * (round % AHEAD); }
  uint32_t empty(uint32_t round) const { return full(round) + 8; }
  static uint32_t parity(uint32_t round) { return round / AHEAD % 2; }
  Entry& entry(uint32_t round) const { return entries[round % AHEAD]; }
  static bool leads() { return BLOCKS == 1 || cluster_rank() == 0; }

  // By one thread, before fence_barrier_init.
  void init() const {
    for (uint32_t i = 0; i < AHEAD; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), BLOCKS * READERS + BLOCKS - 1);
    }
  }
  // By one thread of each block: block 0 gives all entries that the cluster takes to the readers; copy(entry) brings what belongs to each.
  template <class Copy> void give_out(Copy copy) const {
    int item = 0;
#pragma unroll 1
    for (uint32_t round = 0;; ++round, ++item) {
      if (leads()) {
        if (item % run == 0) item = atomicAdd(taken, 1) * run;
        barrier_wait(empty(round), parity(round) ^ 1);
        give(round, item < count ? item : count);
      }
      barrier_wait(full(round), parity(round));
      if (entry(round).numbered == Entry::END) return;
      if (entry(round).numbered >= 0) copy(entry(round));
      if (!leads()) barrier_release<BLOCKS>(empty(round), 0);
    }
  }
  void give(uint32_t round, int64_t item) const {
    if constexpr (BLOCKS == 1) {  // launched without a cluster, whose instructions are illegal then
      barrier_arrive_expect(full(round), sizeof(Entry));
      load_bytes(shared_pointer(&entry(round)), list + item, sizeof(Entry), full(round));
    } else {
      for (int to = 0; to < BLOCKS; ++to) barrier_arrive_expect_in_block(full(round), to, sizeof(Entry));
      load_bytes_multicast(shared_pointer(&entry(round)), list + item, sizeof(Entry), full(round), (1 << BLOCKS) - 1);
    }
  }
  // By all readers: work(entry) for each that is given out. A warp's lanes have read the entry when they meet; then one of them lets it be
  // written again. racecheck does not follow an order that goes through sync_warp() and another thread's arrival.
  template <class Work> void read(Work work) const {
#pragma unroll 1
    for (uint32_t round = 0;; ++round) {
      barrier_wait(full(round), parity(round));
      if (entry(round).numbered == Entry::END) return;
      if (entry(round).numbered >= 0) work(entry(round));
      sync_warp();
      if (lane() == 0) barrier_release<BLOCKS>(empty(round), 0);
    }
  }
};
