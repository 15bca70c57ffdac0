// Hopper vocabulary of the attention kernels' gradients: turns of queries that go by a list of the steps that a mask of blocks leaves. One thread goes
// through the list and tells the others, beside the queries that it copies.
#pragma once
#include "blocksparse_attention/step_list.h"
#include "device/sm90/sm90_uniform.h"

constexpr uint32_t TURN_STAGES = ${keys == 128 ? 3 : 2};  // turns in shared memory

// A turn of those that are told which it is: known from see() on.
struct ToldTurn {
  int number, step = 0;
  uint32_t at, round;  // its place in a ring of TURN_STAGES, and whether that has been gone round an odd number of times: a quotient by three is long in the making
  int block = 0;  // of as many rows as a step has, in the workspace from the group's first head on
  int head = 0;
  uint32_t wholes = 0;  // by part of the keys, where there are two: every query sees every key

  template <class Block> explicit ToldTurn(const Block&, int first = 0) : number(first), at(first % TURN_STAGES), round(first / TURN_STAGES % 2) {}
  template <class Block> void next(const Block&) { step_on(); }
  void step_on() {
    const bool again = at == TURN_STAGES - 1;
    ++number, at = again ? 0 : at + 1, round ^= again;
  }
  // Its place in a ring of N, and how often that has been gone round.
  template <uint32_t N> uint32_t stage() const { return N == TURN_STAGES ? at : number % N; }
  template <uint32_t N> uint32_t parity() const { return N == TURN_STAGES ? round : number / N % 2; }

  // place: two words of shared memory.
  static constexpr int STEP_BITS = 30;
  template <int PARTS, class Block> static void tell(uint32_t place, int step, int block, const Block& of) {
    uint32_t word = step;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) word |= uint32_t{of.is_whole(part, step)} << (STEP_BITS + part);
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" : : "r"(place), "r"(word), "r"(block) : "memory");
  }
  template <class Block> void see(uint32_t place, const Block& of) {
    uint32_t word;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(word), "=r"(block) : "r"(place) : "memory");
$if keys == 128
    step = static_cast<int>(word & ((1u << STEP_BITS) - 1)), wholes = word >> STEP_BITS;
$else
    step = static_cast<int>(word);
$end
    head = (block - step) / of.blocks_a_head;
  }
};

// Where the lists of a block of keys lie, one a query head of its group, and how many turns they have.
struct ListsOfKeys {
  const int32_t* numbers;
  int head_words;  // from head to head; 0: one list for all
  int row_words;   // from the numbers of steps to the counts of those before each
  int turns;
  int at, end, word;  // of the first head: places of its steps in the list, and what stands there first
$if ordered  // which is the last step: turns go backwards, as sm90_attention_order.h says
  const int32_t* ranks;  // by step of the first head how many blocks of keys come before the mask's block; half of head_words from head to head
  int among;             // and how many of that block's own

  template <class Ranks, class Block> void rank(const Ranks& all, const StepList<3>& list, const Block& of) {
    ranks = all.words + (numbers - list.words) / 2, among = of.first_key % list.block / Block::COUNT;
  }
$end

  template <class Block> void find(const StepList<3>& list, const Block& of, int heads) {
    const int lists = list.mask.shape[1] == 1 ? 1 : heads;
    numbers = list.row_of(of.sequence.${packed ? 'index' : 'batch'}, of.first_head, of.first_key);
    head_words = lists == 1 ? 0 : static_cast<int>(list.rows_a_head()) * 2 * list.row_words;
    row_words = list.row_words, turns = at = end = word = 0;
#pragma unroll 1
    for (int head = 0; head < lists && of.first_step < of.end_step; ++head) {
      const int32_t* const before = numbers + int64_t{head} * head_words + row_words;
      turns += before[of.end_step] - before[of.first_step];
      if (head == 0) ${ordered ? 'at = before[of.end_step] - 1, end = before[of.first_step] - 1' : 'at = before[of.first_step], end = before[of.end_step]'};
    }
    if (at ${ordered ? '>' : '<'} end) word = numbers[at];
    turns *= heads / lists;
  }
};

// The turn at which the thread that goes through the lists stands: in shared memory, for its registers are few.
struct ListPlace {
  int step, block, head;
  const int32_t* numbers;  // of the head
  int at, end;             // places in the list: of the next turn, and after the last
  int stop;                // number of the turn after the last
  int next_word;           // loaded a turn ahead
  uint32_t keys;           // the number of the block of keys
$if ordered
  uint32_t parities;          // of the barriers that say that a block of keys has added everything, for the warp that tells of it
  int held_block, held_rank;  // of the turn that is to add next: its rows, and how many blocks of keys add to them before it

  template <class Block> void hold(const Block& of) volatile {
    held_block = block, held_rank = of.lists.ranks[head * (of.lists.head_words / 2) + step] + of.lists.among;
  }
$end

  template <class Block> void start(const Block& of) volatile {
    head = 0, at = of.lists.at, end = of.lists.end, next_word = of.lists.word, stop = stop + of.lists.turns;
    numbers = of.lists.numbers;
    take(of);
  }
  template <class Block> void take(const Block& of) volatile {
    while (at == end) open_next(of);
    step = next_word;
    block = head * of.blocks_a_head + step;
    at = at ${ordered ? '-' : '+'} 1;
  }
  // What the next turn needs, a turn ahead: when nothing else waits for this thread.
  void load_ahead() volatile {
    if (at ${ordered ? '>' : '<'} end) next_word = numbers[at];
  }
  template <class Block> void open_next(const Block& of) volatile {
    const int32_t* const list = numbers + of.lists.head_words;
    head = head + 1, numbers = list;
$if ordered
    end = list[of.lists.row_words + of.first_step] - 1;
    at = list[of.lists.row_words + of.end_step] - 1;
    next_word = list[at < 0 ? 0 : at];  // of an empty list nothing that is looked at
$else
    end = list[of.lists.row_words + of.end_step];
    at = list[of.lists.row_words + of.first_step];
    next_word = list[at];  // a number, or, of an empty list, nothing that is looked at
$end
  }
};
__shared__ volatile ListPlace list_places[${keys == 64 ? 2 : 1}];  // by team

// BOXES boxes of 64 features come to the L2 cache, before there is a place for them.
template <int BOXES> static inline void fetch_boxes(const TensorMap& map, int head, int token, int batch) {
#pragma unroll
  for (int i = 0; i < BOXES; ++i)
$if packed
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" : : "l"(&map), "r"(64 * i), "r"(head), "r"(token) : "memory");
$else
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" : : "l"(&map), "r"(64 * i), "r"(head), "r"(token), "r"(batch) : "memory");
$end
}

// The turns of a block of keys that has some, from number `first` on, by the one thread that goes through a team's lists.
template <int TEAM> struct ListedTurn : ToldTurn {
  template <class Block> ListedTurn(const Block& of, int first) : ToldTurn(of, first) { list_places[TEAM].start(of); }
  template <class Block> void next(const Block& of) {
    step_on();
    if (number < list_places[TEAM].stop) list_places[TEAM].take(of);
  }
};
