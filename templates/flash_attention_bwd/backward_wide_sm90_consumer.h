// The warpgroups of Hopper's backward attention of wide heads that multiply: one makes weights and dv, the other dS and dk. A part of
// backward_wide.sm90.cu, whose constants it uses.
#pragma once

// Four words to and from shared memory.
static inline void store_four(uint32_t to, const uint32_t* w) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" : : "r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
static inline void load_four(uint32_t* w, uint32_t from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(from) : "memory");
}

// What the warpgroups that multiply have in common.
struct Consumer {
  const Places& at;
  const Block& block;
  float* dq_sums;
  const Order& order;
  int rank;  // of the block in its cluster
  const int64_t& key_blocks;
  const CallBiasOrder& bias_order;

  // One thread says so for its warpgroup, to this block or to all that write there; or one lane for its warp.
  static void release_own(uint32_t full) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(full));
  }
  static void release(uint32_t full) {
    if (thread_x() % WARPGROUP != 0) return;
#pragma unroll
    for (int to = 0; to < BLOCKS; ++to) barrier_release<BLOCKS>(empty(full), to);
  }
  static void arrive_as_warp(uint32_t barrier) {
    sync_warp();
    if (lane() == 0) barrier_arrive(barrier);
  }

  // Features of `box` of the dq of turn `number`: of all of its queries, or of this block's half.
  template <int N> void start_share(float (&dq)[N], int box, uint32_t number) const {
    uint32_t keys[BLOCKS] = {at.k() + box * KEY_BOX};
    if constexpr (BLOCKS == 2) {
      const uint32_t other = at.other_k(HALVES_BOX ? box - rank * FIRST_SHARED_BOX : box % 2);
      keys[1] = rank == 0 ? other : keys[0], keys[0] = rank == 0 ? keys[0] : other;
    }
    start_queries<Element, 2 * N>(dq, keys, at.ds(number % STAGES) + first_query<N>() * 128, QUERY_BOX);
  }
  // Of a turn's, of which 2 N are this block's.
  template <int N> int first_query() const { return 2 * N < BLOCK_M ? rank * 2 * N : 0; }
  void wait_for_gradients(uint32_t number) const { barrier_wait(at.ds_full(number % STAGES), number / STAGES % 2); }
  // queries: BLOCK_M rows of the group's.
  template <int N> void add_share(int queries, int box, const float (&dq)[N]) const {
    Sums::add(dq_sums + (block.first_row + int64_t{queries} * BLOCK_M) * Sums::FEATURES, box, first_query<N>() / 8, dq);
  }

  // After the products of a turn, of which `sums` are in flight: COUNT boxes of the last turn's dq, and the first product of the next turn. The
  // last box is in flight when it returns, if there are several.
  template <int COUNT, int M, int N, class Release, class StartNext>
  void share(float (&dq)[M], float (&sums)[N], int first, int number, bool adds, bool last, int queries, Release release_operands,
             StartNext start_next) const {
    if (adds) wait_for_gradients(number - 1);
    start_share(dq, first, number - 1);  // of nothing, the first time
    wgmma_wait<1>();
    keep_in_place(sums);
    release_operands();
    if (!last) {
      start_next();
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    keep_in_place(dq);
    if (adds) order.wait(number - 1);
#pragma unroll
    for (int i = 1; i < COUNT; ++i) {
      if (i > 1) wgmma_wait<0>(), keep_in_place(dq);
      if (adds) add_share(queries, first + i - 1, dq);
      start_share(dq, first + i, number - 1);
    }
  }
  // The rest of it.
  template <int COUNT, int N> void finish_share(float (&dq)[N], int first, int number, bool adds, int queries) const {
    if (COUNT > 1) wgmma_wait<0>(), keep_in_place(dq);
    if (adds) {
      release(at.ds_full((number - 1) % STAGES));
      add_share(queries, first + COUNT - 1, dq);
      order.tell(number - 1);
    }
    if (COUNT == 1) wgmma_wait<0>();
  }
  template <int COUNT, class Share> void last_share(int first, uint32_t number, int queries) const {
    wait_for_gradients(number);
    order.wait(number);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      Share dq;
      start_share(dq, first + i, number);
      wgmma_wait<0>();
      keep_in_place(dq);
      if (i + 1 == COUNT) {
        release(at.ds_full(number % STAGES));
        release_own(at.k_full());
      }
      add_share(queries, first + i, dq);
    }
    order.tell(number);
  }

  // Warpgroup 1. Turns, of all that this block goes through: from the first-th to before `end`. keys: the parity of the keys' barriers.
  void sum_values(float (&dv)[DV / 2], const CallWeights& rules, const Kept& dropped, const Mask& mask, const int32_t* key_segments, int first, int end,
                  uint32_t keys) const {
    QueryTurn turn(block, first);
    int queries = 0;  // the last turn's
    Scores s;
    KeptScores<BLOCK_M> kept;  // of them
    SeenScores seen;
    const int32_t segments[2] = {SEGMENTED ? key_segments[own_key()] : 0, SEGMENTED ? key_segments[own_key() + 8] : 0};
    const auto start_scores = [&] {
      const uint32_t stage = turn.stage<STAGES>();
      barrier_wait(at.q_full(stage), turn.parity<STAGES>());
      start_product<Element, BLOCK_M, D>(s, at.k(), KEY_BOX, at.q(stage), QUERY_BOX);
      if (DROPPED) dropped.find(kept, block, block.first_key + rank * 64, turn);
      if (MASKED) seen.load(mask.view, mask.bits, mask.blocks, block, block.first_key + rank * 64, turn);
    };
    barrier_wait(at.k_full(), keys);
    start_scores();
    wgmma_wait<0>();
    keep_in_place(s);
#pragma unroll 1
    for (;;) {
      const int number = turn.number, these_queries = turn.block;
      const uint32_t stage = turn.stage<STAGES>();
      ScoreSlopes slopes;
      Operands p;
      Scores dq;
      const auto is_whole = [&] { return block.is_whole(rank, turn.step); };
      if (CallWeights::BIASED) barrier_wait(at.bias_full(), turn.parity<1>());
      rules.weigh(s, slopes, block, rank, turn.step, is_whole, at.logs(stage), [&](Scores& scores) {
        if constexpr (SEGMENTED) hide_other_segments(scores, at.ids(stage), segments);
      }, LogsAhead<0>(), at.bias());
      if (CallWeights::BIASED) arrive_as_warp(empty(at.bias_full()));
      if (MASKED) seen.hide(s);
      if (DROPPED) kept.mark(s);
      give(s, slopes, stage, turn.parity<STAGES>());
      if constexpr (DROPPED)
        pack_kept_weights<Element, BLOCK_M>(p, s);
      else
        pack_weights<Element, BLOCK_M>(p, s);
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      start_sums<Element, BLOCK_M, DV>(dv, p, at.dout(stage));
      turn.next(block);
      share<FIRST_BOXES>(
          dq, dv, 2 * rank, number, number > first, turn.number == end, queries,
          [&] {
            release(at.q_full(stage));
            release(at.dout_full(stage));
          },
          start_scores);
      finish_share<FIRST_BOXES>(dq, 2 * rank, number, number > first, queries);
      keep_in_place(s);
      queries = these_queries;
      if (turn.number == end) break;
    }
    last_share<FIRST_BOXES, Scores>(2 * rank, end - 1, queries);
  }

  // The first of this lane's keys, of all rows' of the batch, each of which has whole blocks of keys.
  int64_t own_key() const {
    const int thread = static_cast<int>(later(thread_x()));
    return block.sequence.batch * key_blocks * BLOCK_N + block.first_key + rank * 64 + thread / WARP % 4 * 16 + thread % WARP / 4;
  }

  // Weights, times slopes, or both, to the other warpgroup.
  void give(const Scores& s, const ScoreSlopes& slopes, uint32_t stage, uint32_t parity) const {
    barrier_wait(empty(at.p_full(stage)), parity ^ 1);
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n) {
      const auto weight = [&](int i) { return CAPPED && !SLOPES_APART ? s[8 * n + i] * slopes[8 * n + i] : s[8 * n + i]; };
      if constexpr (AS_HALVES) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int e = 8 * n + 2 * i;
          w[i] = CAPPED && !SLOPES_APART ? pack_pair<half>(s[e] * slopes[e], s[e + 1] * slopes[e + 1]) : pack_pair<half>(s[e], s[e + 1]);
        }
        store_four(at.p(stage, n), w);
      } else {
#pragma unroll
        for (int i = 0; i < 8; i += 4)
          asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                       :
                       : "r"(at.p(stage, 2 * n + i / 4)), "f"(weight(i)), "f"(weight(i + 1)), "f"(weight(i + 2)), "f"(weight(i + 3))
                       : "memory");
      }
      if constexpr (SLOPES_APART) store_four(at.slopes(stage, n), slopes.pairs + 4 * n);
    }
    arrive_as_warp(at.p_full(stage));
  }

  int second_box() const { return HALVES_BOX ? 1 : BLOCKS == 2 ? 2 * rank + 1 : FIRST_BOXES; }
  typedef float SecondShare[HALVES_BOX ? BLOCK_M / 4 : BLOCK_M / 2];

  // Warpgroup 2.
  void sum_keys(float (&dk)[D / 2], float unscaled, const DenseBias& bias, int first, int end, uint32_t keys) const {
    QueryTurn turn(block, first);
    int queries = 0;  // the last turn's
    Scores dp;
    const auto start_gradients = [&] {
      const uint32_t stage = turn.stage<STAGES>();
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      start_product<Element, BLOCK_M, DV>(dp, at.v(), KEY_BOX, at.dout(stage), QUERY_BOX);
    };
    barrier_wait(at.v_full(), keys);
    start_gradients();
    wgmma_wait<0>();
    keep_in_place(dp);
    barrier_wait(at.k_full(), keys);
#pragma unroll 1
    for (;;) {
      const int number = turn.number, these_queries = turn.block;
      const uint32_t stage = turn.stage<STAGES>(), parity = turn.parity<STAGES>();
      Operands ds;
      SecondShare dq;
      if (number + 1 == end) release_own(at.v_full());
      differentiate(dp, stage, parity, block.is_whole(rank, turn.step), unscaled, bias.sums_of(block, block.first_key + rank * 64, turn), ds);
      barrier_wait(at.q_full(stage), parity);
      start_sums<Element, BLOCK_M, D>(dk, ds, at.q(stage));
      turn.next(block);
      share<SECOND_BOXES>(
          dq, dk, second_box(), number, number > first, turn.number == end, queries,
          [&] {
            release(at.q_full(stage));
            release(at.dout_full(stage));
          },
          start_gradients);
      finish_share<SECOND_BOXES>(dq, second_box(), number, number > first, queries);
      keep_in_place(dp);
      queries = these_queries;
      if (turn.number == end) break;
    }
    last_share<SECOND_BOXES, SecondShare>(second_box(), end - 1, queries);
  }

  // dP becomes dS, as operand and in shared memory.
  template <bool WHOLE> void differentiate_all(const Scores& dp, uint32_t stage, float unscaled, const CallBiasSums& bias_sums, Operands& ds) const {
    Slopes<BLOCK_M, SLOPES_APART> slopes;
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n) {
      if constexpr (SLOPES_APART) load_four(slopes.pairs + 4 * n, at.slopes(stage, n));
      const auto make = [&](auto weight) {
        differentiate_slice<Element, WHOLE, DROPPED>(n, dp, weight, BROAD ? 1 : unscaled, slopes, SliceDeltas(at.deltas(stage), n),
                                            at.ds(stage) + rank * QUERY_BOX, ds[n], bias_sums);
      };
      if constexpr (AS_HALVES) {
        uint32_t w[4];
        load_four(w, at.p(stage, n));
        make([&](int i) { return to_float(half{static_cast<uint16_t>(w[i / 2] >> 16 * (i % 2))}); });
      } else {
        float w[8];
#pragma unroll
        for (int i = 0; i < 8; i += 4)
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(w[i]), "=f"(w[i + 1]), "=f"(w[i + 2]), "=f"(w[i + 3]) : "r"(at.p(stage, 2 * n + i / 4)) : "memory");
        make([&](int i) { return w[i]; });
      }
    }
  }
  void differentiate(const Scores& dp, uint32_t stage, uint32_t parity, bool whole, float unscaled, const CallBiasSums& bias_sums, Operands& ds) const {
    barrier_wait(at.p_full(stage), parity);
    barrier_wait(empty(at.ds_full(stage)), parity ^ 1);
    bias_order.wait(stage, parity);
    if (whole && !MASKED)
      differentiate_all<true>(dp, stage, unscaled, bias_sums, ds);
    else
      differentiate_all<false>(dp, stage, unscaled, bias_sums, ds);
    fence_async();
    if constexpr (BLOCKS == 1) {
      arrive_as_warp(at.ds_full(stage));
    } else {
      sync_some(1, WARPGROUP);
      if (thread_x() % WARPGROUP == 0) {
        barrier_arrive_expect(at.ds_full(stage), QUERY_BOX);  // of the other block
        copy_to_block(at.ds(stage) + rank * QUERY_BOX, QUERY_BOX, at.ds_full(stage), rank ^ 1);
      }
    }
    if (lane() == 0) barrier_arrive(empty(at.p_full(stage))), bias_order.tell(stage);
  }
};
