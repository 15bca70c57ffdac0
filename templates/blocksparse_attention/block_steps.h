// GPU vocabulary: a mask of blocks as a list of runs of keys, made by one launch, and the steps that a block of rows takes from it.
#pragma once
#include "blocksparse_attention/block_rows.h"

// Of each row of the mask (a block of queries) the runs of its blocks that follow one another and are on: pairs (first key, end), then
// (NO_KEY, NO_KEY).
constexpr int NO_KEY = 0x7fffffff;

struct RunList {
  const int32_t* runs;  // [batches of the mask][heads of the mask][query_blocks][runs_a_row][2]
  const View& mask;
  int64_t query_blocks, runs_a_row;

  const int32_t* row(int64_t batch, int64_t head, int64_t query_block) const {
    const int64_t at = (mask.shape[0] == 1 ? 0 : batch) * mask.shape[1] + (mask.shape[1] == 1 ? 0 : head);
    return runs + (at * query_blocks + query_block) * runs_a_row * 2;
  }
};

// One row of the list, by a warp: `count` elements of a mask, `stride` apart, each of `size` tokens. A run begins where an element is on and
// the one before is not, and ends where it is the other way round.
static inline void list_runs(int32_t* runs, const bool* on, int64_t count, int64_t stride, int64_t size) {
  int begun = 0;  // runs that began before these elements
  bool before = false;
#pragma unroll 1
  for (int64_t first = 0; first <= count; first += WARP) {  // one element more, which is off: it ends the last run
    const int64_t mine = first + lane();
    const int is_on = mine < count && on[mine * stride] ? 1 : 0;
    const int last = shuffle(is_on, WARP - 1), previous = shuffle(is_on, lane() == 0 ? 0 : lane() - 1);
    const bool was_on = lane() == 0 ? before : previous != 0;
    const bool begins = is_on && !was_on, ends = !is_on && was_on;
    int number = begins ? 1 : 0;  // of runs up to here
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const int other = shuffle(number, lane() < by ? lane() : lane() - by);
      if (lane() >= by) number += other;
    }
    if (begins) runs[2 * (begun + number - 1)] = static_cast<int32_t>(mine * size);
    if (ends && mine <= count) runs[2 * (begun + number - 1) + 1] = static_cast<int32_t>(mine * size);
    begun += shuffle(number, WARP - 1);
    before = last != 0;
  }
  if (lane() == 0) runs[2 * begun] = runs[2 * begun + 1] = NO_KEY;
}

// KEYS keys a step at most: those of the runs, cut to what some row sees, from a multiple of 16 on. The same for all lanes, and the compiler
// is told.
template <int KEYS> struct BlockSteps {
  const int32_t* run;
  int first, end, at, run_end;

  BlockSteps(const int32_t* runs, const RowRange& some) : run(runs), first(shuffle(some.first / 16 * 16, 0)), end(shuffle(some.end, 0)), at(0), run_end(0) {}

  // Empty: there is none, from now on.
  RowRange next() {
    while (at >= run_end) {
      const int begin = shuffle(run[0], 0);
      if (begin >= end) return {0, 0};
      at = begin > first ? begin : first;
      const int last = shuffle(run[1], 0);
      run_end = last < end ? last : end;
      run += 2;
    }
    const RowRange keys{at, run_end - at < KEYS ? run_end : at + KEYS};
    at = keys.end;
    return keys;
  }
};

// adjust() of mma_attention.h, of a step that has only keys `of`.
template <bool ADJUSTED, bool CAPPED, int M, int N>
static inline void adjust_within(float (&s)[M][N][4], const ScoreRules& rules, const Rows& rows, const Sequence& sequence, int warp_row,
                                 int first, const RowRange& of) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = warp_row + 16 * m + 8 * h + lane() / 4;
      const RowRules row = rules_of<ADJUSTED>(rules, sequence, both(rows.range[at], of), rows.place(at));
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          s[m][n][2 * h + i] = score_of<ADJUSTED, CAPPED>(s[m][n][2 * h + i], rules, row, first + 8 * n + lane() % 4 * 2 + i);
    }
}
