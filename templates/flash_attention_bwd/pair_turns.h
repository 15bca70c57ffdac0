// GPU vocabulary of the attention kernels' gradients on mma.sync: what a block of keys goes by, its turns, and what it copies for each.
#pragma once
#include "flash_attention_bwd/attention_backward.h"
#include "flash_attention_bwd/pair_shape.h"
$if by_blocks
#include "blocksparse_attention/step_list.h"
$end

// Which steps a block takes, and which of them a pair can do without a look at single keys.
template <class Shape> struct PairSteps {
  static constexpr int BLOCK_M = Shape::BLOCK_M;
  int first, count;            // of each head
  int first_whole, end_whole;  // every query sees every key of the pair

  // looks: all of them need that look.
  PairSteps(const ${by_blocks ? 'BlockVisibility' : 'Visibility'}& rule, const Sequence& sequence, int first_key, int pair_key, bool looks) {
    const int keys = static_cast<int>(sequence.keys), queries = static_cast<int>(sequence.queries);
    const int end_key = first_key + Shape::BLOCK_N < keys ? first_key + Shape::BLOCK_N : keys;
    const RowRange of_first = seeing_queries(rule, first_key, sequence.offset, queries),
                   of_last = seeing_queries(rule, end_key - 1, sequence.offset, queries);
    const bool some = first_key < keys && of_first.first < of_last.end;
    first = some ? of_first.first / BLOCK_M : 0;
    count = some ? (of_last.end + BLOCK_M - 1) / BLOCK_M - first : 0;
    const RowRange low = seeing_queries(rule, pair_key, sequence.offset, queries),
                   high = seeing_queries(rule, pair_key + Shape::PAIR_KEYS - 1, sequence.offset, queries);
    first_whole = (high.first + BLOCK_M - 1) / BLOCK_M;
    end_whole = low.end == queries ? (queries + BLOCK_M - 1) / BLOCK_M : low.end / BLOCK_M;
    if (looks || pair_key + Shape::PAIR_KEYS > keys) end_whole = first_whole;
  }
};

// Rows of a tensor by query head of the group and query.
template <class T> struct HeadRows {
  T* first;
  int64_t head_stride, token_stride;

  HeadRows(const Heads<T>& x, const Sequence& s, int head)
      : first(x.row(s.batch, s.first_query, head)), head_stride(x.head_stride), token_stride(x.token_stride) {}
  T* row(int head, int query) const { return first + head * head_stride + query * token_stride; }
};

// What a block goes by. It lies in shared memory, so that each turn reads what it needs, and registers are left to the sums.
template <class T, int PAIRS> struct PairPlan {
  Sequence sequence;
  HeadRows<const T> q, dout;
  const float *row_lse, *row_delta;  // of the group's first head
  float* dq_sums;
  int64_t space_rows;                // from head to head of these three
  int kv_head, first_head, first_key, first_step, steps, turns;
  int keys;                          // from first_key on, past the last sequence's too
  int first_whole[PAIRS], end_whole[PAIRS];  // steps of which every query sees every key of the pair
$if by_blocks
  // Turns are those of the list of the block of keys, head after head: the last one, this one and two that follow, each at its number % 4; and where the
  // next one is found.
  int turn_head[4], turn_step[4], list_head, list_at, list_end;

  // By one thread: the turns' number.
  int start_list(const StepList<3>& list, int heads) {
    list_head = -1, list_at = list_end = 0;
    if (list.mask.shape[1] == 1) return heads * count_of(list, 0);
    int count = 0;
    for (int head = 0; head < heads; ++head) count += count_of(list, head);
    return count;
  }
  RowRange places_of(const StepList<3>& list, int head) const {
    return list.places(list.row_of(sequence.${packed ? 'index' : 'batch'}, first_head + head, first_key), first_step, first_step + steps);
  }
  int count_of(const StepList<3>& list, int head) const {
    const RowRange places = places_of(list, head);
    return places.end - places.first;
  }
  void find_turn(const StepList<3>& list, int number) {
    if (number >= turns) return;
    while (list_at == list_end) {
      const RowRange places = places_of(list, ++list_head);
      list_at = places.first, list_end = places.end;
    }
    turn_head[number % 4] = list_head;
    turn_step[number % 4] = list.row_of(sequence.${packed ? 'index' : 'batch'}, first_head + list_head, first_key)[list_at++];
  }
$end
};

// A turn, BLOCK_M queries of a query head: the head, of the group, and its first query.
template <int BLOCK_M> struct PairTurn {
  int of_head, first_query;

  template <class Plan>
  PairTurn(const Plan& plan, int turn)
$if by_blocks
      : of_head(plan.turn_head[turn % 4]), first_query(plan.turn_step[turn % 4] * BLOCK_M) {}
$else
      : of_head(plan.turns == plan.steps ? 0 : turn / plan.steps), first_query((plan.first_step + turn - of_head * plan.steps) * BLOCK_M) {}
$end
};

// Copies what a turn needs, by the first half of the block's threads. Memory says where to: QUERIES, DOUTS, LOGS and DELTAS, two places each.
template <class Shape, int D, int DV, int D16, int DV16, class Memory> struct TurnCopy {
  using T = typename Shape::Element;
  static constexpr int BLOCK_M = Shape::BLOCK_M, COPIERS = Shape::THREADS / 2;
  using Turn = PairTurn<BLOCK_M>;
  using Plan = PairPlan<T, Shape::PAIRS>;
  using QTile = Tile<T, BLOCK_M, D16>;
  using OTile = Tile<T, BLOCK_M, DV16>;
  TileReader<T, BLOCK_M, D16, COPIERS, D> q;
  TileReader<T, BLOCK_M, DV16, COPIERS, DV> dout;
  const float* rows;  // log-sum-exps or deltas: this thread's four
  int place;

  static_assert(COPIERS >= BLOCK_M / 2);
  static bool copies_logs() { return thread_x() < BLOCK_M / 4; }
  static int local_row() { return thread_x() % (BLOCK_M / 4) * 4; }

  TurnCopy(const Plan& plan, int number) : TurnCopy(plan, number, Turn(plan, number)) {}
  TurnCopy(const Plan& plan, int number, Turn turn)
      : q(plan.q.row(turn.of_head, turn.first_query), plan.q.token_stride, static_cast<int>(plan.sequence.queries) - turn.first_query),
        dout(plan.dout.row(turn.of_head, turn.first_query), plan.dout.token_stride,
             static_cast<int>(plan.sequence.queries) - turn.first_query),
        rows((copies_logs() ? plan.row_lse : plan.row_delta) + turn.of_head * plan.space_rows + turn.first_query + local_row()),
        place(number % 2) {}

  void start(SharedPointer shared) {
    q.copy_async(QTile{shared + Memory::QUERIES + place * QTile::BYTES});
    dout.copy_async(OTile{shared + Memory::DOUTS + place * OTile::BYTES});
    if (thread_x() < BLOCK_M / 2)
      copy_async_16(shared + (copies_logs() ? Memory::LOGS : Memory::DELTAS) + (place * BLOCK_M + local_row()) * 4, rows, true);
  }
};
