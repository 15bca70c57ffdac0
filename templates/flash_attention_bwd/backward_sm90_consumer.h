// A warpgroup of Hopper's backward attention that multiplies: 64 keys through turns of queries. A part of backward.sm90.cu, whose constants it uses.
#pragma once

typedef float Scores[BLOCK_M / 2];
typedef uint32_t Operands[BLOCK_M / 16][4];
typedef Slopes<BLOCK_M, CAPPED> ScoreSlopes;

// What comes from shared memory is asked for before what it is for is there, where there are registers for it: log-sum-exps of a turn's first
// 16 queries, deltas of its first slices, and what turns need of a block.
constexpr bool ROOM_AHEAD = ${by_blocks ? 'TEAMS == 1 && ' : ''}!CAPPED && !SEGMENTED && !DROPPED && !MASKED && !SUMS_BIAS;
constexpr bool AHEAD = ROOM_AHEAD && !BOUNDED && !(OWNS_QUERIES && D + DV > 128);
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
$if by_steps
  bool backwards;
$end
  float* dq_sums;  // from the block's first row on
  KeptPath(const Block& block, int part, float* dq_sums)
      : first_step(block.first_step), end_step(block.end_step), blocks_a_head(block.blocks_a_head),
        blocks_a_group(block.blocks_a_group), first_whole(block.first_whole[part]), end_whole(block.end_whole[part]),
$if by_steps
        backwards(block.backwards),
$end
        dq_sums(dq_sums + block.first_row * Sums::FEATURES) {}
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
  const CallBiasOrder& bias_order;

  void multiply_keys(Scores& s, uint32_t stage) const {
    start_product<Element, BLOCK_M, D>(s, at.k(keys) + part * 64 * 128, KEY_BOX, at.q(stage), QUERY_BOX);
  }
  void multiply_values(Scores& dp, uint32_t stage) const {
    start_product<Element, BLOCK_M, DV>(dp, at.v(keys) + part * 64 * 128, KEY_BOX, at.dout(stage), QUERY_BOX);
  }
$if by_blocks
  void multiply_gradients(float (&dq)[DQ_QUERIES / 2], uint32_t stage, int first_box = 0) const {
    const uint32_t box = at.k(keys) + (BY_FEATURES ? part * KEY_BOX : first_box * KEY_BOX), rows[2] = {box, box + 64 * 128};
    if constexpr (TEAMS == 2) return start_queries<Element, DQ_QUERIES>(dq, {box}, at.ds(stage), QUERY_BOX);
$else
  void multiply_gradients(float (&dq)[DQ_QUERIES / 2], uint32_t stage) const {
    const uint32_t box = at.k(keys) + (BY_FEATURES ? part * KEY_BOX : 0), rows[GROUPS] = {box, box + 64 * 128};
$end
    start_queries<Element, DQ_QUERIES>(dq, rows, at.ds(stage) + (BY_FEATURES ? 0 : part * DQ_QUERIES * 128), QUERY_BOX);
  }

  // Scores become weights, and those operands. whole(): every query sees every key.
  template <class Whole>
  void weigh(Scores& s, ScoreSlopes& slopes, Operands& p, const KeptScores<BLOCK_M>& kept, const FirstLogs& logs, const QueryTurn& turn, Whole whole) const {
    const uint32_t stage = turn.stage<STAGES>();
    const auto hide_more = [&](Scores& scores) {
      if constexpr (SEGMENTED) hide_other_segments(scores, at.ids(stage), at.key_ids() + later(part) * 64 * 4);
    };
    rules.weigh(s, slopes, block, part, turn.step, whole, at.logs(stage), hide_more, logs, at.bias(stage), at.mask(stage));
    if constexpr (DROPPED)
      kept.mark(s), pack_kept_weights<Element, BLOCK_M>(p, s);
    else
      pack_weights<Element, BLOCK_M>(p, s);
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
                                                   at.ds(${by_blocks ? 'turn.stage<DS_STAGES>()' : 'stage'}) + later(part) * QUERY_BOX, ds[n], bias_sums);
    }
  }
  void differentiate(const Scores& dp, const Scores& weights, const ScoreSlopes& slopes, Deltas& deltas, const QueryTurn& turn, bool whole,
                     Operands& ds) const {
    const uint32_t stage = turn.stage<STAGES>(), full = at.ds_full(${by_blocks ? 'turn.stage<DS_STAGES>()' : 'stage'});
    barrier_wait(empty(full), turn.parity<${by_blocks ? 'DS_STAGES' : 'STAGES'}>() ^ 1);
    if (!AHEAD) deltas.load(at.deltas(stage));
    bias_order.wait(stage, turn.parity<STAGES>());
    if (whole && !MASKED)
      differentiate_all<true>(dp, weights, slopes, deltas, turn, ds);
    else
      differentiate_all<false>(dp, weights, slopes, deltas, turn, ds);
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(full), bias_order.tell(stage);
  }

  // queries: BLOCK_M rows of the group's, those of turn `number`.
  void add_to_queries(const Path& path, int queries, uint32_t number, float (&dq)[DQ_QUERIES / 2]${by_blocks ? ', int first_box = 0' : ''}) const {
    float* const sums = path.sums() + int64_t{queries} * Sums::COUNT;
    const int head = OWNS_QUERIES ? queries / block.blocks_a_head : 0, step = queries - head * block.blocks_a_head;
    const int part = OWNS_QUERIES ? static_cast<int>(later(this->part)) : this->part;  // nothing made of it is kept
    const int box = BY_FEATURES ? part : ${by_blocks ? 'first_box' : '0'}, first_chunk = BY_FEATURES ? 0 : part * (Sums::CHUNKS / GROUPS);
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
    ${by_blocks and ordered ? 'if (ONE_BOX || first_box == 1) ' : ''}order.tell(number, part);
  }

  // One thread says so for its warpgroup. That other warps' loads of the turn's numbers (load_two) are done, too, follows from the wgmma it has
  // waited for: it began when all four warps had reached it, with operands made of those numbers. racecheck does not follow this.
  static void release(uint32_t full) {
    if (thread_x() % WARPGROUP == 0) barrier_arrive(empty(full));
  }

$if by_steps
  static bool parts_again(const QueryTurn& turn, int first, const Path&) { return turn.number != first && (turn.number - first) % (4 * MANY_TURNS) == 0; }
$elif parts_heads
  // With the next query head, too: over so many turns they may have fallen into step.
  static bool parts_again(const QueryTurn& turn, int first, const Path& path) {
    return turn.number != first && turn.step == path.bounds().first_step && path.bounds().steps() >= MANY_TURNS;
  }
$else
  static bool parts_again(const QueryTurn& turn, int first) { return ORDERED && turn.number % TURNS_APART == 0 && turn.number != first; }
$end

  // Of a turn's weights.
  void find_kept(KeptScores<BLOCK_M>& kept, const QueryTurn& turn) const {
    const uint32_t key = block.first_key + later(part) * 64 + later(thread_x()) / WARP % 4 * 16, head = block.first_head + turn.head;
    kept.find(dropout, key, turn.step * BLOCK_M, static_cast<uint32_t>(block.sequence.index) * heads + head);
  }

$if skips
  // No query of the block's first turn sees a key of this warpgroup, and there are more turns: as with the second one's keys and a causal mask.
$if by_blocks
  bool sees_first_nothing(QueryTurn& turn, int turns) const {
    barrier_wait(at.q_full(turn.stage<STAGES>()), turn.parity<STAGES>());
    turn.see(told(0, turn), block);
    const RowRange of_first = seeing_queries(rules.visibility, block.first_key + part * 64, block.sequence.offset, block.sequence.queries);
    return turns > 1 && of_first.first >= (turn.step + 1) * BLOCK_M;
  }
$else
  bool sees_first_nothing(int turns) const {
    const RowRange of_first = seeing_queries(rules.visibility, block.first_key + part * 64, block.sequence.offset, block.sequence.queries);
    return turns > 1 && of_first.first >= (block.first_step + 1) * BLOCK_M;
  }
$end
  // Its part of that turn's dS is 0; nothing else of the turn is read. Queries and gradients are waited for so that they are not released twice before.
  void pass_over(const QueryTurn& turn) const {
    const uint32_t stage = turn.stage<STAGES>(), ${by_blocks ? 'ds_stage = turn.stage<DS_STAGES>(), ' : ''}full = at.ds_full(${by_blocks ? 'ds_stage' : 'stage'});
    barrier_wait(empty(full), turn.parity<${by_blocks ? 'DS_STAGES' : 'STAGES'}>() ^ 1);
#pragma unroll
    for (uint32_t i = 0; i < QUERY_BOX / (WARPGROUP * 16); ++i)
      asm volatile("st.shared.v4.f32 [%0], {%1, %1, %1, %1};"
                   : : "r"(at.ds(${by_blocks ? 'ds_stage' : 'stage'}) + part * QUERY_BOX + (i * WARPGROUP + thread_x() % WARPGROUP) * 16), "f"(0.0f) : "memory");
    fence_async();
    sync_warp();
    if (lane() == 0) barrier_arrive(full);
    barrier_wait(at.q_full(stage), turn.parity<STAGES>());
    release(at.q_full(stage));
    barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
    release(at.dout_full(stage));
  }

$end
  // The first turn's scores; then values are there, too.
  void start(Scores& s, KeptScores<BLOCK_M>& kept, ${by_blocks ? '' : 'const '}QueryTurn& turn) const {
    barrier_wait(at.q_full(turn.stage<STAGES>()), turn.parity<STAGES>());
$if by_blocks
    turn.see(told(TEAMS == 1 ? 0 : static_cast<int>(later(thread_x())) / WARPGROUP - 1, turn), block);
$end
    multiply_keys(s, turn.stage<STAGES>());
    if (DROPPED) find_kept(kept, turn);
    wgmma_wait<0>();
    keep_in_place(s);
    barrier_wait(at.v_full(keys), key_parity(keys));
  }

  // Turns, of all that this warpgroup goes through: from the first-th to before `end`.
  void run(float (&dk)[D / 2], float (&dv)[DV / 2], int first, int end) const {
    Scores s;
    KeptScores<BLOCK_M> kept;  // of the scores that are next
    const Path path{block, part, dq_sums};
    QueryTurn turn(path.bounds(), first);
$if by_blocks
    bool whole;
$else
    bool whole = path.is_whole(turn.step);
$end
    int queries = 0;  // whose share of dq is next
    // With the next keys there, warpgroups stay as far apart as they are. Where scores are hidden, they cost more to set apart than that brings.
    const auto sets_apart = [&] { return first == 0 || (KEY_STAGES > 1 ? !block.hides(0) && !block.hides(1) : end - first >= MANY_TURNS); };
    barrier_wait(at.k_full(keys), key_parity(keys));
    if (part == 1 && sets_apart()) sync_some(APART, GROUPS * WARPGROUP);
$if skips
    if (part == 1 && sees_first_nothing(${by_blocks ? 'turn, ' : ''}end - first)) {
      pass_over(turn);
      queries = turn.block;
      turn.next(path.bounds());
$if not by_blocks
      whole = path.is_whole(turn.step);
$end
    }
$end
    start(s, kept, turn);
$if by_blocks
    whole = turn.wholes >> part & 1;
$end
    FirstLogs logs(at.logs(turn.stage<STAGES>()));
#pragma unroll 1
    for (;;) {
      Scores dp;  // here, so that nothing of a turn is kept for the next
      ScoreSlopes slopes;
      Operands p, ds;
      float dq[DQ_QUERIES / 2];
      if (!AHEAD) whole = path.is_whole(turn.step);
      const bool adds = !DEFERRED || turn.number > first, last = turn.number + 1 == end;
      const uint32_t stage = turn.stage<STAGES>(), dq_number = turn.number - DEFERRED, dq_stage = dq_number % ${by_blocks ? 'DS_STAGES' : 'STAGES'};
      if (!DEFERRED) queries = turn.block;
      if (part == 1 && parts_again(turn, first${parts_heads ? ', path' : ''})) sync_some(APART, GROUPS * WARPGROUP);
      barrier_wait(at.dout_full(stage), turn.parity<STAGES>());
      multiply_values(dp, stage);
      weigh(s, slopes, p, kept, logs, turn, [&] { return AHEAD ? whole : path.is_whole(turn.step); });
      if (${by_blocks ? 'GROUPS == 2 && ' : ''}part == 0 && (turn.number == first ? sets_apart() : parts_again(turn, first${parts_heads ? ', path' : ''}))) arrive_some(APART, GROUPS * WARPGROUP);
      start_sums<Element, BLOCK_M, DV>(dv, p, at.dout(stage));
      Deltas deltas;
      if (AHEAD) deltas.load(at.deltas(stage));
      wgmma_wait<ROOM>();
      keep_in_place(dp);
      if (!ROOM) keep_in_place(dv);
      differentiate(dp, s, slopes, deltas, turn, whole, ds);
      start_sums<Element, BLOCK_M, D>(dk, ds, at.q(stage));
      if (adds) barrier_wait(at.ds_full(dq_stage), dq_number / ${by_blocks ? 'DS_STAGES' : 'STAGES'} % 2);
      multiply_gradients(dq, dq_stage);  // of nothing, if it does not add
      const int these_queries = turn.block;
      turn.next(path.bounds());
$if not by_blocks
      if (AHEAD) whole = path.is_whole(turn.step);
$end
      wgmma_wait<1>();  // p and ds are free
      keep_in_place(dk);
      if (ROOM) keep_in_place(dv);
      release(at.q_full(stage));
      release(at.dout_full(stage));
      if (!last) {
        barrier_wait(at.q_full(turn.stage<STAGES>()), turn.parity<STAGES>());
$if by_blocks  // asked for while the next scores are made, before sums are added, which keep what comes after them waiting
        turn.see(told(TEAMS == 1 ? 0 : static_cast<int>(later(thread_x())) / WARPGROUP - 1, turn), path.bounds());
$end
        multiply_keys(s, turn.stage<STAGES>());
$if by_blocks
        logs = FirstLogs(at.logs(turn.stage<STAGES>()));
$end
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
$if by_blocks
      if (AHEAD) whole = turn.wholes >> part & 1;
$end
      keep_in_place(dq);
$if by_blocks
      if (adds) {
        if (ONE_BOX) release(at.ds_full(dq_stage));
        add_to_queries(path, queries, dq_number, dq);
        if (!ONE_BOX) multiply_gradients(dq, dq_stage, 1);  // while the next scores are made
      }
$else
      if (adds) {
        release(at.ds_full(dq_stage));
        add_to_queries(path, queries, dq_number, dq);
      }
$end
      if (DEFERRED) queries = these_queries;
$if not by_blocks
      if (!last) logs = FirstLogs(at.logs(turn.stage<STAGES>()));
$end
      if (DROPPED && !last) find_kept(kept, turn);
      wgmma_wait<0>();
      keep_in_place(s);
$if by_blocks
      if (!ONE_BOX) {
        keep_in_place(dq);
        release(at.ds_full(dq_stage));
        add_to_queries(path, queries, dq_number, dq, 1);
      }
$end
      if (last) break;
    }
    if (DEFERRED) {
      float dq[DQ_QUERIES / 2];
      const uint32_t number = end - 1;
      barrier_wait(at.ds_full(number % ${by_blocks ? 'DS_STAGES' : 'STAGES'}), number / ${by_blocks ? 'DS_STAGES' : 'STAGES'} % 2);
      multiply_gradients(dq, number % ${by_blocks ? 'DS_STAGES' : 'STAGES'});
      wgmma_wait<0>();
      keep_in_place(dq);
      release(at.ds_full(number % ${by_blocks ? 'DS_STAGES' : 'STAGES'}));
      release(at.k_full(keys));
      add_to_queries(path, queries, number, dq);
    } else {
      release(at.k_full(keys));
    }
  }
};
