// The threads of Hopper's backward attention that copy what blocks of keys need, and that store the gradient of a bias. A part of backward.sm90.cu,
// whose constants it uses.
#pragma once

// All copies of a block, by one thread.
${by_blocks ? 'template <int TEAM> ' : ''}struct Producer {
  const Places& at;
  const Block& block;
  const float *row_lse, *row_delta;
  const int32_t *row_segments, *key_segments;
  const Dense& dense;
$if by_blocks and ordered
  Order order;
$end

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
$if by_blocks
    ToldTurn::tell<TEAMS == 1 ? GROUPS : 0>(told(TEAM, turn), list_places[TEAM].step, list_places[TEAM].block, block);
$end
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
$if by_blocks and ordered
  // Opens each turn, too, when the next one has been copied.
  void copy(const TensorMap& q, const TensorMap& k, const TensorMap& v, const TensorMap& dout, int first) const {
    volatile ListPlace& place = list_places[TEAM];
    ListedTurn<TEAM> turn(block, first);
    place.held_block = -1;  // none is held
#pragma unroll 1
    for (;;) {
      const bool some = turn.number < place.stop;
      if (some) copy_queries(turn, q);
      if (place.held_block < 0) copy_keys(k, v, place.keys);
      if (some) copy_gradients(turn, dout);
      if (place.held_block >= 0) open(turn.number - 1);
      if (!some) return;
      place.hold(block);
      place.load_ahead();
      turn.next(block);
    }
  }
$elif by_blocks
  void copy(const TensorMap& q, const TensorMap& k, const TensorMap& v, const TensorMap& dout, int first) const {
    ListedTurn<TEAM> turn(block, first);
    copy_queries(turn, q);
    copy_keys(k, v, list_places[TEAM].keys);
#pragma unroll 1
    for (;;) {
      copy_gradients(turn, dout);
      list_places[TEAM].load_ahead();
      turn.next(block);
      if (turn.number == list_places[TEAM].stop) return;
      copy_queries(turn, q);
    }
  }
$else
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
$end
$if by_blocks and ordered
  // The turn that is held may add, when those before it have. The turn after it, whose queries a warpgroup waits for before it adds, has been copied.
  void open(int number) const { order.open_turn(block, HeldTurn{number, list_places[TEAM].held_block, list_places[TEAM].held_rank}); }
$end
$if by_blocks  // of the turn at which the list stands
  int head(const QueryTurn&) const { return block.first_head + list_places[TEAM].head; }
  int64_t token(const QueryTurn&) const { return block.sequence.first_query + list_places[TEAM].step * BLOCK_M; }
  int64_t row(const QueryTurn&) const { return block.first_row + int64_t{list_places[TEAM].block} * BLOCK_M; }
$else
  int head(const QueryTurn& turn) const { return block.first_head + turn.head; }
  int64_t token(const QueryTurn& turn) const { return block.sequence.first_query + turn.step * BLOCK_M; }
  int64_t row(const QueryTurn& turn) const { return block.first_row + int64_t{turn.block} * BLOCK_M; }
$end
};

$if by_blocks
// What a team's blocks of keys need beside those who multiply and copy, by LANES lanes, a warp or one: the next block's keys in L2, sums ahead, and who
// waits for rows of dq told when a block has added everything.
template <int LANES${ordered ? ', int TEAM' : ''}> struct Companion {
  const Places& at;
  List::Entry* entries;
  const RowCounts<BLOCK_M>& row_counts;
  const TensorMap &k, &v;
  const int64_t& heads_a_kv_head;
$if ordered
  const Order& order;

  // clear(entry): sums ahead. Each turn's additions are told to those who wait for them when all will see them.
  template <class Clear> void run(Clear clear) const {
    const Queue queue{nullptr, 0, nullptr, 1, entries, at.queue()};
    volatile ListPlace& place = AddedTurn<TEAM>::place();
    if (lane() == 0) place.stop = 0, place.parities = 0;
#pragma unroll 1
    for (uint32_t round = 0;; ++round) {
      barrier_wait(queue.full(round), queue.parity(round));
      const List::Entry& entry = queue.entry(round);
      if (entry.numbered == List::Entry::END) return;
      if (lane() == 0 && entry.numbered >= 0) {
        clear(entry);
        if (entry.block.lists.turns > 0) pass(entry.block);
      }
      sync_warp();
      uint32_t parities = place.parities;
      end(queue, round, parities);
      if (lane() == 0) place.parities = parities;
    }
  }
  void pass(const Block& block) const {
    volatile ListPlace& place = AddedTurn<TEAM>::place();
    int number = place.stop;
    place.start(block);
#pragma unroll 1
    for (;; place.take(block)) {
      place.load_ahead();
      order.pass_turns<AddedTurn<TEAM>>(block, number, number + 1);
      if (++number == place.stop) return;
    }
  }
$else

  // clear(entry): sums ahead.
  template <class Clear> void run(Clear clear) const {
    const Queue queue{nullptr, 0, nullptr, 1, entries, at.queue()};
    const bool first_lane = LANES == 1 || lane() == 0;
    uint32_t parities = 0;
#pragma unroll 1
    for (uint32_t round = 0;; ++round) {
      barrier_wait(queue.full(round), queue.parity(round));
      const List::Entry& entry = queue.entry(round);
      if (first_lane && entry.numbered >= 0 && entry.block.lists.turns > 0) {
        fetch_boxes<BOXES>(k, entry.block.kv_head, static_cast<int>(entry.block.token()), static_cast<int>(entry.block.sequence.batch));
        fetch_boxes<V_BOXES>(v, entry.block.kv_head, static_cast<int>(entry.block.token()), static_cast<int>(entry.block.sequence.batch));
      }
      if (round > 0) end(queue, round - 1, parities);
      if (entry.numbered == List::Entry::END) return;
      if (first_lane && entry.numbered >= 0) clear(entry);
      if (LANES > 1) sync_warp();
    }
  }
$end
  void end(const Queue& queue, uint32_t round, uint32_t& parities) const {
    const List::Entry& entry = queue.entry(round);
    if (entry.numbered >= 0) {
      const uint32_t place = round % Queue::AHEAD;
      barrier_wait(at.added(static_cast<int>(place)), parities >> place & 1);
      row_counts.tell<LANES>(entry.block, low_word(heads_a_kv_head));
      parities ^= 1 << place;
    }
    if (LANES > 1) sync_warp();
    if (LANES == 1 || lane() == 0) barrier_arrive(queue.empty(round));
  }
};

$end
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
