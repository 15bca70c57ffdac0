// flash_attention_bwd on Hopper for wide heads, whose dk and dv do not fit beside each other. A block takes 64 keys of one kv head through all
// queries that see them, BLOCK_M queries of one query head (a turn) at a time: warpgroup 0 copies queries and output gradients, a turn ahead;
// warpgroup 1 makes weights, P^T = 2^(K Q^T - log-sum-exp), and sums dv += P^T dout; warpgroup 2 makes dP^T = V dout^T and, with the other's
// weights, dS^T = P^T (dP^T - delta), and sums dk += dS^T Q. Weights go from lane to lane through shared memory as halves, so that warpgroup 1
// may be a turn ahead. Both then add their features of the last turn's dS K to f32 sums in global memory; `finish` makes dq of those.
//
// What limits it are those additions and the copies of queries. So two blocks may work together, as a cluster: each copies half of the queries'
// features for both, sends its dS to the other, and adds half of the features of dq for the keys of both.
//
// Registers are all taken, and ptxas then makes products wait for each other and says so only in its log (C7512): look there after a change.
#include "device/gpu.h"
#include "device/sm90_attention_gradient.h"
#include "device/sm90_attention_order.h"
#include "device/sm90_attention_weights.h"
#include "device/sm90_block_copy.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool OWNS_QUERIES = false, MENDS = false;
constexpr bool ORDERED = ${ordered};                    // the same bits each time
constexpr int BLOCKS = ${blocks};                       // blocks of a cluster, 64 keys each
constexpr int BLOCK_N = 64 * BLOCKS;                    // their keys
constexpr int BLOCK_M = ${block_m};                     // queries of a turn
constexpr uint32_t STAGES = 2;                          // turns in shared memory
constexpr int THREADS = 3 * WARPGROUP, PREPARE_THREADS = 128, FINISH_THREADS = 256;
constexpr int SHIFT = 15;                               // weights are scaled by 2^SHIFT: halves have few digits below 2^-14
constexpr bool BROAD = ${E == 'bf16'};                  // Element has f32's range: dS stays scaled
constexpr float UNSCALED = 1.0f / (1 << SHIFT), DS_UNSCALED = BROAD ? UNSCALED : 1;

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr int FIRST_BOXES = BLOCKS == 2 ? 1 : (BOXES + 1) / 2;  // of them, those whose dq is warpgroup 1's; then those that are warpgroup 2's
constexpr int SECOND_BOXES = BLOCKS == 2 ? 1 : BOXES - FIRST_BOXES;
static_assert(SECOND_BOXES > 0);
static_assert(BLOCKS == 1 || (BOXES == 4 && V_BOXES % 2 == 0));
constexpr uint32_t KEY_BOX = 64 * 128, QUERY_BOX = BLOCK_M * 128;
constexpr uint32_t K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX, Q_BYTES = BOXES * QUERY_BOX, DOUT_BYTES = V_BOXES * QUERY_BOX;
constexpr uint32_t OTHER_BYTES = (BLOCKS - 1) * 2 * KEY_BOX;    // the other block's keys, of the features whose dq is this one's
constexpr uint32_t DS_BYTES = BLOCKS * QUERY_BOX, P_BYTES = QUERY_BOX, ROW_BYTES = BLOCK_M * 4;

using Block = KeyBlock<BLOCK_M, BLOCK_N, BLOCKS, PACKED>;
using CallGradients = Gradients<Element, D, DV, BLOCK_M, PACKED, CAPPED>;
using Sums = CallGradients::Sums;
using Order = AddOrder<ORDERED, BLOCKS>;
using QueryTurn = QueryTurns<ORDERED>;

// Barriers come in pairs: full, then empty.
struct Places {  // in shared memory
  uint32_t base;
  static constexpr uint32_t V = K_BYTES, OTHER = V + V_BYTES, Q = OTHER + OTHER_BYTES, DOUT = Q + STAGES * Q_BYTES, DS = DOUT + STAGES * DOUT_BYTES,
                            P = DS + STAGES * DS_BYTES, LOGS = P + STAGES * P_BYTES, DELTAS = LOGS + STAGES * ROW_BYTES,
                            BARRIERS = DELTAS + STAGES * ROW_BYTES;
  uint32_t k() const { return base; }
  uint32_t v() const { return base + V; }
  uint32_t other_k(int i) const { return base + OTHER + i * KEY_BOX; }
  uint32_t q(uint32_t i) const { return base + Q + i * Q_BYTES; }
  uint32_t dout(uint32_t i) const { return base + DOUT + i * DOUT_BYTES; }
  uint32_t ds(uint32_t i) const { return base + DS + i * DS_BYTES; }
  // This lane's eight weights of 16 queries, number n of the turn's.
  uint32_t p(uint32_t i, int n) const { return base + P + i * P_BYTES + ((n * 4 + warp() % 4) * WARP + lane()) * 16; }
  uint32_t logs(uint32_t i) const { return base + LOGS + i * ROW_BYTES; }
  uint32_t deltas(uint32_t i) const { return base + DELTAS + i * ROW_BYTES; }
  uint32_t q_full(uint32_t i) const { return base + BARRIERS + 16 * i; }
  uint32_t dout_full(uint32_t i) const { return q_full(STAGES + i); }
  uint32_t ds_full(uint32_t i) const { return q_full(2 * STAGES + i); }
  uint32_t p_full(uint32_t i) const { return q_full(3 * STAGES + i); }
  uint32_t k_full() const { return q_full(4 * STAGES); }
  uint32_t v_full() const { return q_full(4 * STAGES + 1); }
  uint32_t order() const { return q_full(4 * STAGES + 2); }
};
static inline uint32_t empty(uint32_t full) { return full + 8; }

// All copies of a block, by one thread. rank: of the block in its cluster.
struct Producer {
  const Places& at;
  const Block& block;
  int rank;
  const float *row_lse, *row_delta;

  void copy_keys(const TensorMap& k, const TensorMap& v) const {
    const int64_t token = block.token() + rank * 64, other = block.token() + (rank ^ 1) * 64, batch = block.sequence.batch;
    barrier_arrive_expect(at.k_full(), K_BYTES + OTHER_BYTES);
    copy_boxes<BOXES, PACKED>(at.k(), KEY_BOX, k, at.k_full(), 0, block.kv_head, token, batch);
    if (BLOCKS == 2) copy_boxes<2, PACKED>(at.other_k(0), KEY_BOX, k, at.k_full(), 2 * rank, block.kv_head, other, batch);
    barrier_arrive_expect(at.v_full(), V_BYTES);
    copy_boxes<V_BOXES, PACKED>(at.v(), KEY_BOX, v, at.v_full(), 0, block.kv_head, token, batch);
  }
  // This block's share of a tensor's boxes, to all blocks of the cluster.
  template <int COUNT> void copy_shared(uint32_t to, const TensorMap& map, uint32_t full, int head, int64_t token) const {
    constexpr int SHARE = COUNT / BLOCKS;
    const int first = rank * SHARE;
    copy_boxes<SHARE, PACKED, BLOCKS>(to + first * QUERY_BOX, QUERY_BOX, map, full, first, head, token, block.sequence.batch);
  }
  void copy_turn(const QueryTurn& turn, const TensorMap& q, const TensorMap& dout) const {
    const int64_t token = block.sequence.first_query + turn.step * BLOCK_M, row = block.first_row + int64_t{turn.block} * BLOCK_M;
    const int head = block.first_head + turn.block / block.blocks_a_head;
    const uint32_t stage = turn.stage<STAGES>(), before = turn.parity<STAGES>() ^ 1, q_full = at.q_full(stage), dout_full = at.dout_full(stage);
    barrier_wait(empty(q_full), before);
    barrier_arrive_expect(q_full, Q_BYTES + ROW_BYTES);
    copy_shared<BOXES>(at.q(stage), q, q_full, head, token);
    load_bytes(at.logs(stage), row_lse + row, ROW_BYTES, q_full);
    barrier_wait(empty(dout_full), before);
    barrier_arrive_expect(dout_full, DOUT_BYTES + ROW_BYTES);
    copy_shared<V_BOXES>(at.dout(stage), dout, dout_full, head, token);
    load_bytes(at.deltas(stage), row_delta + row, ROW_BYTES, dout_full);
  }
};

typedef float Scores[BLOCK_M / 2];
typedef uint32_t Operands[BLOCK_M / 16][4];
typedef Slopes<BLOCK_M, CAPPED> ScoreSlopes;

// What the warpgroups that multiply have in common.
struct Consumer {
  const Places& at;
  const Block& block;
  float* dq_sums;
  const Order& order;
  int rank;  // of the block in its cluster

  // One thread says so for its warpgroup, to all blocks that write there; or one lane for its warp.
  static void release(uint32_t full) {
    if (thread_x() % WARPGROUP != 0) return;
#pragma unroll
    for (int to = 0; to < BLOCKS; ++to) barrier_release<BLOCKS>(empty(full), to);
  }
  static void arrive_as_warp(uint32_t barrier) {
    sync_warp();
    if (lane() == 0) barrier_arrive(barrier);
  }

  // Features of `box` of the dq of turn `number`.
  void start_share(Scores& dq, int box, uint32_t number) const {
    uint32_t keys[BLOCKS] = {at.k() + box * KEY_BOX};
    if constexpr (BLOCKS == 2) {
      const uint32_t other = at.other_k(box % 2);
      keys[1] = rank == 0 ? other : keys[0], keys[0] = rank == 0 ? keys[0] : other;
    }
    start_queries<Element, BLOCK_M>(dq, keys, at.ds(number % STAGES), QUERY_BOX);
  }
  void wait_for_gradients(uint32_t number) const { barrier_wait(at.ds_full(number % STAGES), number / STAGES % 2); }
  // queries: BLOCK_M rows of the group's.
  void add_share(int queries, int box, const Scores& dq) const {
    Sums::add(dq_sums + (block.first_row + int64_t{queries} * BLOCK_M) * Sums::FEATURES, box, 0, dq);
  }

  // After the products of a turn, of which `sums` are in flight: COUNT boxes of the last turn's dq, and the first product of the next turn. The
  // last box is in flight when it returns, if there are several.
  template <int COUNT, int N, class Release, class StartNext>
  void share(Scores& dq, float (&sums)[N], int first, int number, bool last, int queries, Release release_operands,
             StartNext start_next) const {
    const bool adds = number > 0;
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
  template <int COUNT> void finish_share(Scores& dq, int first, int number, int queries) const {
    if (COUNT > 1) wgmma_wait<0>(), keep_in_place(dq);
    if (number > 0) {
      release(at.ds_full((number - 1) % STAGES));
      add_share(queries, first + COUNT - 1, dq);
      order.tell(number - 1);
    }
    if (COUNT == 1) wgmma_wait<0>();
  }
  template <int COUNT> void last_share(int first, int turns, int queries) const {
    wait_for_gradients(turns - 1);
    order.wait(turns - 1);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      Scores dq;
      start_share(dq, first + i, turns - 1);
      wgmma_wait<0>();
      keep_in_place(dq);
      add_share(queries, first + i, dq);
    }
    order.tell(turns - 1);
  }

  // Warpgroup 1.
  void sum_values(float (&dv)[DV / 2], const Weights<BLOCK_M, CAPPED, SHIFT>& rules, int turns) const {
    if (turns == 0) return;
    QueryTurn turn(block);
    int queries = 0;  // the last turn's
    Scores s;
    const auto start_scores = [&] {
      const uint32_t stage = turn.stage<STAGES>();
      barrier_wait(at.q_full(stage), turn.parity<STAGES>());
      start_product<Element, BLOCK_M, D>(s, at.k(), KEY_BOX, at.q(stage), QUERY_BOX);
    };
    barrier_wait(at.k_full(), 0);
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
      rules.weigh(s, slopes, block, rank, turn.step, at.logs(stage));
      give(s, slopes, stage, turn.parity<STAGES>());
      pack_weights<Element, BLOCK_M>(p, s);
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      start_sums<Element, BLOCK_M, DV>(dv, p, at.dout(stage));
      turn.next(block);
      share<FIRST_BOXES>(
          dq, dv, 2 * rank, number, turn.number == turns, queries,
          [&] {
            release(at.q_full(stage));
            release(at.dout_full(stage));
          },
          start_scores);
      finish_share<FIRST_BOXES>(dq, 2 * rank, number, queries);
      keep_in_place(s);
      queries = these_queries;
      if (turn.number == turns) break;
    }
    last_share<FIRST_BOXES>(2 * rank, turns, queries);
  }

  // Weights, times slopes, to the other warpgroup.
  void give(const Scores& s, const ScoreSlopes& slopes, uint32_t stage, uint32_t parity) const {
    barrier_wait(empty(at.p_full(stage)), parity ^ 1);
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int e = 8 * n + 2 * i;
        w[i] = CAPPED ? pack_pair<half>(s[e] * slopes[e], s[e + 1] * slopes[e + 1]) : pack_pair<half>(s[e], s[e + 1]);
      }
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" : : "r"(at.p(stage, n)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
    }
    arrive_as_warp(at.p_full(stage));
  }

  int second_box() const { return BLOCKS == 2 ? 2 * rank + 1 : FIRST_BOXES; }

  // Warpgroup 2.
  void sum_keys(float (&dk)[D / 2], int turns) const {
    if (turns == 0) return;
    QueryTurn turn(block);
    int queries = 0;  // the last turn's
    Scores dp;
    const auto start_gradients = [&] {
      const uint32_t stage = turn.stage<STAGES>();
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      start_product<Element, BLOCK_M, DV>(dp, at.v(), KEY_BOX, at.dout(stage), QUERY_BOX);
    };
    barrier_wait(at.v_full(), 0);
    start_gradients();
    wgmma_wait<0>();
    keep_in_place(dp);
    barrier_wait(at.k_full(), 0);
#pragma unroll 1
    for (;;) {
      const int number = turn.number, these_queries = turn.block;
      const uint32_t stage = turn.stage<STAGES>(), parity = turn.parity<STAGES>();
      Operands ds;
      Scores dq;
      differentiate(dp, stage, parity, block.is_whole(rank, turn.step), ds);
      barrier_wait(at.q_full(stage), parity);
      start_sums<Element, BLOCK_M, D>(dk, ds, at.q(stage));
      turn.next(block);
      share<SECOND_BOXES>(
          dq, dk, second_box(), number, turn.number == turns, queries,
          [&] {
            release(at.q_full(stage));
            release(at.dout_full(stage));
          },
          start_gradients);
      finish_share<SECOND_BOXES>(dq, second_box(), number, queries);
      keep_in_place(dp);
      queries = these_queries;
      if (turn.number == turns) break;
    }
    last_share<SECOND_BOXES>(second_box(), turns, queries);
  }

  // dP becomes dS, as operand and in shared memory.
  template <bool WHOLE> void differentiate_all(const Scores& dp, uint32_t stage, Operands& ds) const {
    const Slopes<BLOCK_M, false> no_slopes{};
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n) {
      uint32_t w[4];
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(at.p(stage, n)) : "memory");
      const auto weight = [&](int i) { return to_float(half{static_cast<uint16_t>(w[i / 2] >> 16 * (i % 2))}); };
      differentiate_slice<Element, WHOLE>(n, dp, weight, BROAD ? 1 : UNSCALED, no_slopes, SliceDeltas(at.deltas(stage), n), at.ds(stage) + rank * QUERY_BOX, ds[n]);
    }
  }
  void differentiate(const Scores& dp, uint32_t stage, uint32_t parity, bool whole, Operands& ds) const {
    barrier_wait(at.p_full(stage), parity);
    barrier_wait(empty(at.ds_full(stage)), parity ^ 1);
    if (whole)
      differentiate_all<true>(dp, stage, ds);
    else
      differentiate_all<false>(dp, stage, ds);
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
    if (lane() == 0) barrier_arrive(empty(at.p_full(stage)));
  }
};

// Block (x, y, z): the y-th BLOCK_N keys (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through. broken: which of them, by kv head, are to be done again.
KERNEL(THREADS, 1) differentiate(${parameters('differentiate')}) {
  __shared__ Block block;
  __shared__ bool exists;
  __shared__ int64_t numbered_block;  // by kv head, in `broken`
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  const int kv_heads = static_cast<int>(k_view.shape[k_view.rank - 2]), heads = static_cast<int>(q_view.shape[q_view.rank - 2]);
  const Visibility visibility{causal, window_left, window_right};
  const int rank = BLOCKS == 2 ? cluster_rank() : 0;
  const Order order{added, window_left, rank, at.order()};
  const int started = Order::start(added, static_cast<int>(block_number()), rank), turn = started / grid_x();
  if (warp() == 0) {
    const int numbered = turn / grid_y() * (grid_x() / BLOCKS) + started % grid_x() / BLOCKS, number = turn % grid_y();
    const Sequences sequences{PACKED ? cum_seqlens_q : nullptr, PACKED ? cum_seqlens_k : nullptr, sequence_count, q_view.shape[q_view.rank - 3],
                              k_view.shape[k_view.rank - 3], offset_given, offset};
    Block found;
    const bool some = found.find(sequences, visibility, RowSpace{heads, space_rows, BLOCK_M, PACKED}, kv_heads, numbered, number);
    if (lane() == 0) {
      exists = some, block = found, numbered_block = int64_t{numbered} * key_blocks + number;
      for (uint32_t i = 0; i < STAGES; ++i) {
        for (const uint32_t full : {at.q_full(i), at.dout_full(i)}) barrier_init(full, 1), barrier_init(empty(full), 2 * BLOCKS);
        barrier_init(at.ds_full(i), BLOCKS == 2 ? 1 : 4), barrier_init(empty(at.ds_full(i)), 2 * BLOCKS);
        barrier_init(at.p_full(i), 4), barrier_init(empty(at.p_full(i)), 4);
      }
      barrier_init(at.k_full(), 1);
      barrier_init(at.v_full(), 1);
      order.init(8);
      fence_barrier_init();
    }
  }
  if constexpr (BLOCKS == 2)
    sync_cluster();
  else
    sync_block();
  if (!exists) return;
  const int turns = block.steps() * (heads / kv_heads), group = shuffle(warpgroup(), 0);
  const auto check = [&](bool finite) {
    if (any_in_warp(block.hides(rank) && !finite) && lane() == 0) broken[numbered_block] = 1;
  };
  if (group == 0) {
    give_registers<24>();
    if (thread_x() == 0 && turns > 0) {
      const Producer producer{at, block, rank, row_lse, row_delta};
      producer.copy_keys(k_map, v_map);
#pragma unroll 1
      for (QueryTurn turn(block); turn.number < turns; turn.next(block)) producer.copy_turn(turn, q_map, dout_map);
    }
    if (ORDERED && thread_x() == WARP) order.open_turns<QueryTurn>(block, 0, turns);
    if (ORDERED && thread_x() == 2 * WARP) order.pass_turns<QueryTurn>(block, 0, turns);
    sync_warp();
  } else if (group == 1) {
    take_registers<240>();
    float dv[DV / 2] = {};
    const Places here{later(at.base)};  // what is made of it is not kept in registers for the other branch
    Consumer{here, block, dq_sums, order, rank}.sum_values(dv, Weights<BLOCK_M, CAPPED, SHIFT>(visibility, softmax_scale, logits_soft_cap), turns);
    check(store_sums(dv, UNSCALED, Heads<Element>(dv_view), block, rank * 64));
  } else {
    take_registers<240>();
    float dk[D / 2] = {};
    const Places here{later(at.base)};
    Consumer{here, block, dq_sums, order, rank}.sum_keys(dk, turns);
    check(store_sums(dk, softmax_scale * DS_UNSCALED, Heads<Element>(dk_view), block, rank * 64));
  }
  if constexpr (BLOCKS == 2) sync_cluster();  // the other block may still write here
}

// Clears counters; rows' log-sum-exps, deltas, and sums of dq, at 0.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
  clear_counters<PREPARE_THREADS>(broken, broken_blocks, grid_blocks);
  clear_counters<PREPARE_THREADS>(added, added_count, grid_blocks);
  const Heads<const Element> out(out_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, out.tokens, 0, true, 0};
  CallGradients{sequences, {out.heads, space_rows, BLOCK_M, PACKED}, row_lse, row_delta, dq_sums}.prepare<PREPARE_THREADS, true>(out_view, dout_view, lse_view);
}

#include "device/sm90_attention_gradient_entries.h"
