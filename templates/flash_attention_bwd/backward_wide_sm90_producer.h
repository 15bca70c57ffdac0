// The threads of Hopper's backward attention of wide heads that copy what blocks of keys need, and that store the gradient of a bias. A part of
// backward_wide.sm90.cu, whose constants it uses.
#pragma once

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
$if latent
  int first_head_of_all;  // of the turn, in dout, where all heads are
$end

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
    const int first = rank_in_cluster() * SHARE, head = block.first_head + turn.block / block.blocks_a_head${latent ? ' + (IDS ? 0 : first_head_of_all)' : ''};
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
