// flash_attention_bwd on Hopper. A block takes 128 keys of one kv head through all queries that see them, BLOCK_M queries of one query head
// (a turn) at a time: warpgroup 0 copies queries and output gradients, a turn ahead; the two others have 64 keys each.
//
// They make scores transposed, S^T = K Q^T and dP^T = V dout^T, so that the weights P^T and dS^T = P^T (dP^T - delta) are operands, from
// registers, of the sums dv += P^T dout and dk += dS^T Q. dS goes through shared memory too, where both warpgroups take it for dq: each has
// 64 features of dS K, or half of its rows, and adds them to f32 sums in global memory; `finish` makes dq of those. With DEFERRED a
// warpgroup does the last turn's share of dq, so that it does not wait for the other one's dS.
//
// Registers are all taken, and ptxas then makes products wait for each other and says so only in its log (C7512): look there after a change.
#include "device/gpu.h"
#include "device/sm90_attention_gradient.h"
#include "device/sm90_attention_order.h"
#include "device/sm90_attention_weights.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool ORDERED = ${ordered};                    // the same bits each time
constexpr int GROUPS = 2, BLOCK_N = GROUPS * 64;        // warpgroups that multiply; keys of a block
constexpr int BLOCK_M = ${block_m};                     // queries of a turn
constexpr bool DEFERRED = ${deferred};                  // dq's share of a turn is added in the next one
constexpr bool ROOM = (D + DV) / 2 + BLOCK_M * 3 / 2 <= 208;  // registers for operands of dv's products beside what follows their start
constexpr uint32_t STAGES = 2;                          // turns in shared memory
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, PREPARE_THREADS = 128, FINISH_THREADS = 256;
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};           // weights are scaled by 2^SHIFT: halves have few digits below 2^-14
constexpr float UNSCALED = 1.0f / (1 << SHIFT), DS_UNSCALED = 1;

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr uint32_t KEY_BOX = BLOCK_N * 128, QUERY_BOX = BLOCK_M * 128;
constexpr uint32_t K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX, Q_BYTES = BOXES * QUERY_BOX, DOUT_BYTES = V_BOXES * QUERY_BOX;
constexpr uint32_t DS_BYTES = GROUPS * QUERY_BOX, ROW_BYTES = BLOCK_M * 4;

using Block = KeyBlock<BLOCK_M, BLOCK_N, GROUPS, PACKED>;
using CallGradients = Gradients<Element, D, DV, BLOCK_M, PACKED, CAPPED>;
using Sums = CallGradients::Sums;
using Order = AddOrder<ORDERED, 1>;
using QueryTurn = QueryTurns<ORDERED>;

// A warpgroup's share of a turn's dq, transposed: 64 of the features of all queries, or all features of half of the queries.
constexpr bool BY_FEATURES = BOXES == GROUPS;
constexpr int DQ_QUERIES = BY_FEATURES ? BLOCK_M : BLOCK_M / GROUPS;
static_assert(BOXES <= GROUPS);

// Barriers come in pairs: full, then empty.
struct Places {  // in shared memory
  uint32_t base;
  static constexpr uint32_t V = K_BYTES, Q = V + V_BYTES, DOUT = Q + STAGES * Q_BYTES, DS = DOUT + STAGES * DOUT_BYTES,
                            LOGS = DS + STAGES * DS_BYTES, DELTAS = LOGS + STAGES * ROW_BYTES, BARRIERS = DELTAS + STAGES * ROW_BYTES;
  uint32_t k() const { return base; }
  uint32_t v() const { return base + V; }
  uint32_t q(uint32_t i) const { return base + Q + i * Q_BYTES; }
  uint32_t dout(uint32_t i) const { return base + DOUT + i * DOUT_BYTES; }
  uint32_t ds(uint32_t i) const { return base + DS + i * DS_BYTES; }
  uint32_t logs(uint32_t i) const { return base + LOGS + i * ROW_BYTES; }
  uint32_t deltas(uint32_t i) const { return base + DELTAS + i * ROW_BYTES; }
  uint32_t q_full(uint32_t i) const { return base + BARRIERS + 16 * i; }
  uint32_t dout_full(uint32_t i) const { return q_full(STAGES + i); }
  uint32_t ds_full(uint32_t i) const { return q_full(2 * STAGES + i); }
  uint32_t k_full() const { return q_full(3 * STAGES); }
  uint32_t v_full() const { return q_full(3 * STAGES + 1); }
  uint32_t order() const { return q_full(3 * STAGES + 2); }
};
static inline uint32_t empty(uint32_t full) { return full + 8; }

// All copies of a block, by one thread.
struct Producer {
  const Places& at;
  const Block& block;
  const float *row_lse, *row_delta;

  void copy_keys(const TensorMap& k, const TensorMap& v) const {
    barrier_arrive_expect(at.k_full(), K_BYTES);
    copy_boxes<BOXES, PACKED>(at.k(), KEY_BOX, k, at.k_full(), 0, block.kv_head, block.token(), block.sequence.batch);
    barrier_arrive_expect(at.v_full(), V_BYTES);
    copy_boxes<V_BOXES, PACKED>(at.v(), KEY_BOX, v, at.v_full(), 0, block.kv_head, block.token(), block.sequence.batch);
  }
  void copy_turn(const QueryTurn& turn, const TensorMap& q, const TensorMap& dout) const {
    const int64_t token = block.sequence.first_query + turn.step * BLOCK_M, row = block.first_row + int64_t{turn.block} * BLOCK_M;
    const int head = block.first_head + turn.block / block.blocks_a_head;
    const uint32_t stage = turn.stage<STAGES>(), before = turn.parity<STAGES>() ^ 1, q_full = at.q_full(stage), dout_full = at.dout_full(stage);
    barrier_wait(empty(q_full), before);
    barrier_arrive_expect(q_full, Q_BYTES + ROW_BYTES);
    copy_boxes<BOXES, PACKED>(at.q(stage), QUERY_BOX, q, q_full, 0, head, token, block.sequence.batch);
    load_bytes(at.logs(stage), row_lse + row, ROW_BYTES, q_full);
    barrier_wait(empty(dout_full), before);
    barrier_arrive_expect(dout_full, DOUT_BYTES + ROW_BYTES);
    copy_boxes<V_BOXES, PACKED>(at.dout(stage), QUERY_BOX, dout, dout_full, 0, head, token, block.sequence.batch);
    load_bytes(at.deltas(stage), row_delta + row, ROW_BYTES, dout_full);
  }
};

typedef float Scores[BLOCK_M / 2];
typedef uint32_t Operands[BLOCK_M / 16][4];
typedef Slopes<BLOCK_M, CAPPED> ScoreSlopes;

struct Consumer {
  const Places& at;
  const Block& block;
  const Weights<BLOCK_M, CAPPED, SHIFT>& rules;
  float* dq_sums;
  const Order& order;
  int part;  // which of the warpgroups that multiply

  void multiply_keys(Scores& s, uint32_t stage) const {
    start_product<Element, BLOCK_M, D>(s, at.k() + part * 64 * 128, KEY_BOX, at.q(stage), QUERY_BOX);
  }
  void multiply_values(Scores& dp, uint32_t stage) const {
    start_product<Element, BLOCK_M, DV>(dp, at.v() + part * 64 * 128, KEY_BOX, at.dout(stage), QUERY_BOX);
  }
  void multiply_gradients(float (&dq)[DQ_QUERIES / 2], uint32_t stage) const {
    const uint32_t box = at.k() + (BY_FEATURES ? part * KEY_BOX : 0), keys[GROUPS] = {box, box + 64 * 128};
    start_queries<Element, DQ_QUERIES>(dq, keys, at.ds(stage) + (BY_FEATURES ? 0 : part * DQ_QUERIES * 128), QUERY_BOX);
  }

  // dP becomes dS, as operand and in shared memory.
  template <bool WHOLE>
  void differentiate_all(const Scores& dp, const Scores& weights, const ScoreSlopes& slopes, uint32_t stage, Operands& ds) const {
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n)
      differentiate_slice<Element, WHOLE>(n, dp, [&](int i) { return weights[8 * n + i]; }, UNSCALED, slopes, at.deltas(stage),
                                          at.ds(stage) + part * QUERY_BOX, ds[n]);
  }
  void differentiate(const Scores& dp, const Scores& weights, const ScoreSlopes& slopes, const QueryTurn& turn, bool whole, Operands& ds) const {
    const uint32_t stage = turn.stage<STAGES>(), full = at.ds_full(stage);
    barrier_wait(empty(full), turn.parity<STAGES>() ^ 1);
    if (whole)
      differentiate_all<true>(dp, weights, slopes, stage, ds);
    else
      differentiate_all<false>(dp, weights, slopes, stage, ds);
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(full);
  }

  // queries: BLOCK_M rows of the group's, those of turn `number`.
  void add_to_queries(int queries, uint32_t number, const float (&dq)[DQ_QUERIES / 2]) const {
    float* const sums = dq_sums + (block.first_row + int64_t{queries} * BLOCK_M) * Sums::FEATURES;
    order.wait(number);
    Sums::add(sums, BY_FEATURES ? part : 0, BY_FEATURES ? 0 : part * (Sums::CHUNKS / GROUPS), dq);
    order.tell(number);
  }

  // One thread says so for its warpgroup.
  static void release(uint32_t full) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(full));
  }

  void run(float (&dk)[D / 2], float (&dv)[DV / 2], int turns) const {
    if (turns == 0) return;
    Scores s;
    QueryTurn turn(block);
    int queries = 0;  // whose share of dq is next
    barrier_wait(at.k_full(), 0);
    barrier_wait(at.q_full(0), 0);
    multiply_keys(s, 0);
    wgmma_wait<0>();
    keep_in_place(s);
    barrier_wait(at.v_full(), 0);
#pragma unroll 1
    for (;;) {
      Scores dp;  // here, so that nothing of a turn is kept for the next
      ScoreSlopes slopes;
      Operands p, ds;
      float dq[DQ_QUERIES / 2];
      const bool whole = block.is_whole(part, turn.step), adds = !DEFERRED || turn.number > 0, last = turn.number + 1 == turns;
      const uint32_t stage = turn.stage<STAGES>(), dq_number = turn.number - DEFERRED, dq_stage = dq_number % STAGES;
      if (!DEFERRED) queries = turn.block;
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      multiply_values(dp, stage);
      rules.weigh(s, slopes, block, part, turn.step, at.logs(stage));
      pack_weights<Element, BLOCK_M>(p, s);
      start_sums<Element, BLOCK_M, DV>(dv, p, at.dout(stage));
      wgmma_wait<ROOM>();
      keep_in_place(dp);
      if (!ROOM) keep_in_place(dv);
      differentiate(dp, s, slopes, turn, whole, ds);
      start_sums<Element, BLOCK_M, D>(dk, ds, at.q(stage));
      if (adds) barrier_wait(at.ds_full(dq_stage), dq_number / STAGES % 2);
      multiply_gradients(dq, dq_stage);  // of nothing, if it does not add
      wgmma_wait<1>();                   // p and ds are free
      keep_in_place(dk);
      if (ROOM) keep_in_place(dv);
      release(at.q_full(stage));
      release(at.dout_full(stage));
      const int these_queries = turn.block;
      turn.next(block);
      if (!last) {
        barrier_wait(at.q_full(turn.stage<STAGES>()), turn.parity<STAGES>());
        multiply_keys(s, turn.stage<STAGES>());
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      keep_in_place(dq);
      if (adds) {
        release(at.ds_full(dq_stage));
        add_to_queries(queries, dq_number, dq);
      }
      if (DEFERRED) queries = these_queries;
      wgmma_wait<0>();
      keep_in_place(s);
      if (last) break;
    }
    if (!DEFERRED) return;
    float dq[DQ_QUERIES / 2];
    const uint32_t number = turns - 1;
    barrier_wait(at.ds_full(number % STAGES), number / STAGES % 2);
    multiply_gradients(dq, number % STAGES);
    wgmma_wait<0>();
    keep_in_place(dq);
    add_to_queries(queries, number, dq);
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
  const Order order{added, visibility, 0, at.order()};
  const int started = Order::start(added, static_cast<int>(block_number()), 0), turn = started / grid_x();
  if (warp() == 0) {
    const int numbered = turn / grid_y() * grid_x() + started % grid_x(), number = turn % grid_y();
    const Sequences sequences{PACKED ? cum_seqlens_q : nullptr, PACKED ? cum_seqlens_k : nullptr, sequence_count, q_view.shape[q_view.rank - 3],
                              k_view.shape[k_view.rank - 3], offset_given, offset};
    Block found;
    const bool some = found.find(sequences, visibility, RowSpace{heads, space_rows, BLOCK_M, PACKED}, kv_heads, numbered, number);
    if (lane() == 0) {
      exists = some, block = found, numbered_block = int64_t{numbered} * key_blocks + number;
      for (uint32_t i = 0; i < 2 * STAGES; ++i) {
        barrier_init(at.q_full(i), 1);
        barrier_init(empty(at.q_full(i)), GROUPS);
      }
      for (uint32_t i = 0; i < STAGES; ++i) {
        barrier_init(at.ds_full(i), GROUPS * 4);
        barrier_init(empty(at.ds_full(i)), GROUPS);
      }
      barrier_init(at.k_full(), 1);
      barrier_init(at.v_full(), 1);
      order.init(GROUPS * 4);
      fence_barrier_init();
    }
  }
  sync_block();
  if (!exists) return;
  const int turns = block.steps() * (heads / kv_heads), group = shuffle(warpgroup(), 0);
  if (group == 0) {
    give_registers<24>();
    if (turns == 0) return;
    if (thread_x() == 0) {
      const Producer producer{at, block, row_lse, row_delta};
      producer.copy_keys(k_map, v_map);
#pragma unroll 1
      for (QueryTurn turn(block); turn.number < turns; turn.next(block)) producer.copy_turn(turn, q_map, dout_map);
    }
    if (ORDERED && thread_x() == WARP) order.open_turns<QueryTurn>(block, turns);
    if (ORDERED && thread_x() == 2 * WARP) order.pass_turns<QueryTurn>(block, turns);
  } else {
    take_registers<240>();
    const Weights<BLOCK_M, CAPPED, SHIFT> rules(visibility, softmax_scale, logits_soft_cap);
    float dk[D / 2] = {}, dv[DV / 2] = {};
    Consumer{at, block, rules, dq_sums, order, group - 1}.run(dk, dv, turns);
    const bool finite_dk = store_sums(dk, softmax_scale * DS_UNSCALED, Heads<Element>(dk_view), block, (group - 1) * 64);
    const bool finite_dv = store_sums(dv, UNSCALED, Heads<Element>(dv_view), block, (group - 1) * 64);
    if (any_in_warp(block.hides(group - 1) && !(finite_dk && finite_dv)) && lane() == 0)
      broken[numbered_block] = 1;
  }
}

#include "device/sm90_attention_gradient_entries.h"
