// Hopper vocabulary of the gradients of attention with wide heads: what lies in shared memory, and the thread that copies. After a template's
// constants, which say how large it all is.
#pragma once
#include "device/sm90_attention_keys.h"

// Barriers come in pairs: full, then empty.
struct Places {  // in shared memory
  uint32_t base;
  static constexpr uint32_t V = K_BYTES, OTHER = V + V_BYTES, Q = OTHER + OTHER_BYTES, DOUT = Q + STAGES * Q_BYTES, DS = DOUT + STAGES * DOUT_BYTES,
                            P = DS + STAGES * DS_BYTES, BIAS = P + STAGES * P_BYTES, LOGS = BIAS + CallBias::BYTES, DELTAS = LOGS + STAGES * ROW_BYTES,
                            IDS = DELTAS + STAGES * ROW_BYTES, BARRIERS = IDS + STAGES * ID_BYTES;
  uint32_t k() const { return base; }
  uint32_t v() const { return base + V; }
  uint32_t other_k(int i) const { return base + OTHER + i * KEY_BOX; }
  uint32_t q(uint32_t i) const { return base + Q + i * Q_BYTES; }
  uint32_t dout(uint32_t i) const { return base + DOUT + i * DOUT_BYTES; }
  uint32_t ds(uint32_t i) const { return base + DS + i * DS_BYTES; }
  // This lane's weights of 16 queries, number n of the turn's: eight halves, or the first or last four of eight floats.
  uint32_t p(uint32_t i, int n) const { return base + P + i * P_BYTES + ((n * 4 + warp() % 4) * WARP + lane()) * 16; }
  uint32_t slopes(uint32_t i, int n) const { return p(i, n) + P_BOXES * QUERY_BOX; }  // of those weights, as halves
  uint32_t bias() const { return base + BIAS; }
  uint32_t logs(uint32_t i) const { return base + LOGS + i * ROW_BYTES; }
  uint32_t deltas(uint32_t i) const { return base + DELTAS + i * ROW_BYTES; }
  uint32_t ids(uint32_t i) const { return base + IDS + i * ID_BYTES; }  // of queries' segments
  uint32_t q_full(uint32_t i) const { return base + BARRIERS + 16 * i; }
  uint32_t dout_full(uint32_t i) const { return q_full(STAGES + i); }
  uint32_t ds_full(uint32_t i) const { return q_full(2 * STAGES + i); }
  uint32_t p_full(uint32_t i) const { return q_full(3 * STAGES + i); }
  uint32_t k_full() const { return q_full(4 * STAGES); }
  uint32_t v_full() const { return q_full(4 * STAGES + 1); }
  uint32_t bias_full() const { return q_full(4 * STAGES + 2); }
  uint32_t queue() const { return q_full(4 * STAGES + 2 + CallWeights::BIASED); }
  uint32_t order() const { return queue() + Queue::BARRIER_BYTES; }
  uint32_t added(int place) const { return order() + (ORDERED ? 48 : 0) + 8 * place; }  // by a block of keys, in the queue's places
  uint32_t sums_full(int warp) const { return added(2) + 8 * warp; }
  uint32_t sums(int helper) const { return sums_full(WARPS) + helper * Finisher::BYTES; }  // of the warps beside the one that copies
  static_assert(GROUPS * 4 * Finisher::BYTES <= LOGS);

  void init_barriers() const {
    for (uint32_t i = 0; i < 2 * STAGES; ++i) {
      barrier_init(q_full(i), 1);
      barrier_init(q_full(i) + 8, GROUPS * BLOCKS);
    }
    for (uint32_t i = 0; i < STAGES; ++i) {
      barrier_init(ds_full(i), BLOCKS == 2 ? 1 : 4), barrier_init(ds_full(i) + 8, GROUPS * BLOCKS + STORES_BIAS);
      barrier_init(p_full(i), 4), barrier_init(p_full(i) + 8, 4);
    }
    barrier_init(k_full(), 1), barrier_init(k_full() + 8, GROUPS);
    barrier_init(v_full(), 1), barrier_init(v_full() + 8, 1);
    if (CallWeights::BIASED) barrier_init(bias_full(), 1), barrier_init(bias_full() + 8, 4);
    for (int i = 0; FINISHES && i < 2; ++i) barrier_init(added(i), GROUPS * 4);
    for (int i = 0; FINISHES && i < WARPS; ++i) barrier_init(sums_full(i), 1);
  }
};
static inline uint32_t empty(uint32_t full) { return full + 8; }
static inline int rank_in_cluster() { return BLOCKS == 2 ? cluster_rank() : 0; }

// A dense bias as it is given; sums of its gradient. Tiles of those are of 128 keys.
struct DenseBias {
  const TensorMap& map;
  const View& view;
  float* sums;
  const int64_t& tiles;  // of keys

  // first_key: of the warpgroup.
  CallBiasSums sums_of(const Block& block, int first_key, const QueryTurn& turn) const {
    if constexpr (!SUMS_BIAS) return {nullptr, 0};
    const int64_t tile = dense_tile(view, block.sequence.batch, block.first_head + turn.block / block.blocks_a_head, tiles, first_key / 128,
                                    block.blocks_a_head, turn.step);
    return {sums + tile * CallBiasSums::COUNT, first_key / 64 % 2};
  }
};

// dS of turns from the first-th to before `end`, by one thread, from shared memory to the bias's gradient.
static inline void store_bias_gradients(const Places& at, const Block& block, const TensorMap& dbias, int first, int end) {
  const int rank = rank_in_cluster();
#pragma unroll 1
  for (QueryTurn turn(block, first); turn.number < end; turn.next(block)) {
    const uint32_t stage = turn.stage<STAGES>(), full = at.ds_full(stage);
    const int place[4] = {block.first_key + rank * 64, turn.step * BLOCK_M, block.first_head + turn.head, static_cast<int>(block.sequence.batch)};
    barrier_wait(full, turn.parity<STAGES>());
    store_tile(dbias, place, at.ds(stage) + rank * QUERY_BOX);
    store_commit();
    store_wait_read<0>();
    barrier_arrive(empty(full));
  }
}

// All copies of a block, by one thread.
struct Producer {
  const Places& at;
  const Block& block;
  const float *row_lse, *row_delta;
  const int32_t* row_segments;
  const DenseBias& bias;

  // before: the parity of the keys before.
  void copy_values(const TensorMap& v, uint32_t before) const {
    barrier_wait(empty(at.v_full()), before);
    barrier_arrive_expect(at.v_full(), V_BYTES);
    copy_boxes<V_BOXES, PACKED>(at.v(), KEY_BOX, v, at.v_full(), 0, block.kv_head, block.token() + rank_in_cluster() * 64, block.sequence.batch);
  }
  void copy_keys(const TensorMap& k, uint32_t before) const {
    const int rank = rank_in_cluster();
    const int64_t token = block.token() + rank * 64, other = block.token() + (rank ^ 1) * 64, batch = block.sequence.batch;
    barrier_wait(empty(at.k_full()), before);
    barrier_arrive_expect(at.k_full(), K_BYTES + OTHER_BYTES);
    copy_boxes<BOXES, PACKED>(at.k(), KEY_BOX, k, at.k_full(), 0, block.kv_head, token, batch);
    if (BLOCKS == 2) copy_boxes<2, PACKED>(at.other_k(0), KEY_BOX, k, at.k_full(), FIRST_SHARED_BOX * rank, block.kv_head, other, batch);
  }
  // This block's share of COUNT boxes of a turn's rows, to all blocks of the cluster; and of each row a number, and (IDS) the id of its segment.
  template <int COUNT, bool IDS>
  void copy_rows(const QueryTurn& turn, const TensorMap& map, uint32_t to, const float* numbers, uint32_t numbers_to, uint32_t full) const {
    constexpr int SHARE = COUNT / BLOCKS;
    const int first = rank_in_cluster() * SHARE, head = block.first_head + turn.block / block.blocks_a_head;
    const int64_t token = block.sequence.first_query + turn.step * BLOCK_M;
    barrier_wait(empty(full), turn.parity<STAGES>() ^ 1);
    barrier_arrive_expect(full, COUNT * QUERY_BOX + ROW_BYTES + (IDS ? ID_BYTES : 0));
    copy_boxes<SHARE, PACKED, BLOCKS>(to + first * QUERY_BOX, QUERY_BOX, map, full, first, head, token, block.sequence.batch);
    if (COUNT % BLOCKS != 0 && rank_in_cluster() == 0)
      copy_boxes<1, PACKED, BLOCKS>(to + (COUNT - 1) * QUERY_BOX, QUERY_BOX, map, full, COUNT - 1, head, token, block.sequence.batch);
    const int64_t row = block.first_row + int64_t{turn.block} * BLOCK_M;
    load_bytes(numbers_to, numbers + row, ROW_BYTES, full);
    if (IDS && SEGMENTED) load_bytes(at.ids(turn.stage<STAGES>()), row_segments + row, ID_BYTES, full);
  }
  // A turn's bias, which has one place: warpgroup 1 has taken the last turn's before it asks for this one.
  void copy_bias(const QueryTurn& turn) const {
    if (!CallWeights::BIASED) return;
    barrier_wait(empty(at.bias_full()), turn.parity<1>() ^ 1);
    barrier_arrive_expect(at.bias_full(), CallBias::BYTES);
    CallBias::copy(at.bias(), bias.map, bias.view, at.bias_full(), block.first_key + rank_in_cluster() * 64, turn.step * BLOCK_M,
                   block.first_head + turn.head, static_cast<int>(block.sequence.batch));
  }
  // All of the block: turns from the first-th of all to before `end`. keys: the parity of its keys.
  void copy(const TensorMap& q, const TensorMap& k, const TensorMap& v, const TensorMap& dout, int first, int end, uint32_t keys) const {
#pragma unroll 1
    for (QueryTurn turn(block, first); turn.number < end; turn.next(block)) {
      const uint32_t stage = turn.stage<STAGES>();
      copy_rows<BOXES, true>(turn, q, at.q(stage), row_lse, at.logs(stage), at.q_full(stage));
      if (turn.number == first) {
        copy_values(v, keys ^ 1);
        copy_keys(k, keys ^ 1);
      }
      copy_bias(turn);
      copy_rows<V_BOXES, false>(turn, dout, at.dout(stage), row_delta, at.deltas(stage), at.dout_full(stage));
    }
  }
};
