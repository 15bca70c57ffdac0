// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: the entry that walks through each sequence for the states
// before chunks, and from its end for their gradients, and keeps both. Part of backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_state_walk.h"

// A block has one way through a head of a sequence: warp 0 copies, warpgroups 1 and 2 keep 64 values of the state each in registers, by keys.
// A stage: keys, values or out's gradients, (BACK) queries, the inverse, (BACK) the pairs' weights, each in boxes; then rows on their way to
// memory, the stages' numbers, barriers.
constexpr uint32_t STATE_STAGES = 2, ROW_BOXES = BOXES * BOX;
template <bool BACK> constexpr uint32_t MATRICES_READ = BACK ? MATRICES_KEPT : INVERSE_PARTS;
template <bool BACK> constexpr uint32_t STATE_STAGE = (BACK ? 3 : 2) * ROW_BOXES + MATRICES_READ<BACK> * BOX;
template <bool BACK> constexpr uint32_t STAGE_BYTES = STATE_STAGE<BACK> - MATRICES_READ<BACK> * (BOX - TRIANGLE) + FACTORS_BYTES;  // that are copied

template <bool BACK> struct StatePlaces {
  // Three, so that a next box need not wait until the one before it has been read; forward there is room for more.
  static constexpr uint32_t BUFFERS = 3 + STATE_STAGES * (STATE_STAGE<true> - STATE_STAGE<BACK>) / (2 * BOX);
  static constexpr uint32_t OUT = STATE_STAGES * STATE_STAGE<BACK>, NUMBERS = OUT + 2 * BUFFERS * BOX, BARRIERS = NUMBERS + STATE_STAGES * FACTORS_BYTES;
  static constexpr uint32_t BYTES = BARRIERS + 16 * STATE_STAGES;
  using Buffers = StoreBuffers<Element, static_cast<int>(BUFFERS)>;
  uint32_t first;

  uint32_t keys(uint32_t stage) const { return first + stage * STATE_STAGE<BACK>; }
  uint32_t values(uint32_t stage, int part) const { return keys(stage) + ROW_BOXES + part * BOX; }
  uint32_t matrix(uint32_t stage, int number) const { return keys(stage) + 2 * ROW_BOXES + number * BOX; }
  uint32_t queries(uint32_t stage) const { return matrix(stage, MATRICES_KEPT); }
  uint32_t out(int part) const { return first + OUT + part * BUFFERS * BOX; }
  uint32_t factors(uint32_t stage) const { return first + NUMBERS + stage * FACTORS_BYTES; }
  uint32_t full(uint32_t stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }

  void init() const {
    for (uint32_t i = 0; i < STATE_STAGES; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), 2 * WARPGROUP);
    }
    fence_barrier_init();
  }
};
static_assert(1024 + StatePlaces<true>::BYTES <= ${state_shared} && StatePlaces<true>::BARRIERS % 8 == 0, "the spec has another size");
static_assert(StatePlaces<false>::BYTES <= StatePlaces<true>::BYTES && StatePlaces<false>::BARRIERS % 8 == 0, "the spec has another size");

// By one thread.
template <bool BACK>
static inline void copy_chunks(const StatePlaces<BACK>& at, const Walk& walk, const ${packed ? 'PackedRows' : 'TensorMap'}& queries, const ${packed ? 'PackedRows' : 'TensorMap'}& keys, const ${packed ? 'PackedRows' : 'TensorMap'}& values, const TensorMap& matrices,
                               const KeptNumbers* numbers) {
  Turn<STATE_STAGES> turn;
#pragma unroll 1
  for (int step = 0; step < walk.chunks; ++step, turn.next()) {
    const uint32_t full = at.full(turn.at);
    const int chunk = walk.chunk(step), number = walk.number(chunk);
    barrier_wait(at.empty(turn.at), turn.parity ^ 1);
    barrier_arrive_expect(full, STAGE_BYTES<BACK>);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      const int from[4] = {64 * box, walk.head, chunk * CHUNK, walk.sequence};
      load_tile(at.keys(turn.at) + box * BOX, keys, full, from);
      load_tile(at.values(turn.at, box), values, full, from);
      if (BACK) load_tile(at.queries(turn.at) + box * BOX, queries, full, from);
    }
    load_bytes(at.factors(turn.at), &numbers[static_cast<int64_t>(number) * walk.heads + walk.head].factors, FACTORS_BYTES, full);
    for (int i = 0; i < static_cast<int>(MATRICES_READ<BACK>); ++i) load_triangle(at.matrix(turn.at, i), matrices, full, i, walk.head, number);
  }
}

// x += x times betas times the inverse without its diagonal, or (BACK) that one's transpose, each over `power`. Of products with pieces those below the
// last digits are left out. meanwhile(): what else there is to do while they are made.
template <bool BACK, class Meanwhile> static inline void multiply_by_inverse(Columns& x, uint32_t inverse, const float* betas, float power, Meanwhile meanwhile) {
  ValueScales scales;
  float largest[2] = {}, by[2];
  scales.add_largest(largest, x);
  scales.choose(by, largest);
  scales.multiply(x, by);
  uint32_t factor[4][4], rest[4][4];
  {
    Columns written;
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) written[i] = x[i];
    scale_by_token(written, betas, 1);
    to_factor<Piece>(factor, written);
    if (INVERSE_PARTS > 1) to_rounding<Piece>(rest, factor, written);
  }
  if (power != 1) {
    const float over[2] = {inverse_of_power(power), inverse_of_power(power)};
    scales.multiply(x, over);
  }
  const auto multiply = [&](const uint32_t (&a)[4][4], int piece) {
    if constexpr (BACK) multiply_by_triangle<Piece>(x, a, inverse + piece * BOX);
    else multiply_by_triangle_rows<Piece>(x, a, inverse + piece * BOX);
  };
  keep_in_place(x);
  wgmma_fence();
  if constexpr (INVERSE_PARTS > 1) multiply(factor, 1), multiply(rest, 0);
  multiply(factor, 0);
  wgmma_commit();
  meanwhile();
  wgmma_wait<0>();
  keep_in_place(x);
  const float back[2] = {scales.back(0) * power, scales.back(1) * power};
  scales.multiply(x, back);
}

template <bool BACK> struct StateCarrier {
  using Buffers = typename StatePlaces<BACK>::Buffers;
  const StatePlaces<BACK> at;
  const char* memory;
$if packed
  const TensorMap &kept, &written;
  const PackedRows dv;
$else
  const TensorMap &kept, &written, &dv;
$end
  const Walk& walk;
  const int part;

  const StateFactors& factors(uint32_t stage) const { return *reinterpret_cast<const StateFactors*>(memory + (at.factors(stage) - at.first)); }

  // x = what keys read of the state, which is kept meanwhile if it is that before (BACK: after) a pair of chunks; (BACK) of_weights = what out's gradients, weighed, give to what tokens write.
  void read(Columns& x, Columns& of_weights, const Column& state, Buffers& buffers, uint32_t stage, int number) const {
    if constexpr (BACK) {  // needs no state, which is made factors of meanwhile
      keep_in_place(of_weights);
      wgmma_fence();
#pragma unroll
      for (int i = PARTS - 1; i >= 0; --i) multiply_values_by_triangle(of_weights, at.values(stage, part), at.matrix(stage, INVERSE_PARTS + i), i < PARTS - 1);
      wgmma_commit();
    }
    uint32_t seen[SLICES][4], rest[SLICES][4];
    to_factor(seen, state);
    to_rounding(rest, seen, state);
    keep_in_place(x);
    wgmma_fence();
    if constexpr (PARTS > 1) multiply_by_rows(x, rest, at.keys(stage), false);
    multiply_by_rows(x, seen, at.keys(stage), PARTS > 1);
    wgmma_commit();
    if (number % 2 == BACK) keep_state<PARTS>(seen, rest, buffers, kept, {0, 64 * part, BACK ? PARTS : 0, walk.head, number / 2});
    wgmma_wait<0>();
    keep_in_place(x);
    if constexpr (BACK) keep_in_place(of_weights);
  }

  static void weigh(uint32_t (&factor)[4][4], uint32_t (&rest)[4][4], Columns& x, const float* weights) {
    scale_by_token(x, weights, 1);
    to_factor(factor, x);
    to_rounding(rest, factor, x);
  }
  // x = values v less x times a factor of each token, or (BACK) v and that.
  static void add_weighed(Columns& x, const float* weights, const Columns& v) {
#pragma unroll
    for (int j = 0; j < CHUNK / 8; ++j) {
      const Pack<float, 2> by = load_pack<2>(weights + 8 * j + lane() % 4 * 2);
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) x[i] = BACK ? v[i] + x[i] * by.at[i % 2] : v[i] - x[i] * by.at[i % 2];
    }
  }
  // taken (+)= (factor + rest) rows
  static void take_in(Columns& taken, const uint32_t (&factor)[4][4], const uint32_t (&rest)[4][4], uint32_t rows, bool add) {
    if constexpr (PARTS > 1) multiply_by_columns(taken, rest, rows, add);
    multiply_by_columns(taken, factor, rows, add || PARTS > 1);
  }
  static void add_to_state(Column& state, int box, const Columns& taken, const StateFactors& factors) {
    const float base = factors.base, rest = factors.rest;
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) {
      float& x = state[CHUNK / 2 * box + i];
      x = x * base + (x * rest + taken[i]);
    }
  }

  // From the state at one end of a chunk to that at the other.
  void compute(Column& state, Buffers& buffers, uint32_t stage, int chunk) const {
    const int number = walk.number(chunk);
    const StateFactors& own = factors(stage);
    Columns x, of_weights;
    uint32_t values[4][4];
    if constexpr (!BACK) load_transposed(values, at.values(stage, part));
    read(x, of_weights, state, buffers, stage, number);
    if constexpr (!BACK) from_factor(of_weights, values);
    add_weighed(x, BACK ? own.after : own.before, of_weights);
    uint32_t of_queries[4][4], rest_of_queries[4][4];  // (BACK) out's gradients as queries weigh them
    multiply_by_inverse<BACK>(x, at.matrix(stage, 0), own.betas, own.power, [&] {
      if constexpr (!BACK) return;
      load_transposed(of_queries, at.values(stage, part));
      from_factor(of_weights, of_queries);
      weigh(of_queries, rest_of_queries, of_weights, own.queries);
    });
    if (!BACK) scale_by_token(x, own.betas, 1);
    // Goes to memory while the state takes it in.
    Columns own_rows;
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) own_rows[i] = x[i];
    const auto keep_part = [&](int number_of_part) {
      uint32_t piece[4][4];
      take_piece(piece, own_rows);
      send_box<true>(buffers, piece, written, {64 * part, 0, (BACK ? WRITTEN_PARTS : 0) + number_of_part, walk.head, number});
    };
    Columns taken;
    const auto take_queries = [&](int box) {
      keep_in_place(taken);
      wgmma_fence();
      take_in(taken, of_queries, rest_of_queries, at.queries(stage) + box * BOX, false);
    };
    if constexpr (BACK) {  // while the others become factors
      take_queries(0);
      wgmma_commit();
    }
    uint32_t factor[4][4], rest[4][4];
    weigh(factor, rest, x, BACK ? own.reads : own.after);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      if constexpr (BACK) {
        if (box > 0) take_queries(box);
        else wgmma_fence();
      } else {
        keep_in_place(taken);
        wgmma_fence();
      }
      take_in(taken, factor, rest, at.keys(stage) + box * BOX, BACK);
      wgmma_commit();
      if constexpr (BACK) {
        if (box == 0) {
          uint32_t of_values[4][4];
          {
            Columns of_beta;
#pragma unroll
            for (int i = 0; i < CHUNK / 2; ++i) of_beta[i] = own_rows[i];
            scale_by_token(of_beta, own.betas, 1);
            to_factor(of_values, of_beta);
          }
$if packed
          const PackedBox to = dv.box(64 * part, walk.head, chunk * CHUNK);
          send_box<true>(buffers, of_values, to.map, to.at);
$else
          send_box<true>(buffers, of_values, dv, {64 * part, walk.head, chunk * CHUNK, walk.sequence});
$end
        }
      }
      if (box < PARTS) keep_part(box);
      wgmma_wait<0>();
      keep_in_place(taken);
      add_to_state(state, box, taken, own);
    }
  }

  void run(const View& first_state, const View& last_state) const {
    Column state = {};
    const int column = 64 * part + 16 * (warp() % 4);
    const StateMemory first(first_state, walk.sequence, walk.head, column);
    if (first.data) first.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    Buffers buffers{at.out(part), 1 + part};
    Turn<STATE_STAGES> turn;
#pragma unroll 1
    for (int step = 0; step < walk.chunks; ++step, turn.next()) {
      barrier_wait_all(at.full(turn.at), turn.parity);
      compute(state, buffers, turn.at, walk.chunk(step));
      barrier_arrive(at.empty(turn.at));  // all lanes do: compute-sanitizer follows that
    }
    buffers.finish();
    if (!BACK) return;
    const StateMemory last(last_state, walk.sequence, walk.head, column);
    if (last.data) last.each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
  }
};

// Tokens of a sequence whose chunks are pairs: the last one may have none.
static inline int64_t in_pairs(int64_t tokens) { return (tokens + 2 * CHUNK - 1) / (2 * CHUNK) * (2 * CHUNK); }

template <bool BACK> struct Way {
  static constexpr bool value = BACK;
};
// Block number: first gradients of states, then states, of a head of a sequence each.
KERNEL(3 * WARPGROUP, 1) states(${parameters('states')}) {
  const Walk walk${packed ? ' = Walk::of(heads, sequences, cum_seqlens, q_view.shape[1], static_cast<int>(block_x()))' : '(heads, sequences, in_pairs(q_view.shape[1]))'};
  const uint32_t first = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  char* memory = dynamic_shared() + (first - shared_pointer(dynamic_shared()));
  const int group = uniform(warpgroup());
$if packed
  const PackedRows q = walk.rows(q_map, row_copies_map, Q_ROWS, copied_boxes), k = walk.rows(k_map, row_copies_map, K_ROWS, copied_boxes);
  const PackedRows dv = walk.rows(dv_map, value_copies_map, DV_ROWS, copied_boxes);
$end
  const auto go = [&](auto way, const ${packed ? 'PackedRows' : 'TensorMap'}& values, const View& first_state, const View& last_state) {
    constexpr bool BACK = decltype(way)::value;
    const StatePlaces<BACK> at{first};
    if (thread_x() == 0) at.init();
#pragma unroll 1
    for (uint32_t i = 0; i < STATE_STAGES * MATRICES_READ<BACK>; ++i)
      clear_quarter<3 * WARPGROUP>(memory + (at.matrix(i % STATE_STAGES, static_cast<int>(i / STATE_STAGES)) - first));
    fence_async();
    wait_for_previous_launch();
    let_next_launch_go();
    sync_block();
    if (group == 0) {
      give_registers<40>();
      if (thread_x() == 0) copy_chunks(at, walk, ${packed ? 'q, k' : 'q_map, k_map'}, values, matrices_map, reinterpret_cast<const KeptNumbers*>(chunk_numbers));
    } else {
      take_registers<232>();
      StateCarrier<BACK>{at, memory, kept_states_map, written_rows_map, ${packed ? 'dv' : 'dv_map'}, walk, group - 1}.run(first_state, last_state);
    }
  };
  if (walk.back) go(Way<true>(), ${packed ? 'walk.rows(dout_map, value_copies_map, DOUT_ROWS, copied_boxes)' : 'dout_map'}, dfinal_state_view, dinitial_state_view);
  else go(Way<false>(), ${packed ? 'walk.rows(v_map, value_copies_map, V_ROWS, copied_boxes)' : 'v_map'}, initial_state_view, initial_state_view);
}
