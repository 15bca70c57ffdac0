// Where keys, values and turns of Hopper's backward attention of wide heads lie in shared memory, with their barriers. A part of
// backward_wide.sm90.cu, whose constants it uses.
#pragma once
#include "flash_attention_bwd/sm90_attention_keys.h"

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
  uint32_t bias_order() const { return order() + (ORDERED ? 48 : 0); }
  uint32_t added(int place) const { return bias_order() + CallBiasOrder::BARRIER_BYTES + 8 * place; }  // by a block of keys, in the queue's places
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
