// flash_attention_bwd on Hopper. A block takes 128 keys of one kv head through all queries that see them, BLOCK_M queries of one query head
// (a turn) at a time: warpgroup 0 copies queries and output gradients, a turn ahead; the two others have 64 keys each. Then it takes the
// next keys of a list that `prepare` has made, whose first turn is copied while the last ones are stored.
//
// They make scores transposed, S^T = K Q^T and dP^T = V dout^T, so that the weights P^T and dS^T = P^T (dP^T - delta) are operands, from
// registers, of the sums dv += P^T dout and dk += dS^T Q. dS goes through shared memory too, where both warpgroups take it for dq: each has
// 64 features of dS K, or half of its rows, and adds them to f32 sums in global memory, of which dq is made. With DEFERRED a
// warpgroup does the last turn's share of dq, so that it does not wait for the other one's dS. With OWNS_QUERIES a block takes all keys of a
// kv head: each thread then starts its sums, adds to them and makes dq of them itself, in the same order each time. Otherwise warps with
// nothing else to do make dq of a kv head's sums when all of its blocks have added (not of packed sequences: `finish` does).
//
// Registers are all taken, and ptxas then makes products wait for each other and says so only in its log (C7512): look there after a change.
#include "device/gpu.h"
#include "device/launch_order.h"
#include "device/sm90_attention_finish.h"
#include "device/sm90_attention_gradient.h"
#include "device/sm90_attention_list.h"
#include "device/sm90_attention_order.h"
#include "device/sm90_attention_gradient_segments.h"
#include "device/sm90_attention_weights.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool BOUNDED = ${bounded}, SEGMENTED = ${segmented};  // rows of the batch have their own lengths; tokens are of segments
constexpr bool DROPPED = ${dropped};                    // weights are dropped
$if biased == 'none'
using Bias = void;
$else
using Bias = ${ctype(biased)};
$end
constexpr bool MASKED = ${masked};                      // some scores are hidden by a dense mask
constexpr bool SUMS_BIAS = ${bias_gradient == 'summed'};    // the bias's gradient is wanted, and summed over what shares it
constexpr bool STORES_BIAS = ${bias_gradient == 'stored'};  // it is wanted, and is dS as it lies in shared memory
constexpr bool OWNS_QUERIES = ${whole};                 // nobody else adds to the sums of a block's queries
constexpr bool ORDERED = ${ordered} && !OWNS_QUERIES;   // the same bits each time
constexpr bool FINISHES = !PACKED && !OWNS_QUERIES;     // this launch makes dq of its sums, too
constexpr bool MENDS = FINISHES || OWNS_QUERIES;        // the one after it has only to mend it
constexpr bool NARROWS = MASKED && !ORDERED && !OWNS_QUERIES;  // blocks skip first and last turns that a mask hides
constexpr int GROUPS = 2, BLOCK_N = GROUPS * 64;        // warpgroups that multiply; keys of a block
constexpr int BLOCK_M = ${block_m};                     // queries of a turn
constexpr bool DEFERRED = ${deferred};                  // dq's share of a turn is added in the next one
constexpr bool ROOM = (D + DV) / 2 + BLOCK_M * 3 / 2 <= 208;  // registers for operands of dv's products beside what follows their start
constexpr uint32_t STAGES = 2;                          // turns in shared memory
constexpr int APART = 3, MANY_TURNS = 16;               // the barrier by which the second warpgroup starts half a turn later; and when
constexpr int TURNS_APART = 4;                          // ORDERED: and how soon again, for those that wait for the block before fall into step
constexpr int COPYING_REGISTERS = SEGMENTED && MASKED ? 40 : 24, MULTIPLYING_REGISTERS = (504 - COPYING_REGISTERS) / GROUPS;
constexpr int ALL_DONE = 4;                             // the barrier of warpgroups that multiply no more
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, WARPS = THREADS / WARP, PREPARE_THREADS = 128, FINISH_THREADS = 256;
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};           // weights are scaled by 2^SHIFT: halves have few digits below 2^-14
constexpr float DS_UNSCALED = 1;

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr uint32_t KEY_BOX = BLOCK_N * 128, QUERY_BOX = BLOCK_M * 128;
constexpr uint32_t K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX, Q_BYTES = BOXES * QUERY_BOX, DOUT_BYTES = V_BOXES * QUERY_BOX;
constexpr uint32_t DS_BYTES = GROUPS * QUERY_BOX, ROW_BYTES = BLOCK_M * 4;
constexpr uint32_t ID_BYTES = SEGMENTED ? ROW_BYTES : 0, KEY_ID_BYTES = SEGMENTED ? BLOCK_N * 4 : 0;
// Plain calls of heads of 64 have room for the next block's keys and values, too: at a block's end no warpgroup waits for the other, nor for a copy.
constexpr uint32_t KEY_STAGES = ${D <= 64 and Dv <= 64 and biased == 'none' and not (packed or capped or ordered or bounded or segmented or dropped or masked)} ? 2 : 1;

using Block = KeyBlock<BLOCK_M, BLOCK_N, GROUPS, PACKED, BOUNDED, ORDERED>;
using CallBias = BiasTile<Bias, BLOCK_M>;
using CallBiasSums = BiasTileSums<SUMS_BIAS, BLOCK_M>;
using CallMask = MaskTile<MASKED, BLOCK_M>;
using CallWeights = Weights<BLOCK_M, CAPPED, SHIFT, DROPPED, Bias, MASKED, SUMS_BIAS || STORES_BIAS>;
using CallGradients = Gradients<Element, D, DV, BLOCK_M, PACKED, CAPPED, CallWeights::BIASED || MASKED || SEGMENTED, DROPPED>;
using Sums = CallGradients::Sums;
using Order = AddOrder<ORDERED, 1, GROUPS>;
using List = BlockList<Block>;
using Queue = ListQueue<List::Entry, GROUPS * 4 + (ORDERED ? 2 : FINISHES) + STORES_BIAS>;
using Finisher = RowFinisher<Element, Sums, D>;
using QueryTurn = QueryTurns<ORDERED>;

// A warpgroup's share of a turn's dq, transposed: 64 of the features of all queries, or all features of half of the queries.
constexpr bool BY_FEATURES = BOXES == GROUPS;
constexpr int DQ_QUERIES = BY_FEATURES ? BLOCK_M : BLOCK_M / GROUPS;
static_assert(BOXES <= GROUPS);

// Barriers come in pairs: full, then empty.
struct Places {  // in shared memory
  uint32_t base;
  static constexpr uint32_t V = KEY_STAGES * K_BYTES, Q = V + KEY_STAGES * V_BYTES, DOUT = Q + STAGES * Q_BYTES, DS = DOUT + STAGES * DOUT_BYTES,
                            BIAS = DS + STAGES * DS_BYTES, MASK = BIAS + STAGES * CallBias::BYTES,
                            LOGS = MASK + STAGES * CallMask::BYTES, DELTAS = LOGS + STAGES * ROW_BYTES, IDS = DELTAS + STAGES * ROW_BYTES,
                            KEY_IDS = IDS + STAGES * ID_BYTES, BARRIERS = KEY_IDS + KEY_ID_BYTES;
  uint32_t k(uint32_t keys) const { return base + keys % KEY_STAGES * K_BYTES; }  // of the keys of that number
  uint32_t v(uint32_t keys) const { return base + V + keys % KEY_STAGES * V_BYTES; }
  uint32_t q(uint32_t i) const { return base + Q + i * Q_BYTES; }
  uint32_t dout(uint32_t i) const { return base + DOUT + i * DOUT_BYTES; }
  uint32_t ds(uint32_t i) const { return base + DS + i * DS_BYTES; }
  uint32_t bias(uint32_t i) const { return base + BIAS + i * CallBias::BYTES; }
  uint32_t mask(uint32_t i) const { return base + MASK + i * CallMask::BYTES; }
  uint32_t logs(uint32_t i) const { return base + LOGS + i * ROW_BYTES; }
  uint32_t deltas(uint32_t i) const { return base + DELTAS + i * ROW_BYTES; }
  uint32_t ids(uint32_t i) const { return base + IDS + i * ID_BYTES; }  // of queries' segments
  uint32_t key_ids() const { return base + KEY_IDS; }
  uint32_t q_full(uint32_t i) const { return base + BARRIERS + 16 * i; }
  uint32_t dout_full(uint32_t i) const { return q_full(STAGES + i); }
  uint32_t ds_full(uint32_t i) const { return q_full(2 * STAGES + i); }
  uint32_t k_full(uint32_t keys) const { return q_full(3 * STAGES + keys % KEY_STAGES); }
  uint32_t v_full(uint32_t keys) const { return q_full(3 * STAGES + KEY_STAGES + keys % KEY_STAGES); }
  uint32_t queue() const { return q_full(3 * STAGES + KEY_STAGES + KEY_STAGES); }
  uint32_t order() const { return queue() + Queue::BARRIER_BYTES; }
  uint32_t added(int place) const { return order() + Order::BARRIER_BYTES + 8 * place; }  // by a block of keys, in the queue's places
  uint32_t sums_full(int warp) const { return added(2) + 8 * warp; }
  uint32_t sums(int helper) const { return sums_full(WARPS) + helper * Finisher::BYTES; }  // of the three warps beside the one that copies

  void init_barriers() const {
    for (uint32_t i = 0; i < 2 * STAGES; ++i) {
      barrier_init(q_full(i), 1);
      barrier_init(q_full(i) + 8, GROUPS);
    }
    for (uint32_t i = 0; i < STAGES; ++i) {
      barrier_init(ds_full(i), GROUPS * 4);
      barrier_init(ds_full(i) + 8, GROUPS + STORES_BIAS);
    }
    for (uint32_t i = 0; i < KEY_STAGES; ++i) {
      barrier_init(k_full(i), 1);
      barrier_init(k_full(i) + 8, GROUPS);
    }
    for (uint32_t i = 0; i < KEY_STAGES; ++i) barrier_init(v_full(i), 1);
    for (int i = 0; FINISHES && i < 2; ++i) barrier_init(added(i), GROUPS * 4);
    for (int i = 0; FINISHES && i < WARPS; ++i) barrier_init(sums_full(i), 1);
  }
};
static inline uint32_t empty(uint32_t full) { return full + 8; }
// Blocks of keys are numbered, in a circle; the parity of the barriers of their keys and values.
static inline uint32_t next_keys(uint32_t keys) { return KEY_STAGES == 1 ? keys ^ 1 : (keys + 1) % (2 * KEY_STAGES); }
static inline uint32_t key_parity(uint32_t keys) { return KEY_STAGES == 1 ? keys : keys / KEY_STAGES % 2; }

// A dense bias and a dense mask, as they are given; the mask's bits.
struct Dense {
  const TensorMap& bias_map;
  const View &bias, &mask;
  const int32_t* mask_bits;
  float* dbias_sums;
  const int64_t& key_blocks;
  int64_t tile(const View& view, const Block& block, const QueryTurn& turn, int head) const {
    return dense_tile(view, block.sequence.batch, head, key_blocks, block.first_key / BLOCK_N, block.blocks_a_head, turn.step);
  }
};

// All copies of a block, by one thread.
struct Producer {
  const Places& at;
  const Block& block;
  const float *row_lse, *row_delta;
  const int32_t *row_segments, *key_segments;
  const Dense& dense;

  void copy_keys(const TensorMap& k, const TensorMap& v, uint32_t keys) const {
    const uint32_t k_full = at.k_full(keys), v_full = at.v_full(keys);
    barrier_wait(empty(k_full), key_parity(keys) ^ 1);
    barrier_arrive_expect(k_full, K_BYTES + KEY_ID_BYTES);
    copy_boxes<BOXES, PACKED>(at.k(keys), KEY_BOX, k, k_full, 0, block.kv_head, block.token(), block.sequence.batch);
    if (SEGMENTED)
      load_bytes(at.key_ids(), key_segments + block.sequence.batch * dense.key_blocks * BLOCK_N + block.first_key, KEY_ID_BYTES, k_full);
    barrier_arrive_expect(v_full, V_BYTES);
    copy_boxes<V_BOXES, PACKED>(at.v(keys), KEY_BOX, v, v_full, 0, block.kv_head, block.token(), block.sequence.batch);
  }
  void copy_queries(const QueryTurn& turn, const TensorMap& q) const {
    const uint32_t stage = turn.stage<STAGES>(), full = at.q_full(stage);
    barrier_wait(empty(full), turn.parity<STAGES>() ^ 1);
    barrier_arrive_expect(full, Q_BYTES + ROW_BYTES + CallBias::BYTES + CallMask::BYTES + ID_BYTES);
    copy_boxes<BOXES, PACKED>(at.q(stage), QUERY_BOX, q, full, 0, head(turn), token(turn), block.sequence.batch);
    load_bytes(at.logs(stage), row_lse + row(turn), ROW_BYTES, full);
    CallBias::copy(at.bias(stage), dense.bias_map, dense.bias, full, block.first_key, turn.step * BLOCK_M, head(turn),
                   static_cast<int>(block.sequence.batch));
    if (MASKED)
      load_bytes(at.mask(stage), CallMask::place(dense.mask_bits, dense.tile(dense.mask, block, turn, head(turn))), CallMask::BYTES, full);
    if (SEGMENTED) load_bytes(at.ids(stage), row_segments + row(turn), ID_BYTES, full);
  }
  void copy_gradients(const QueryTurn& turn, const TensorMap& dout) const {
    const uint32_t stage = turn.stage<STAGES>(), full = at.dout_full(stage);
    barrier_wait(empty(full), turn.parity<STAGES>() ^ 1);
    barrier_arrive_expect(full, DOUT_BYTES + ROW_BYTES);
    copy_boxes<V_BOXES, PACKED>(at.dout(stage), QUERY_BOX, dout, full, 0, head(turn), token(turn), block.sequence.batch);
    load_bytes(at.deltas(stage), row_delta + row(turn), ROW_BYTES, full);
  }
  // All of the block: turns from the first-th of all to before `end`.
  void copy(const TensorMap& q, const TensorMap& k, const TensorMap& v, const TensorMap& dout, int first, int end, uint32_t keys) const {
    QueryTurn turn(block, first);
    copy_queries(turn, q);
    copy_keys(k, v, keys);
#pragma unroll 1
    for (;;) {
      copy_gradients(turn, dout);
      turn.next(block);
      if (turn.number == end) return;
      copy_queries(turn, q);
    }
  }
  int head(const QueryTurn& turn) const { return block.first_head + turn.head; }
  int64_t token(const QueryTurn& turn) const { return block.sequence.first_query + turn.step * BLOCK_M; }
  int64_t row(const QueryTurn& turn) const { return block.first_row + int64_t{turn.block} * BLOCK_M; }
};

// dS of turns from the first-th to before `end`, by one thread, from shared memory to the bias's gradient.
static inline void store_bias_gradients(const Places& at, const Block& block, const TensorMap& dbias, int first, int end) {
#pragma unroll 1
  for (QueryTurn turn(block, first); turn.number < end; turn.next(block)) {
    const uint32_t stage = turn.stage<STAGES>(), full = at.ds_full(stage);
    const int head = block.first_head + turn.head;
    barrier_wait(full, turn.parity<STAGES>());
#pragma unroll
    for (int part = 0; part < GROUPS; ++part) {
      const int place[4] = {block.first_key + part * 64, turn.step * BLOCK_M, head, static_cast<int>(block.sequence.batch)};
      store_tile(dbias, place, at.ds(stage) + part * QUERY_BOX);
    }
    store_commit();
    store_wait_read<0>();
    barrier_arrive(empty(full));
  }
}

typedef float Scores[BLOCK_M / 2];
typedef uint32_t Operands[BLOCK_M / 16][4];
typedef Slopes<BLOCK_M, CAPPED> ScoreSlopes;

// What comes from shared memory is asked for before what it is for is there, where there are registers for it: log-sum-exps of a turn's first
// 16 queries, deltas of its first slices, and what turns need of a block.
constexpr bool PLAIN_SCORES = !CAPPED && !SEGMENTED && !DROPPED && !MASKED && !CallWeights::BIASED;
constexpr bool AHEAD = PLAIN_SCORES && !BOUNDED && !(OWNS_QUERIES && D + DV > 128);
typedef LogsAhead<AHEAD ? 2 : 0> FirstLogs;
struct Deltas {
  static constexpr int COUNT = AHEAD ? 2 : 1;
  SliceDeltas of[COUNT];
  void load(uint32_t deltas) {
#pragma unroll
    for (int n = 0; n < COUNT; ++n) of[n] = SliceDeltas(deltas, n);
  }
};
// In the warp's own registers; or asked each turn.
struct KeptPath {
  int first_step, end_step, blocks_a_head, blocks_a_group, first_whole, end_whole;
  float* dq_sums;  // from the block's first row on
  KeptPath(const Block& block, int part, float* dq_sums)
      : first_step(block.first_step), end_step(block.end_step), blocks_a_head(block.blocks_a_head),
        blocks_a_group(block.blocks_a_group), first_whole(block.first_whole[part]), end_whole(block.end_whole[part]), dq_sums(dq_sums + block.first_row * Sums::FEATURES) {}
  int steps() const { return end_step - first_step; }
  const KeptPath& bounds() const { return *this; }
  float* sums() const { return dq_sums; }
  bool is_whole(int step) const { return step >= first_whole && step < end_whole; }
};
struct AskedPath {
  const Block& block;
  int part;
  float* dq_sums;
  const Block& bounds() const { return block; }
  float* sums() const { return dq_sums + block.first_row * Sums::FEATURES; }
  bool is_whole(int step) const { return block.is_whole(part, step); }
};
template <bool KEPT> struct PathOf { typedef AskedPath Type; };
template <> struct PathOf<true> { typedef KeptPath Type; };
typedef PathOf<AHEAD>::Type Path;

struct Consumer {
  const Places& at;
  const List::Entry& entry;
  const Block& block;
  const CallWeights& rules;
  const Dropout& dropout;
  int heads;  // query heads
  float* dq_sums;
  const Order& order;
  const Heads<Element>& dq_rows;
  float factor;
  int part;  // which of the warpgroups that multiply
  uint32_t keys;  // their number
  const Dense& dense;

  void multiply_keys(Scores& s, uint32_t stage) const {
    start_product<Element, BLOCK_M, D>(s, at.k(keys) + part * 64 * 128, KEY_BOX, at.q(stage), QUERY_BOX);
  }
  void multiply_values(Scores& dp, uint32_t stage) const {
    start_product<Element, BLOCK_M, DV>(dp, at.v(keys) + part * 64 * 128, KEY_BOX, at.dout(stage), QUERY_BOX);
  }
  void multiply_gradients(float (&dq)[DQ_QUERIES / 2], uint32_t stage) const {
    const uint32_t box = at.k(keys) + (BY_FEATURES ? part * KEY_BOX : 0), rows[GROUPS] = {box, box + 64 * 128};
    start_queries<Element, DQ_QUERIES>(dq, rows, at.ds(stage) + (BY_FEATURES ? 0 : part * DQ_QUERIES * 128), QUERY_BOX);
  }

  float* bias_tile(const QueryTurn& turn) const {
    const int head = block.first_head + turn.head;
    return dense.dbias_sums + dense.tile(dense.bias, block, turn, head) * CallBiasSums::COUNT;
  }
  // dP becomes dS, as operand and in shared memory.
  template <bool WHOLE>
  void differentiate_all(const Scores& dp, const Scores& weights, const ScoreSlopes& slopes, const Deltas& first, const QueryTurn& turn,
                         Operands& ds) const {
    const uint32_t stage = turn.stage<STAGES>();
    const CallBiasSums bias_sums(SUMS_BIAS ? bias_tile(turn) : nullptr, part);
    Deltas ahead = first;
#pragma unroll
    for (int n = 0; n < BLOCK_M / 16; ++n) {
      const SliceDeltas now = ahead.of[n % Deltas::COUNT];
      if (n + Deltas::COUNT < BLOCK_M / 16) ahead.of[n % Deltas::COUNT] = SliceDeltas(at.deltas(stage), n + Deltas::COUNT);
      differentiate_slice<Element, WHOLE, DROPPED>(n, dp, [&](int i) { return weights[8 * n + i]; }, rules.unscaled(), slopes, now,
                                                   at.ds(stage) + later(part) * QUERY_BOX, ds[n], bias_sums);
    }
  }
  void differentiate(const Scores& dp, const Scores& weights, const ScoreSlopes& slopes, Deltas& deltas, const QueryTurn& turn, bool whole,
                     Operands& ds) const {
    const uint32_t stage = turn.stage<STAGES>(), full = at.ds_full(stage);
    barrier_wait(empty(full), turn.parity<STAGES>() ^ 1);
    if (!AHEAD) deltas.load(at.deltas(stage));
    if (whole && !MASKED)
      differentiate_all<true>(dp, weights, slopes, deltas, turn, ds);
    else
      differentiate_all<false>(dp, weights, slopes, deltas, turn, ds);
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(full);
  }

  // queries: BLOCK_M rows of the group's, those of turn `number`.
  void add_to_queries(const Path& path, int queries, uint32_t number, float (&dq)[DQ_QUERIES / 2]) const {
    float* const sums = path.sums() + int64_t{queries} * Sums::COUNT;
    const int head = OWNS_QUERIES ? queries / block.blocks_a_head : 0, step = queries - head * block.blocks_a_head;
    const int part = OWNS_QUERIES ? static_cast<int>(later(this->part)) : this->part;  // nothing made of it is kept
    const int box = BY_FEATURES ? part : 0, first_chunk = BY_FEATURES ? 0 : part * (Sums::CHUNKS / GROUPS);
    const bool opens = OWNS_QUERIES && step >= entry.opens_from, closes = OWNS_QUERIES && step < entry.closes_before;
    order.wait(number, part);
    if (!opens && !closes) {
      Sums::add(sums, box, first_chunk, dq);
    } else if (!closes) {
      Sums::start(sums, box, first_chunk, dq);
    } else {
      if (!opens) Sums::load_and_add(sums, box, first_chunk, dq);
      const int row = step * BLOCK_M + (BY_FEATURES ? 0 : part * DQ_QUERIES);
      const bool finite = store_transposed<D>(dq, factor, dq_rows, block.sequence, block.first_head + head, row, box);
      int32_t* const state = order.done + 1 + block.first_row / BLOCK_M + queries;
      if (thread_x() % WARPGROUP == 0) atomicMax(state, 1);
      if (any_in_warp(!finite) && lane() == 0) atomicMax(state, ROWS_BROKEN);
    }
    order.tell(number, part);
  }

  // One thread says so for its warpgroup.
  static void release(uint32_t full) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(full));
  }

  static bool parts_again(const QueryTurn& turn, int first) { return ORDERED && turn.number % TURNS_APART == 0 && turn.number != first; }

  // Of a turn's weights.
  void find_kept(KeptScores<BLOCK_M>& kept, const QueryTurn& turn) const {
    const uint32_t key = block.first_key + later(part) * 64 + later(thread_x()) / WARP % 4 * 16, head = block.first_head + turn.head;
    kept.find(dropout, key, turn.step * BLOCK_M, static_cast<uint32_t>(block.sequence.index) * heads + head);
  }

  // Turns, of all that this warpgroup goes through: from the first-th to before `end`.
  void run(float (&dk)[D / 2], float (&dv)[DV / 2], int first, int end) const {
    Scores s;
    KeptScores<BLOCK_M> kept;  // of the scores that are next
    const Path path{block, part, dq_sums};
    QueryTurn turn(path.bounds(), first);
    bool whole = path.is_whole(turn.step);
    int queries = 0;  // whose share of dq is next
    // With the next keys there, warpgroups stay as far apart as they are. Where scores are hidden, they cost more to set apart than that brings.
    const auto sets_apart = [&] { return first == 0 || (KEY_STAGES > 1 ? !block.hides(0) && !block.hides(1) : end - first >= MANY_TURNS); };
    barrier_wait(at.k_full(keys), key_parity(keys));
    if (part == 1 && sets_apart()) sync_some(APART, GROUPS * WARPGROUP);
    barrier_wait(at.q_full(turn.stage<STAGES>()), turn.parity<STAGES>());
    multiply_keys(s, turn.stage<STAGES>());
    if (DROPPED) find_kept(kept, turn);
    wgmma_wait<0>();
    keep_in_place(s);
    barrier_wait(at.v_full(keys), key_parity(keys));
    FirstLogs logs(at.logs(turn.stage<STAGES>()));
#pragma unroll 1
    for (;;) {
      Scores dp;  // here, so that nothing of a turn is kept for the next
      ScoreSlopes slopes;
      Operands p, ds;
      float dq[DQ_QUERIES / 2];
      if (!AHEAD) whole = path.is_whole(turn.step);
      const bool adds = !DEFERRED || turn.number > first, last = turn.number + 1 == end;
      const uint32_t stage = turn.stage<STAGES>(), dq_number = turn.number - DEFERRED, dq_stage = dq_number % STAGES;
      if (!DEFERRED) queries = turn.block;
      if (part == 1 && parts_again(turn, first)) sync_some(APART, GROUPS * WARPGROUP);
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      multiply_values(dp, stage);
      rules.weigh(s, slopes, block, part, turn.step, [&] { return AHEAD ? whole : path.is_whole(turn.step); }, at.logs(stage), [&](Scores& scores) {
        if constexpr (SEGMENTED) hide_other_segments(scores, at.ids(stage), at.key_ids() + later(part) * 64 * 4);
      }, logs, at.bias(stage), at.mask(stage));
      if constexpr (DROPPED)
        kept.mark(s), pack_kept_weights<Element, BLOCK_M>(p, s);
      else
        pack_weights<Element, BLOCK_M>(p, s);
      if (part == 0 && (turn.number == first ? sets_apart() : parts_again(turn, first))) arrive_some(APART, GROUPS * WARPGROUP);
      start_sums<Element, BLOCK_M, DV>(dv, p, at.dout(stage));
      Deltas deltas;
      if (AHEAD) deltas.load(at.deltas(stage));
      wgmma_wait<ROOM>();
      keep_in_place(dp);
      if (!ROOM) keep_in_place(dv);
      differentiate(dp, s, slopes, deltas, turn, whole, ds);
      start_sums<Element, BLOCK_M, D>(dk, ds, at.q(stage));
      if (adds) barrier_wait(at.ds_full(dq_stage), dq_number / STAGES % 2);
      multiply_gradients(dq, dq_stage);  // of nothing, if it does not add
      const int these_queries = turn.block;
      turn.next(path.bounds());
      if (AHEAD) whole = path.is_whole(turn.step);
      wgmma_wait<1>();  // p and ds are free
      keep_in_place(dk);
      if (ROOM) keep_in_place(dv);
      release(at.q_full(stage));
      release(at.dout_full(stage));
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
        add_to_queries(path, queries, dq_number, dq);
      }
      if (DEFERRED) queries = these_queries;
      if (!last) logs = FirstLogs(at.logs(turn.stage<STAGES>()));
      if (DROPPED && !last) find_kept(kept, turn);
      wgmma_wait<0>();
      keep_in_place(s);
      if (last) break;
    }
    if (DEFERRED) {
      float dq[DQ_QUERIES / 2];
      const uint32_t number = end - 1;
      barrier_wait(at.ds_full(number % STAGES), number / STAGES % 2);
      multiply_gradients(dq, number % STAGES);
      wgmma_wait<0>();
      keep_in_place(dq);
      release(at.ds_full(number % STAGES));
      release(at.k_full(keys));
      add_to_queries(path, queries, number, dq);
    } else {
      release(at.k_full(keys));
    }
  }
};

$if masked
// The mask's bits.
KERNEL(256, 1) pack_mask(${parameters('pack_mask')}) {
  __shared__ uint32_t bytes[BLOCK_M * MaskPacker<BLOCK_M>::PITCH / 4];
  MaskPacker<BLOCK_M>{attention_mask_view, reinterpret_cast<uint32_t*>(mask_bits), tiles_seen, key_blocks, items}.run(reinterpret_cast<uint8_t*>(bytes));
}
$end
$if biased != 'none'
// A bias whose rows tile copies do not take, in rows that they do.
KERNEL(256, 1) align_bias(${parameters('align_bias')}) {
  copy_rows<256, Bias>(aligned_rows(bias_view, sizeof(Bias) == 2 ? static_cast<void*>(bias_rows_16) : static_cast<void*>(bias_rows_32)), bias_view);
}
$end
$if bias_gradient == 'stored'
// The bias's gradient is 0 where blocks of keys skip turns.
KERNEL(256, 1) clear_bias(${parameters('clear_bias')}) {
  const Heads<const Element> q(q_view), k(k_view);
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr};
  const RowSpace space{q.heads, space_rows, BLOCK_M, PACKED};
#pragma unroll 1
  for (int64_t i = block_x(); i < broken_blocks; i += grid_x()) {
    Block block;
    const int numbered = static_cast<int>(i / key_blocks), number = static_cast<int>(i - numbered * key_blocks);
    if (!block.find(sequences, {causal, window_left, window_right}, space, static_cast<int>(k.heads), numbered, number)) continue;
    if constexpr (SEGMENTED) SegmentIds(q_segment_ids_view, kv_segment_ids_view, q.tokens, k.tokens).narrow<!ORDERED && !OWNS_QUERIES>(block);
    if constexpr (NARROWS) narrow_steps(block, attention_mask_view, tiles_seen, static_cast<int>(q.heads / k.heads), key_blocks);
    const auto clear = [&](const View& rows) {
#pragma unroll 1
      for (int head = 0; head < q.heads / k.heads; ++head)
        clear_bias_rows<256, Element>(rows, block.sequence.batch, block.first_head + head, block.first_key, block.keys < BLOCK_N ? block.keys : BLOCK_N,
                                      block.first_step * BLOCK_M, block.end_step * BLOCK_M);
    };
    if (stores_apart)
      clear(aligned_rows(dbias_view, dbias_rows_16));
    else
      clear(dbias_view);
  }
}
// The gradient of a bias whose rows tile copies do not take.
KERNEL(256, 1) store_bias(${parameters('store_bias')}) { copy_rows<256, Bias>(dbias_view, aligned_rows(dbias_view, dbias_rows_16)); }
$end
$if bias_gradient == 'summed'
// The bias's gradient: its sums before, and after.
KERNEL(256, 1) clear_bias(${parameters('clear_bias')}) { clear_bias_sums<256>(dbias_sums, dbias_count); }
KERNEL(256, 1) finish_bias(${parameters('finish_bias')}) {
  __shared__ float rows[BLOCK_M * BiasStorer<BLOCK_M>::PITCH];
  BiasStorer<BLOCK_M>{dbias_view, bias_type, dbias_sums, key_blocks, items}.run(rows);
}
$end

// listed: listed_count blocks of keys, which blocks of the grid take `run` at a time: those of one kv head, or one. added[0]: how often they
// have. broken: which blocks of keys, by kv head, are to be done again.
KERNEL(THREADS, 1) differentiate(${parameters('differentiate')}) {
  __shared__ List::Entry entries[Queue::AHEAD];
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  const Queue queue{reinterpret_cast<const List::Entry*>(listed), listed_count, added, static_cast<int>(run), entries, at.queue()};
  const int heads_a_kv_head = static_cast<int>(q_view.shape[q_view.rank - 2] / k_view.shape[k_view.rank - 2]), group = shuffle(warpgroup(), 0);
  const Visibility visibility{causal, window_left, window_right};
  const Order order{added, window_left, 0, at.order()};
  const Finisher finisher{dq_sums, finished, added + 1, units, units_a_head, key_blocks, heads_a_kv_head, softmax_scale * DS_UNSCALED, dq_view};
  const Dense dense{bias_map, bias_view, attention_mask_view, mask_bits, dbias_sums, key_blocks};
  let_next_launch_go();
  if (thread_x() == 0) {
    at.init_barriers();
    queue.init();
    order.init(4);
    fence_barrier_init();
  }
  sync_block();
  wait_for_previous_launch();
  int first = 0;      // turn of this block of keys, of all
  uint32_t keys = 0;  // their number
  if (group == 0) {
    give_registers<COPYING_REGISTERS>();
    if (STORES_BIAS && warp() == 3) {
      queue.read([&](const List::Entry& entry) {
        const int end = first + entry.block.steps() * heads_a_kv_head;
        if (lane() == 0) store_bias_gradients(at, entry.block, dbias_map, first, end);
        first = end;
      });
      store_wait<0>();
    }
    if ((ORDERED && warp() == 1) || ((ORDERED || FINISHES) && warp() == 2)) {
      uint32_t parities = 0;  // of the barriers that say that a block of keys has added everything
      queue.read([&](const List::Entry& entry) {
        const int end = first + entry.block.steps() * heads_a_kv_head, place = &entry != entries;
        if (lane() == 0 && warp() == 1) order.open_turns<QueryTurn>(entry.block, first, end);
        if (lane() == 0 && warp() == 2) {
          order.pass_turns<QueryTurn>(entry.block, first, end);
          if (FINISHES) barrier_wait(at.added(place), parities >> place & 1);
          if (FINISHES) finisher.tell(entry.numbered);
        }
        first = end, parities ^= 1 << place;
      });
    }
    if (FINISHES && warp() != 0) return finisher.run(at.sums(warp() - 1), at.sums_full(warp()));
    if (thread_x() != 0) return;
    fence_async_everywhere();
    queue.give_out([&](const List::Entry& entry) {
      const int end = first + entry.block.steps() * heads_a_kv_head;
      if (first == end) return;
      Producer{at, entry.block, row_lse, row_delta, row_segments, key_segments, dense}.copy(q_map, k_map, v_map, dout_map, first, end, keys);
      first = end, keys = next_keys(keys);
    });
  } else {
    take_registers<MULTIPLYING_REGISTERS>();
    CallWeights rules(visibility, softmax_scale, logits_soft_cap);
    if (DROPPED) rules.drop(kept_part);
    const Dropout dropout(drop_threshold, dropout_seed);
    const Heads<Element> dq_rows(dq_view);
    queue.read([&](const List::Entry& entry) {
      const Block& block = entry.block;
      const int end = first + block.steps() * heads_a_kv_head;
      float dk[D / 2] = {}, dv[DV / 2] = {};
      if (first != end) {
        const int heads = static_cast<int>(q_view.shape[q_view.rank - 2]);
        Consumer{at, entry, block, rules, dropout, heads, dq_sums, order, dq_rows, softmax_scale * DS_UNSCALED, group - 1, keys, dense}.run(dk, dv, first, end);
        first = end, keys = next_keys(keys);
      }
      if (FINISHES) sync_warp();
      if (FINISHES && lane() == 0) barrier_arrive(at.added(&entry != entries));
      const bool finite_dk = store_sums(dk, softmax_scale * DS_UNSCALED, Heads<Element>(dk_view), block, (group - 1) * 64);
      const bool finite_dv = store_sums(dv, rules.unscaled(), Heads<Element>(dv_view), block, (group - 1) * 64);
      if (any_in_warp((MASKED || block.hides(group - 1)) && !(finite_dk && finite_dv)) && lane() == 0) broken[entry.numbered] = 1;
    });
    if (FINISHES) sync_some(ALL_DONE, GROUPS * WARPGROUP);  // with keys and values, whose place is used now
    if (FINISHES) finisher.run(at.base + (warp() - WARPGROUP / WARP) * Finisher::BYTES, at.sums_full(warp()));
  }
}

#include "device/sm90_attention_gradient_entries.h"
