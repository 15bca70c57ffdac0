// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: what three warpgroups make of two chunks' rows and of the states
// kept around them, by turns. Part of backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_delta_gradient_parts.h"

using HalfOfKeys = float[KEYS / 4];

struct GradientMaker : GradientParts {
  // Which of two phases the barriers of meetings have in a turn of the block's item number `step`.
  template <Turns TURN> static uint32_t turn_parity(int step) { return (step * TURNS + TURN) % 2; }
  void wait_for_rows(bool later) const { barrier_wait_all(at.full(ROWS), !later); }

  void of_queries(const GradientItem& item, const TensorMap& to, int step) const {
    TokenKeys dq;
    queries_turn<LATER>(dq, step);
    queries_turn<ACROSS>(dq, step);
    finish_queries(dq, item, to, true);
    queries_turn<EARLIER>(dq, step);
    finish_queries(dq, item, to, false);
  }
  template <Turns TURN> void queries_turn(TokenKeys& dq, int step) const {
    TokenPairs pairs = {};
    float through[2] = {};
    if (TURN != ACROSS) {
#pragma unroll
      for (int i = 0; i < KEYS / 2; ++i) dq[i] = 0;
    }
    each_step([&](uint32_t stage) {
      if (TURN != ACROSS) keep_in_place(dq);
      keep_in_place(pairs);
      wgmma_fence();
#pragma unroll
      for (int i = WRITTEN_PARTS - 1; i >= 0; --i) multiply_rows_of(pairs, at.dout(stage), at.written(stage, i), true);
      if constexpr (TURN != ACROSS) {
#pragma unroll
        for (int i = PARTS - 1; i >= 0; --i) multiply_by_keys<STEP>(dq, at.dout(stage), at.before(stage, i), true);
      }
      wgmma_commit();
      if (GATED && TURN == LATER) add_through<OF_QUERIES>(stage, through);
      wgmma_wait<0>();
      if (TURN != ACROSS) keep_in_place(dq);
      keep_in_place(pairs);
    });
    if (TURN != ACROSS) wait_for_rows(TURN == LATER);
    const ChunkNumbers& own = numbers(TURN != EARLIER);
    if (TURN != ACROSS) {
      const float more = TURN == LATER ? scale * left_by(false) : scale;
      scale_rows(dq, [&](int t) { return more * own.gates.before[t] * own.query_norm(t); });
    }
    weigh<TURN>(pairs, true, [&](int t) { return scale * own.query_norm(t); });
    barrier_wait(at.meeting(PAIRS_FREE), turn_parity<TURN>(step));
    put_pairs(pairs, at.pairs(0), 3);
    barrier_arrive(at.meeting(PAIRS_THERE));
    if (GATED) {
      float rows[2] = {};
      barrier_wait(at.meeting(FLOWS_FREE), turn_parity<TURN>(step));
      if (TURN != ACROSS) multiply_with(at.queries(), dq, rows);
      add_flows<2, TURN != ACROSS>(pairs, at.queries(), at.keys(TURN == LATER), rows, flows().read_here[warp() % 4]);
      put_rows(rows, flows().read[0]);
      if (TURN == LATER) put_through(through, flows().through[OF_QUERIES]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    keep_in_place(dq);
    wgmma_fence();
    multiply_by_keys<CHUNK>(dq, at.pairs(0), at.keys(TURN == LATER), true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(dq);
  }
  void finish_queries(TokenKeys& dq, const GradientItem& item, const TensorMap& to, bool later) const {
$if normed
    take_along(at.queries(), dq, numbers(later).norms.q);
$end
    store(dq, at.out(0), 3, to, item, later);
    release(ROWS);
  }

  void of_reads(int step) const {
    reads_turn<LATER>(step);
    reads_turn<ACROSS>(step);
    release(ROWS);
    reads_turn<EARLIER>(step);
    release(ROWS);
  }
  template <Turns TURN> void reads_turn(int step) const {
    TokenKeys sums = {};
    TokenPairs pairs = {};
    float through[2] = {};
    each_step([&](uint32_t stage) {
      if (TURN != ACROSS) keep_in_place(sums);
      keep_in_place(pairs);
      wgmma_fence();
#pragma unroll
      for (int order = WRITTEN_PARTS - 1; order >= 0; --order)
#pragma unroll
        for (int i = 0; i < PARTS && i <= order; ++i)
          multiply_rows_of(pairs, at.gradient(stage, i), at.written(stage, order - i), true);
      if constexpr (TURN != ACROSS) {
#pragma unroll
        for (int order = PARTS - 1; order >= 0; --order)
#pragma unroll
          for (int i = 0; i <= order; ++i) multiply_by_keys<STEP>(sums, at.gradient(stage, i), at.before(stage, order - i), true);
      }
      wgmma_commit();
      if (GATED && TURN == LATER) add_through<OF_READS>(stage, through);
      wgmma_wait<0>();
      if (TURN != ACROSS) keep_in_place(sums);
      keep_in_place(pairs);
    });
    if (TURN != ACROSS) wait_for_rows(TURN == LATER);
    const ChunkNumbers& own = numbers(TURN != EARLIER);
    const Gates& gates = own.gates;
    if (TURN != ACROSS) {
      const float more = TURN == LATER ? -left_by(false) : -1;
      scale_rows(sums, [&](int t) { return more * gates.before[t] * gates.beta[t] * own.key_norm(t); });
    }
    barrier_wait(at.meeting(PAIRS_FREE), turn_parity<TURN>(step));
    if (TURN != ACROSS) {
      float* to = exchange();
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i) store_pack(to + i * 4 * WARPGROUP, Pack<float, 4>{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]});
    }
    const float own_pairs[2] = {own_pair(pairs, 0), own_pair(pairs, 1)};
    weigh<TURN>(pairs, false, [&](int t) { return -gates.beta[t] * own.key_norm(t); });
    put_pairs(pairs, at.pairs(1), 4);
    barrier_arrive(at.meeting(PAIRS_THERE));
    if (GATED) {
      float rows[2] = {};
      barrier_wait(at.meeting(FLOWS_FREE), turn_parity<TURN>(step));
      if (TURN != ACROSS && has_own()) {
#pragma unroll
        for (int h = 0; h < 2; ++h) flows().beta[own_row() + 8 * h] = own_pairs[h] / gates.beta[own_row() + 8 * h];
      }
      add_flows<1, false>(pairs, at.keys(TURN != EARLIER), at.keys(TURN == LATER), rows, flows().read_here[4 + warp() % 4]);
      put_rows(rows, flows().read[1]);
      if (TURN == LATER) put_through(through, flows().through[OF_READS]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
  }

  void of_writes(const GradientItem& item, const TensorMap& to, int step) const {
    TokenKeys dk;
    HalfOfKeys across;  // of the earlier chunk's keys by the later one's tokens; the other half lies where sums are exchanged
    writes_turn<LATER>(dk, across, step);
    writes_across(dk, across, step);
    finish_writes(dk, item, to, true);
    writes_turn<EARLIER>(dk, across, step);
    finish_writes(dk, item, to, false);
  }
  template <Turns TURN> void writes_turn(TokenKeys& dk, const HalfOfKeys& across, int step) const {
    constexpr bool LATE = TURN == LATER;
    float through[2] = {};
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) dk[i] = 0;
    each_step([&](uint32_t stage) {
      keep_in_place(dk);
      wgmma_fence();
#pragma unroll
      for (int i = PARTS - 1; i >= 0; --i)  // rounding's parts with each other, too: what is left of writes flows past the gates of 128 tokens
#pragma unroll
        for (int j = WRITTEN_PARTS - 1; j >= 0; --j) multiply_by_keys<STEP>(dk, at.written(stage, j), at.after(stage, i), true);
      wgmma_commit();
      if (GATED && LATE) add_through<OF_WRITES>(stage, through);
      wgmma_wait<0>();
      keep_in_place(dk);
    });
    wait_for_rows(LATE);
    const ChunkNumbers& own = numbers(LATE);
    const float more = LATE ? 1 : left_by(true);
    scale_rows(dk, [&](int s) { return more * own.gates.after[s] * own.key_norm(s); });
    float left[2] = {}, read[2] = {};
    if (!LATE) {
      if (GATED) multiply_with(at.keys(LATE), dk, left);
      add_across(dk, across);
    }
    if (thread_x() % WARPGROUP == 0) store_wait_read<0>();  // its place is that of what is exchanged
    sync_warp();
    barrier_arrive(at.meeting(PAIRS_FREE));
    if (GATED && LATE) multiply_with(at.keys(LATE), dk, left);
    barrier_wait(at.meeting(PAIRS_THERE), turn_parity<TURN>(step));
    keep_in_place(dk);
    wgmma_fence();
    add_pairs_back(dk, at.pairs(0), at.queries());
    add_pairs_back(dk, at.pairs(1), at.keys(LATE));
    multiply_by_keys<CHUNK>(dk, at.pairs(1), at.keys(LATE), true);
    wgmma_commit();
    if (GATED) {
      multiply_exchanged(at.keys(LATE), read);
      barrier_wait(at.meeting(FLOWS_FREE), turn_parity<TURN>(step));
      put_rows(left, flows().left);
      put_rows(read, flows().read_by_keys);
      if (LATE) put_through(through, flows().through[OF_WRITES]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    wgmma_wait<0>();
    keep_in_place(dk);
    add_exchanged(dk);
  }
  // Pairs of the later chunk's tokens with the earlier one's: dk += what the later one's keys read by them; what the earlier one's get waits for
  // their turn, half of it in registers.
  void writes_across(TokenKeys& dk, HalfOfKeys& kept, int step) const {
    TokenKeys across;
    barrier_arrive(at.meeting(PAIRS_FREE));
    each_step([](uint32_t) {});
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) across[i] = 0;
    barrier_wait(at.meeting(PAIRS_THERE), turn_parity<ACROSS>(step));
    keep_in_place(dk);
    keep_in_place(across);
    wgmma_fence();
    multiply_by_keys<CHUNK>(dk, at.pairs(1), at.keys(false), true);
    add_pairs_back(across, at.pairs(0), at.queries());
    add_pairs_back(across, at.pairs(1), at.keys(true));
    wgmma_commit();
    if (GATED) {
      barrier_wait(at.meeting(FLOWS_FREE), turn_parity<ACROSS>(step));
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    wgmma_wait<0>();
    keep_in_place(dk);
    keep_in_place(across);
    float* to = exchange();
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
      if (j >= KEYS / 16) store_pack(to + j * 4 * WARPGROUP, Pack<float, 4>{across[4 * j], across[4 * j + 1], across[4 * j + 2], across[4 * j + 3]});
#pragma unroll
    for (int i = 0; i < KEYS / 4; ++i) kept[i] = across[i];
  }
  void add_across(TokenKeys& dk, const HalfOfKeys& kept) const {
    const float* from = exchange();
#pragma unroll
    for (int i = 0; i < KEYS / 4; ++i) dk[i] += kept[i];
#pragma unroll
    for (int j = KEYS / 16; j < KEYS / 8; ++j) {
      const Pack<float, 4> x = load_pack<4>(from + j * 4 * WARPGROUP);
#pragma unroll
      for (int i = 0; i < 4; ++i) dk[4 * j + i] += x.at[i];
    }
  }
  void finish_writes(TokenKeys& dk, const GradientItem& item, const TensorMap& to, bool later) const {
$if normed
    take_along(at.keys(later), dk, numbers(later).norms.k);
$end
    store(dk, at.out(1), 9, to, item, later);
    release(ROWS);
  }
};
