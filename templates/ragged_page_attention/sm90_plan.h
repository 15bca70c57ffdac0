// GPU vocabulary of ragged_page_attention on Hopper: a launch of one block that makes the list of items (sm90_items.h) from the lengths, in the order in which blocks
// should take them (sm90_division.h).
#pragma once
#include "ragged_page_attention/sm90_division.h"

constexpr int PLAN_THREADS = 1024, PLAN_WARPS = PLAN_THREADS / WARP;

// Of x of the threads before this one, of each of COUNT numbers; totals become those of all. Every thread calls it.
template <int COUNT> static inline void sum_before(int (&x)[COUNT], int (&totals)[COUNT], int (*sums)[PLAN_WARPS]) {
  int own[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    own[i] = x[i];
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int left = shuffle(x[i], lane() < by ? lane() : lane() - by);
      if (lane() >= by) x[i] += left;
    }
    if (lane() == WARP - 1) sums[i][warp()] = x[i];
  }
  sync_block();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int of_warp = sums[i][lane()];
    int up_to = of_warp;
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int left = shuffle(up_to, lane() < by ? lane() : lane() - by);
      if (lane() >= by) up_to += left;
    }
    totals[i] = shuffle(up_to, WARP - 1);
    x[i] += shuffle(up_to - of_warp, warp()) - own[i];
  }
  sync_block();
}

// The streams of the rounds in the end, the longest of a round first. Every thread calls it.
static inline void order_rounds(const RaggedPlan& plan, const StreamOrder& order, int* streams) {
  __shared__ int steps[StreamOrder::ROUNDS * StreamOrder::MOST_BLOCKS];
  const int place = thread_x(), round = quotient(place, order.blocks), turn = place - round * order.blocks;
  int number = 0;
  if (round < order.rounds) {
    number = order.of_round(round, turn);
    const RaggedItem item = plan.stream(number);
    steps[place] = item.end - item.first;
  }
  sync_block();
  if (round < order.rounds) {
    int before = 0;
#pragma unroll 1
    for (int i = 0; i < order.blocks; ++i) {
      const int theirs = steps[round * order.blocks + i];
      before += theirs > steps[place] || (theirs == steps[place] && i < turn);
    }
    streams[round * order.blocks + before] = number;
  }
  sync_block();
}

static inline void make_plan(RaggedPlan plan, int* streams_before, int blocks, int slots, int room, int32_t* words, int32_t* items) {
  __shared__ int sums[3][PLAN_WARPS];
  __shared__ Totals totals[PLAN_WARPS];
  int streams = 0;
  Totals own_totals{};
#pragma unroll 1
  for (int base = 0; base < plan.count; base += PLAN_THREADS) {
    const int n = base + thread_x();
    int before[1] = {n < plan.count ? plan.chunks(plan.queries(n)) * plan.kv_heads : 0}, total[1];
    if (n < plan.count) own_totals.add(plan, n);
    sum_before(before, total, sums);
    if (n < plan.count) streams_before[n] = streams + before[0];
    streams += total[0];
  }
  const Totals all = own_totals.of_block(totals);
  plan.streams_before = streams_before;
  const Division division(all, blocks, slots);
  __shared__ int last_streams[StreamOrder::ROUNDS * StreamOrder::MOST_BLOCKS];
  const StreamOrder order = division.order();
  if (order.rounds > 0) order_rounds(plan, order, last_streams);
  int done[2] = {}, made[3] = {};  // made: items of both queues, slots
#pragma unroll 1
  for (int base = 0; base < streams; base += PLAN_THREADS) {
    RaggedItem item{};
    const int place = base + thread_x(), in_rounds = place - (order.rounds > 0 ? order.before_rounds() : streams);
    if (place < streams) item = plan.stream(in_rounds < 0 ? order.stream(place) : last_streams[in_rounds]);
    const int queue = item.wide ? 0 : 1, begin = item.first, steps = item.end - begin, own = steps > 0 ? steps + SETUP : 0;
    int weight[2] = {item.wide ? own : 0, item.wide ? 0 : own}, weights[2], nexts[3];
    sum_before(weight, weights, sums);
    const int left = item.wide ? all.steps[0] - done[0] - weight[0] : all.steps[1] - done[1] - weight[1];
    int pieces = 0, needed = 0;
    if (steps > 0) {
      const int most = division.most_steps(queue, left - steps / 2);
      pieces = (steps + most - 1) / most;
      item.shared = !item.wide && steps >= pieces * GROUPS, item.apart = item.shared && plan.units(item) > MERGED_UNITS;
      needed = plan.slots(item, pieces);
    }
    int next[3] = {item.wide ? pieces : 0, item.wide ? 0 : pieces, needed};
    sum_before(next, nexts, sums);
    const int slot = made[2] + next[2];
    const bool fits = slot + needed <= slots;  // else the stream is not cut: its other items are empty
    if (!fits) item.shared = item.apart = 0;
    item.pieces = fits ? pieces : 1, item.slot = fits && needed > 0 ? slot : -1;
    if (item.slot >= 0)
      for (int i = 0; i < (item.wide ? GROUPS : 1); ++i) words[ARRIVED + slot + i] = 0;
    int32_t* const to = items + (int64_t{queue} * room + (item.wide ? made[0] + next[0] : made[1] + next[1])) * ITEM_WORDS;
    const int least = quotient(steps, larger_of(item.pieces, 1)), longer = steps - least * item.pieces;  // so many have a step more
    item.first = begin;
#pragma unroll 1
    for (int i = 0; i < pieces; ++i) {
      const bool is_empty = i >= item.pieces;
      item.piece = i;
      item.end = is_empty ? item.first : item.first + least + (i < longer);
      store_item(to + i * ITEM_WORDS, item);
      item.first = item.end;
    }
    done[0] += weights[0], done[1] += weights[1];
    made[0] += nexts[0], made[1] += nexts[1], made[2] += nexts[2];
  }
  if (thread_x() == 0) {
    words[TAKEN] = division.first, words[TAKEN + 1] = blocks - division.first;
    words[COUNT] = made[0], words[COUNT + 1] = made[1], words[FIRST_BLOCKS] = division.first;
  }
}
