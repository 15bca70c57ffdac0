// Hopper vocabulary of the attention kernels' gradients: blocks of keys, and the turns of queries that go through them.
#pragma once
#include "flash_attention_bwd/attention_backward.h"
$if chunked
#include "blocksparse_attention/sm90_chunks.h"
$end
$if by_steps
#include "flash_attention_bwd/turns_by_steps.h"
$end
#include "device/sm90.h"

// KEYS keys of one kv head, of which PARTS warpgroups have 64 each, and ROWS queries a turn. BOUNDED: rows of the batch have their own lengths.
// ORDERED: for turns that go backwards.
template <int ROWS, int KEYS, int PARTS, bool PACKED, bool BOUNDED, bool ORDERED> struct KeyBlock {
  static constexpr int COUNT = KEYS, ROW_COUNT = ROWS;
  Sequence sequence;
  int kv_head, first_head, first_key;
  int keys;                                  // from first_key on, past the last sequence's, or a row's length, too
  int first_step, end_step;                  // ROWS queries each: those of which some see some of the keys; of each query head
  int first_whole[PARTS], end_whole[PARTS];  // every query sees every key of the part
  int64_t first_row;                         // of the first query head of the group, in the workspace
  int blocks_a_head, blocks_a_group;         // ROWS rows each, in the workspace; of all query heads of the group
$if by_blocks
  ListsOfKeys lists;                         // of the steps that a mask of blocks leaves
$end
$if by_steps
  bool backwards;                            // turns go from the last step to the first
$end

  int steps() const { return end_step - first_step; }
  int64_t token() const { return sequence.first_key + first_key; }
  int64_t seeing() const { return BOUNDED ? sequence.seeing() : sequence.queries; }
  bool is_whole(int part, int step) const { return step >= first_whole[part] && step < end_whole[part]; }
  bool hides(int part) const { return first_step < first_whole[part] || end_whole[part] < end_step; }

$if by_blocks and packed
  // The `block`-th KEYS keys of all sequences, of kv head `numbered`. A whole warp calls it. False: there is no such head. After the last keys there are
  // blocks without any, which do what each block of a head does for others.
  bool find(const MaskedSequences& sequences, const ${chunked ? 'ChunkVisibility' : 'Visibility'}& visibility, const RowSpace& space, int kv_heads, int numbered, int block) {
    kv_head = numbered;
    if (kv_head >= kv_heads) return false;
    int64_t item = block, all_keys = 0;
    if (!find_keys(sequences, item, KEYS, sequence, all_keys)) sequence = sequences[sequences.count], item = all_keys = 0;
    sequence = sequences.cut(sequence);
    sequence.queries = sequence.seeing(), sequence.padding = 0;
$else
  // The `block`-th KEYS keys (packed: of all sequences) of kv head `numbered`, where those of all rows of the batch are numbered through. A
  // whole warp calls it. False: there are none.
  bool find(const Sequences& sequences, const ${chunked ? 'ChunkVisibility' : 'Visibility'}& visibility, const RowSpace& space, int kv_heads, int numbered, int block) {
    const int batch = PACKED ? 0 : numbered / kv_heads;
    kv_head = numbered - batch * kv_heads;
    if (kv_head >= kv_heads || (!PACKED && batch >= sequences.count)) return false;  // the last group of heads may be smaller
    sequence = sequences[batch];
    int64_t item = block, all_keys = BOUNDED ? sequences.keys : sequence.keys;
    if (PACKED && !find_keys(sequences, item, KEYS, sequence, all_keys)) return false;
$end
    first_head = kv_head * static_cast<int>(space.heads / kv_heads);
    first_key = static_cast<int>(item) * KEYS, keys = static_cast<int>(all_keys) - first_key;
    first_row = space.first(sequence, first_head), blocks_a_head = static_cast<int>(space.rows / ROWS);
    if (${by_steps ? 'true' : 'ORDERED'}) blocks_a_group = blocks_a_head * static_cast<int>(space.heads / kv_heads);
    find_steps(visibility, static_cast<int>(sequence.keys), static_cast<int>(seeing()));
    return true;
  }

  void find_steps(const ${chunked ? 'ChunkVisibility' : 'Visibility'}& visibility, int all_keys, int queries) {
    const auto seeing = [&](int key) { return seeing_queries(visibility, key, sequence.offset, queries); };
    const bool fills = !PACKED && (!BOUNDED || sequence.padding == 0);  // rows past the last query are 0
    const int end_key = first_key + KEYS < all_keys ? first_key + KEYS : all_keys;
    const RowRange of_first = seeing(first_key), of_last = seeing(end_key - 1);
    const bool some = first_key < all_keys && of_first.first < of_last.end;
    first_step = some ? of_first.first / ROWS : 0, end_step = some ? (of_last.end + ROWS - 1) / ROWS : 0;
    for (int part = 0; part < PARTS; ++part) {
      const int first = first_key + part * 64, end = first + 64;
      const RowRange low = seeing(first), high = seeing(end - 1);
      first_whole[part] = (high.first + ROWS - 1) / ROWS;
      end_whole[part] = end > all_keys ? 0 : low.end == queries && fills ? (queries + ROWS - 1) / ROWS : low.end / ROWS;
    }
  }
};

// A turn: ROWS queries of one query head of the group. All of a head come before the next head's. BACKWARDS: a head's last TOGETHER, from the
// last on, then as many of the next head's, and so on; then those before them. With all of a head, a block of keys that few queries see would
// wait at each head for the one before it, which more see.
template <bool BACKWARDS = false, int TOGETHER = 8> struct QueryTurns {
  int number, step;
  int block;  // of ROWS rows, in the workspace from the group's first head on
  int head = 0;

  template <class Block> explicit QueryTurns(const Block& of, int number = 0)
      : number(number), step(BACKWARDS ? of.end_step - 1 : of.first_step), block(step) {}
  template <class Block> void next(const Block& of) {
    ++number;
    if constexpr (BACKWARDS) {
      --block, --step;
      const int last = (step + 1) | (TOGETHER - 1);  // of those together
      if (step >= of.first_step && step > last - TOGETHER) return;
      const int from = last < of.end_step ? last : of.end_step - 1;
      block += of.blocks_a_head + from - step, step = from, ++head;
      if (block >= of.blocks_a_group) block = step = last - TOGETHER, head = 0;
    } else {
      ++block, ++step;
      if (step < of.end_step) return;
      block += of.blocks_a_head - of.steps();
      step -= of.steps(), ++head;
    }
  }
  // The one before it of the same block, which is not its first. BACKWARDS, one of each head together.
  template <class Block> QueryTurns last(const Block& of) const {
    static_assert(BACKWARDS && TOGETHER == 1);
    QueryTurns turn = *this;
    --turn.number;
    if (head > 0)
      --turn.head, turn.block -= of.blocks_a_head;
    else
      ++turn.step, turn.block += of.blocks_a_group - of.blocks_a_head + 1, turn.head = of.blocks_a_group / of.blocks_a_head - 1;
    return turn;
  }
  // Its place in a ring of N, and how often that has been gone round.
  template <uint32_t N> uint32_t stage() const { return number % N; }
  template <uint32_t N> uint32_t parity() const { return number / N % 2; }
};

// BOXES boxes of 64 features each, from the first-th on, `token` of the batch's row on; to BLOCKS blocks of the cluster.
template <int BOXES, bool PACKED, int BLOCKS = 1>
static inline void copy_boxes(uint32_t to, uint32_t box_bytes, const TensorMap& map, uint32_t full, int first, int head, int64_t token,
                              int64_t batch) {
#pragma unroll
  for (int i = 0; i < BOXES; ++i) {
    const uint32_t there = to + i * box_bytes;
    const int feature = 64 * (first + i), at[4] = {feature, head, static_cast<int>(token), static_cast<int>(batch)};
    const int packed_at[3] = {feature, head, static_cast<int>(token)};
    if constexpr (PACKED && BLOCKS == 1)
      load_tile(there, map, full, packed_at);
    else if constexpr (PACKED)
      load_tile_multicast(there, map, full, packed_at, (1 << BLOCKS) - 1);
    else if constexpr (BLOCKS == 1)
      load_tile(there, map, full, at);
    else
      load_tile_multicast(there, map, full, at, (1 << BLOCKS) - 1);
  }
}
