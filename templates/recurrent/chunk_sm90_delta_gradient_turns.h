// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: what three warpgroups make of two chunks' rows and of the states
// kept around them, by turns. Part of backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_delta_gradient_parts.h"

using HalfOfKeys = float[KEYS / 4];

struct GradientMaker : GradientParts {
  // Which of two phases the barriers of meetings have in a turn of the block's item number `step`.
  static uint32_t turn_parity(int step, int turn) { return (step * TURNS + turn) % 2; }
  void wait_for_rows(bool later) const { barrier_wait_all(at.full(ROWS), !later); }
  // One after another, by the same instructions, so that they fit into a processor's cache of them.
  template <class Make> static void each_turn(Make make) {
#pragma unroll 1
    for (int turn = LATER; turn < TURNS; ++turn) make(turn);
  }
  template <int N> static void set_to_zero(float (&sums)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] = 0;
  }

  void of_queries(const GradientItem& item, const ${packed ? 'PackedRows' : 'TensorMap'}& to, int step) const {
    TokenKeys dq;
    each_turn([&](int turn) {
      queries_turn(dq, step, turn);
      if (turn != LATER) finish_queries(dq, item, to, turn == ACROSS);
    });
  }
  // Sums of what is copied step by step: of pairs, and (STATES) of queries with the state.
  template <bool STATES> void add_queries(TokenKeys& dq, TokenPairs& pairs, int step, int turn) const {
    each_step(step, turn, [&](uint32_t stage) {
      if (STATES) keep_in_place(dq);
      keep_in_place(pairs);
      wgmma_fence();
#pragma unroll
      for (int more = !STATES; more >= 0; --more)
#pragma unroll
        for (int i = WRITTEN_PARTS - 1; i >= 0; --i) multiply_rows_of(pairs, at.dout(stage, more), at.written(stage, i, more), true);
      if constexpr (STATES) {
#pragma unroll
        for (int i = PARTS - 1; i >= 0; --i) multiply_by_keys<STEP>(dq, at.dout(stage), at.before(stage, i), true);
      }
      wgmma_commit();
      wgmma_wait<0>();
      if (STATES) keep_in_place(dq);
      keep_in_place(pairs);
    });
  }
  void queries_turn(TokenKeys& dq, int step, int turn) const {
    TokenPairs pairs;
    set_to_zero(pairs);
    const ChunkNumbers& own = numbers(turn != EARLIER);
    if (turn == ACROSS) {
      add_queries<false>(dq, pairs, step, turn);
    } else {
      set_to_zero(dq);
      add_queries<true>(dq, pairs, step, turn);
      wait_for_rows(turn == LATER);
      const float more = turn == LATER ? scale * left_by(false) : scale;
      scale_rows(dq, [&](int t) { return more * own.gates.before[t] * own.query_norm(t); });
    }
    weigh(turn, pairs, true, [&](int t) { return scale * own.query_norm(t); });
    barrier_wait(at.meeting(PAIRS_FREE), turn_parity(step, turn));
    put_pairs(pairs, at.pairs(0), 3);
    barrier_arrive(at.meeting(PAIRS_THERE));
    float rows[2] = {};
    if (GATED && turn != ACROSS) multiply_with(at.queries(), dq, rows);
    keep_in_place(dq);
    wgmma_fence();
    multiply_by_keys<CHUNK>(dq, at.pairs(0), at.keys(turn == LATER), true);
    wgmma_commit();
    if (GATED) {
      add_flows<2>(pairs, at.queries(), at.keys(turn == LATER), rows, flows().read_here[warp() % 4], turn == ACROSS ? -CHUNK : own_row(),
                   [&] { barrier_wait(at.meeting(FLOWS_FREE), turn_parity(step, turn)); });
      put_rows(rows, flows().read[0]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    wgmma_wait<0>();
    keep_in_place(dq);
  }
  void finish_queries(TokenKeys& dq, const GradientItem& item, const ${packed ? 'PackedRows' : 'TensorMap'}& to, bool later) const {
$if normed
    take_along(at.queries(), dq, numbers(later).norms.q);
$end
    store(dq, at.out(0), 3, to, item, later);
    release(ROWS);
  }

  void of_reads(int step) const {
    each_turn([&](int turn) {
      reads_turn(step, turn);
      if (turn != LATER) release(ROWS);
    });
  }
  template <bool STATES> void add_reads(TokenKeys& sums, TokenPairs& pairs, float (&through)[2], int step, int turn) const {
    each_step(step, turn, [&](uint32_t stage) {
      if (STATES) keep_in_place(sums);
      keep_in_place(pairs);
      wgmma_fence();
#pragma unroll
      for (int more = !STATES; more >= 0; --more)
#pragma unroll
        for (int order = WRITTEN_PARTS + PARTS - 2; order >= 0; --order)
#pragma unroll
          for (int i = 0; i < PARTS && i <= order; ++i)
            if (order - i < WRITTEN_PARTS) multiply_rows_of(pairs, at.gradient(stage, i, more), at.written(stage, order - i, more), true);
      if constexpr (STATES) {
#pragma unroll
        for (int order = 2 * PARTS - 2; order >= 0; --order)
#pragma unroll
          for (int i = 0; i <= order; ++i)
            if (i < PARTS && order - i < PARTS) multiply_by_keys<STEP>(sums, at.gradient(stage, i), at.before(stage, order - i), true);
      }
      wgmma_commit();
      if (GATED && STATES && turn == LATER) add_through<OF_READS>(stage, through);
      wgmma_wait<0>();
      if (STATES) keep_in_place(sums);
      keep_in_place(pairs);
    });
  }
  void reads_turn(int step, int turn) const {
    TokenPairs pairs;
    float through[2] = {};
    set_to_zero(pairs);
    const ChunkNumbers& own = numbers(turn != EARLIER);
    const Gates& gates = own.gates;
    if (turn == ACROSS) {
      TokenKeys none;
      add_reads<false>(none, pairs, through, step, turn);
      barrier_wait(at.meeting(PAIRS_FREE), turn_parity(step, turn));
    } else {
      TokenKeys sums;
      set_to_zero(sums);
      add_reads<true>(sums, pairs, through, step, turn);
      wait_for_rows(turn == LATER);
      const float more = turn == LATER ? -left_by(false) : -1;
      scale_rows(sums, [&](int t) { return more * gates.before[t] * gates.beta[t] * own.key_norm(t); });
      barrier_wait(at.meeting(PAIRS_FREE), turn_parity(step, turn));
      float* to = exchange();
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i) store_pack(to + i * 4 * WARPGROUP, Pack<float, 4>{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]});
    }
    const float own_pairs[2] = {own_pair(pairs, 0), own_pair(pairs, 1)};
    weigh(turn, pairs, false, [&](int t) { return -gates.beta[t] * own.key_norm(t); });
    put_pairs(pairs, at.pairs(1), 4);
    barrier_arrive(at.meeting(PAIRS_THERE));
    if (GATED) {
      float rows[2] = {};
      add_flows<1>(pairs, at.keys(turn != EARLIER), at.keys(turn == LATER), rows, flows().read_here[4 + warp() % 4], -CHUNK, [&] {
        barrier_wait(at.meeting(FLOWS_FREE), turn_parity(step, turn));
        if (turn == ACROSS || !has_own()) return;
#pragma unroll
        for (int h = 0; h < 2; ++h) flows().beta[own_row() + 8 * h] = own_pairs[h] / gates.beta[own_row() + 8 * h];
      });
      put_rows(rows, flows().read[1]);
      if (turn == LATER) put_through(through, flows().through[0]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
  }

  void of_writes(const GradientItem& item, const ${packed ? 'PackedRows' : 'TensorMap'}& to, int step) const {
    TokenKeys dk;
    HalfOfKeys across;  // of the earlier chunk's keys by the later one's tokens; the other half lies where sums are exchanged
    set_to_zero(across);
    each_turn([&](int turn) {
      if (turn == ACROSS) writes_across(dk, across, step);
      else writes_turn(dk, across, step, turn);
      if (turn != LATER) finish_writes(dk, item, to, turn == ACROSS);
    });
  }
  void writes_turn(TokenKeys& dk, const HalfOfKeys& across, int step, int turn) const {
    const bool late = turn == LATER;
    float through[2] = {};
    set_to_zero(dk);
    each_step(step, turn, [&](uint32_t stage) {
      keep_in_place(dk);
      wgmma_fence();
#pragma unroll
      for (int i = PARTS - 1; i >= 0; --i)  // rounding's parts with each other, too: what is left of writes flows past the gates of 128 tokens
#pragma unroll
        for (int j = WRITTEN_PARTS - 1; j >= 0; --j) multiply_by_keys<STEP>(dk, at.written(stage, j), at.after(stage, i), true);
      wgmma_commit();
      if (GATED && late) add_through<OF_WRITES>(stage, through);
      wgmma_wait<0>();
      keep_in_place(dk);
    });
    wait_for_rows(late);
    const ChunkNumbers& own = numbers(late);
    const float more = late ? 1 : left_by(true);
    scale_rows(dk, [&](int s) { return more * own.gates.after[s] * own.key_norm(s); });
    float left[2] = {}, read[2] = {};
    if (GATED) multiply_with(at.keys(late), dk, left);
    if (!late) add_across(dk, across);
    if (thread_x() % WARPGROUP == 0) store_wait_read<0>();  // its place is that of what is exchanged
    sync_warp();
    barrier_arrive(at.meeting(PAIRS_FREE));
    barrier_wait(at.meeting(PAIRS_THERE), turn_parity(step, turn));
    keep_in_place(dk);
    wgmma_fence();
    add_pairs_back(dk, at.pairs(0), at.queries());
    add_pairs_back(dk, at.pairs(1), at.keys(late));
    multiply_by_keys<CHUNK>(dk, at.pairs(1), at.keys(late), true);
    wgmma_commit();
    if (GATED) {
      multiply_exchanged(at.keys(late), read);
      barrier_wait(at.meeting(FLOWS_FREE), turn_parity(step, turn));
      put_rows(left, flows().left);
      put_rows(read, flows().read_by_keys);
      if (late) put_through(through, flows().through[1]);
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
    each_step(step, ACROSS, [](uint32_t) {});
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) across[i] = 0;
    barrier_wait(at.meeting(PAIRS_THERE), turn_parity(step, ACROSS));
    keep_in_place(dk);
    keep_in_place(across);
    wgmma_fence();
    multiply_by_keys<CHUNK>(dk, at.pairs(1), at.keys(false), true);
    add_pairs_back(across, at.pairs(0), at.queries());
    add_pairs_back(across, at.pairs(1), at.keys(true));
    wgmma_commit();
    if (GATED) {
      barrier_wait(at.meeting(FLOWS_FREE), turn_parity(step, ACROSS));
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
  void finish_writes(TokenKeys& dk, const GradientItem& item, const ${packed ? 'PackedRows' : 'TensorMap'}& to, bool later) const {
$if normed
    take_along(at.keys(later), dk, numbers(later).norms.k);
$end
    store(dk, at.out(1), 9, to, item, later);
    release(ROWS);
  }
};
