// Where keys, values and turns of Hopper's backward attention lie in shared memory, with their barriers, and the dense operands of a call. A part of
// backward.sm90.cu, whose constants it uses.
#pragma once

// Barriers come in pairs: full, then empty.
struct Places {  // in shared memory
  uint32_t base;
  static constexpr uint32_t V = KEY_STAGES * K_BYTES, Q = V + KEY_STAGES * V_BYTES, DOUT = Q + STAGES * Q_BYTES, DS = DOUT + STAGES * DOUT_BYTES,
                            BIAS = DS + ${by_blocks ? 'DS_STAGES' : 'STAGES'} * DS_BYTES, MASK = BIAS + STAGES * CallBias::BYTES,
                            LOGS = MASK + STAGES * CallMask::BYTES, DELTAS = LOGS + STAGES * ROW_BYTES, IDS = DELTAS + STAGES * ROW_BYTES,
                            KEY_IDS = IDS + STAGES * ID_BYTES, BARRIERS = KEY_IDS + KEY_ID_BYTES;
  uint32_t k(uint32_t keys) const { return base + keys % KEY_STAGES * K_BYTES; }  // of the keys of that number
  uint32_t v(uint32_t keys) const { return base + V + keys % KEY_STAGES * V_BYTES; }
  uint32_t q(uint32_t i) const { return base + Q + i * Q_BYTES; }
  uint32_t dout(uint32_t i) const { return base + DOUT + i * DOUT_BYTES; }
  uint32_t ds(uint32_t i) const { return base + DS + i ${by_blocks ? '% DS_STAGES ' : ''}* DS_BYTES; }
  uint32_t bias(uint32_t i) const { return base + BIAS + i * CallBias::BYTES; }
  uint32_t mask(uint32_t i) const { return base + MASK + i * CallMask::BYTES; }
  uint32_t logs(uint32_t i) const { return base + LOGS + i * ROW_BYTES; }
  uint32_t deltas(uint32_t i) const { return base + DELTAS + i * ROW_BYTES; }
  uint32_t ids(uint32_t i) const { return base + IDS + i * ID_BYTES; }  // of queries' segments
  uint32_t key_ids() const { return base + KEY_IDS; }
  uint32_t q_full(uint32_t i) const { return base + BARRIERS + 16 * i; }
  uint32_t dout_full(uint32_t i) const { return q_full(STAGES + i); }
  uint32_t ds_full(uint32_t i) const { return q_full(2 * STAGES + i${by_blocks ? ' % DS_STAGES' : ''}); }
  uint32_t k_full(uint32_t keys) const { return q_full(3 * STAGES + keys % KEY_STAGES); }
  uint32_t v_full(uint32_t keys) const { return q_full(3 * STAGES + KEY_STAGES + keys % KEY_STAGES); }
  uint32_t queue() const { return q_full(3 * STAGES + KEY_STAGES + KEY_STAGES); }
  uint32_t order() const { return queue() + Queue::BARRIER_BYTES; }
  uint32_t bias_order() const { return order() + Order::BARRIER_BYTES; }
  uint32_t added(int place) const { return bias_order() + CallBiasOrder::BARRIER_BYTES + 8 * place; }  // by a block of keys, in the queue's places
  uint32_t sums_full(int warp) const { return added(2) + 8 * warp; }
  uint32_t sums(int helper) const { return sums_full(WARPS) + helper * Finisher::BYTES; }  // of the three warps beside the one that copies

  void init_barriers() const {
    for (uint32_t i = 0; i < 2 * STAGES; ++i) {
      barrier_init(q_full(i), 1);
      barrier_init(q_full(i) + 8, GROUPS);
    }
    for (uint32_t i = 0; i < ${by_blocks ? 'DS_STAGES' : 'STAGES'}; ++i) {
      barrier_init(ds_full(i), GROUPS * 4);
      barrier_init(ds_full(i) + 8, GROUPS + STORES_BIAS);
    }
    for (uint32_t i = 0; i < KEY_STAGES; ++i) {
      barrier_init(k_full(i), 1);
      barrier_init(k_full(i) + 8, GROUPS);
    }
    for (uint32_t i = 0; i < KEY_STAGES; ++i) barrier_init(v_full(i), 1);
    for (int i = 0; FINISHES && i < 2; ++i) barrier_init(added(i), GROUPS * 4);
$if by_blocks
  }
  void init_sums_barriers() const {
$end
    for (int i = 0; FINISHES && i < WARPS; ++i) barrier_init(sums_full(i), 1);
  }
$if by_blocks
  // Of a team; what belongs to warps comes after the last one's.
  static constexpr uint32_t TEAM_BYTES = (BARRIERS + 16 * (3 * STAGES + 2 * KEY_STAGES) + Queue::BARRIER_BYTES + ${ordered ? 'Order::BARRIER_BYTES + ' : ''}16 + 1023) / 1024 * 1024;
$end
};
static inline uint32_t empty(uint32_t full) { return full + 8; }
$if by_blocks
__shared__ int told_turns[TEAMS][2 * STAGES][2];  // of the queries in shared memory; twice as many as there are, so that none is overwritten that someone has yet to see
static inline uint32_t told(int team, const QueryTurn& turn) { return shared_pointer(told_turns[team]) + (turn.round * STAGES + turn.at) * 8; }
$end
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
