// Hopper vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: the entry that walks through each sequence for
// the states before chunks, and from its end for their gradients, and keeps both. Part of backward.chunk_keys_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_state_walk.h"
#include "recurrent/chunk_sm90_key_delta_state_parts.h"

template <bool BACK> struct StateCarrier {
  const StatePlaces at;
  const char* memory;
  const TensorMap &kept, &written;
  const Walk& walk;
  const int place, part;  // which of the block's warpgroups that carry; which 64 values

  // A chunk's numbers: decays first.
  const float* numbers(int step) const { return reinterpret_cast<const float*>(memory + at.numbers(step)); }
  const float* betas(int step) const { return numbers(step) + KEYS; }
  const float* row_factors(int step) const { return numbers(step) + ROW_FACTORS; }
  void wait(Copied copied, int step) const { barrier_wait_all(at.full(copied, step), at.parity(copied, step)); }
  void release(Copied copied, int step) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(copied, step));
  }

  // x = what rows read of the state, which is kept meanwhile; of products with pieces those below the last digits are left out. (BACK) And what out's
  // gradients give to what tokens write.
  void read(Columns& x, Column& state, ValueScales& scales, OutBuffers& buffers, int step, int number) const {
    if constexpr (BACK) {
      wait(VALUES, step);
      wait(MATRICES_OF, step);
      keep_in_place(x);
      wgmma_fence();
#pragma unroll
      for (int piece = PAIR_PIECES - 1; piece >= 0; --piece) multiply_values_by_columns(x, at.values(place, step), at.pairs(piece), piece + 1 < PAIR_PIECES);
      wgmma_commit();
    }
    uint32_t seen[SLICES][4], rest[SLICES][4];
    to_factor<Piece>(seen, state);
    if (has_large_rows(sizes_of_rows(seen))) {
      scales.move(state);
      to_factor<Piece>(seen, state);
    }
    to_rounding<Piece>(rest, seen, state);
    wait(READERS, step);
    if constexpr (BACK) {
      wgmma_wait<0>();
      keep_in_place(x);
      scale_by_value(x, scales);
      if (!NORMED) each_token_pair(x, [&](int token, float& a, float& b, float& c, float& d) {
        const float* of = row_factors(step) + token;
        const float low = inverse_of_power(of[0]), high = inverse_of_power(of[1]);
        a *= low, b *= high, c *= low, d *= high;
      });
    }
    keep_in_place(x);
    wgmma_fence();
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece)
#pragma unroll
      for (int of_state = piece + 1 < ROW_PIECES ? 1 : 0; of_state >= 0; --of_state)
#pragma unroll
        for (int k = 0; k < SLICES; ++k)
          wgmma<Piece, CHUNK>(x, (of_state ? rest : seen)[k], moved(depth_major<128>(at.readers() + piece * BOX), k / 4 * PIECES_OF_ROWS + k % 4 * 32),
                               BACK || !(piece == ROW_PIECES - 1 && k == 0));
    wgmma_commit();
    keep_scaled_state(state, scales, buffers, number);
    wgmma_wait<0>();
    keep_in_place(x);
    release(READERS, step);
  }
  // The state as elements, to memory.
  void keep_scaled_state(const Column& state, const ValueScales& scales, OutBuffers& buffers, int number) const {
    const float back[2] = {scales.back(0), scales.back(1)};
#pragma unroll
    for (int box = 0; box < BOXES; ++box)
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        uint32_t rows[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* two = state + 32 * box + 8 * k + 2 * i;
            const float low = two[0] * back[i % 2], high = two[1] * back[i % 2];
            rows[k][i] = pack_pair<Element>(low, high);
            if (piece > 0) rows[k][i] = rounding_of(low, high, rows[k][i]);
          }
        send_box<false>(buffers, rows, kept, {64 * box, 64 * part, (BACK ? PIECES : 0) + piece, walk.head, number});
      }
  }

  // taken (+)= (factor + rest) rows, of 64 keys, likewise.
  void take_in(Columns& taken, const uint32_t (&factor)[4][4], const uint32_t (&rest)[4][4], int box) const {
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece) {
      const uint32_t rows = at.taken() + box * PIECES_OF_ROWS + piece * BOX;
      if (piece + 1 < ROW_PIECES) multiply_by_columns<Piece>(taken, rest, rows, true);
      multiply_by_columns<Piece>(taken, factor, rows, BACK || piece + 1 < ROW_PIECES);
    }
  }
  // taken = out's gradients times queries.
  void take_queries(Columns& taken, int box, int step) const {
#pragma unroll
    for (int piece = QUERY_PIECES - 1; piece >= 0; --piece)
      multiply_values_by_columns(taken, at.values(place, step), at.queries() + box * PIECES_OF_QUERIES + piece * BOX, piece + 1 < QUERY_PIECES);
  }

  // From the state at one end of a chunk to that at the other.
  void compute(Column& state, ValueScales& scales, OutBuffers& buffers, int step, int number) const {
    Columns x, taken[BOXES];
    read(x, state, scales, buffers, step, number);
    if (!BACK) wait(VALUES, step);
    if (!NORMED) scale_by_token(x, row_factors(step), 1);
    if (!BACK) subtract_from_values(x, scales, step);
    write(x, taken[0], state, scales, step);
    keep_rows(x, scales, buffers, number);
    if (BACK) scale_by_token(x, betas(step), -1);
    if (!NORMED) scale_by_token(x, row_factors(step), 1);
    uint32_t factor[4][4], rest[4][4];
    to_scaled_factor(factor, x, [&](const float(&by)[2]) { scales.multiply(state, by); }, scales, state);
    to_rounding<Piece>(rest, factor, x);
    wait(TAKEN, step);
    take_all(taken, state, factor, rest, scales, step);
    release(TAKEN, step);
    release(VALUES, step);
  }
  void subtract_from_values(Columns& x, const ValueScales& scales, int step) const {
    uint32_t values[4][4];
    load_transposed(values, at.values(place, step));
    Columns v;
    from_factor(v, values);
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) x[i] = v[i] * scales.of(i % 4 / 2) - x[i];
  }
  // What tokens write, or (BACK) its gradient, of what their keys read; (BACK) products of queries' first box are begun.
  void write(Columns& x, Columns& of_queries, Column& state, ValueScales& scales, int step) const {
    if (!BACK) wait(MATRICES_OF, step);
    uint32_t factor[4][4], rest[4][4];
    make_written(factor, rest, x, state, scales, step);
    const float power = numbers(step)[INVERSE_POWER];
    if (power != 1) scale_all(x, inverse_of_power(power));
    if (BACK) wait(QUERIES, step);
    keep_in_place(x);
    if (BACK) keep_in_place(of_queries);
    wgmma_fence();
    multiply_by_inverse_pieces(x, factor, rest);
    wgmma_commit();
    if constexpr (BACK) {  // goes on while rows are written
      take_queries(of_queries, 0, step);
      wgmma_commit();
    }
    wgmma_wait<BACK ? 1 : 0>();
    keep_in_place(x);
    release(MATRICES_OF, step);
    if (power != 1) scale_all(x, power);
    if (!BACK) scale_by_token(x, betas(step), 1);
  }
  void keep_rows(const Columns& x, const ValueScales& scales, OutBuffers& buffers, int number) const {
    const float back[2] = {scales.back(0), scales.back(1)};
    Columns rows;
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) rows[i] = x[i] * back[i % 4 / 2];
    keep_written<BACK ? PIECES : WRITTEN_PIECES>(rows, buffers, written, {64 * part, 0, BACK ? WRITTEN_PIECES : 0, walk.head, number});
  }
  // The state takes in what tokens write; (BACK) of queries' first box products go on.
  void take_all(Columns (&taken)[BOXES], Column& state, const uint32_t (&factor)[4][4], const uint32_t (&rest)[4][4], const ValueScales& scales, int step) const {
    static_assert(BOXES == 2);
    if constexpr (BACK) {
      wgmma_wait<0>();
      keep_in_place(taken[0]);
      scale_by_value(taken[0], scales);
    }
    keep_in_place(taken[0]);
    keep_in_place(taken[1]);
    wgmma_fence();
    take_in(taken[0], factor, rest, 0);
    wgmma_commit();
    if constexpr (BACK) take_queries(taken[1], 1, step);
    else take_in(taken[1], factor, rest, 1);
    wgmma_commit();
    wgmma_wait<1>();
    keep_in_place(taken[0]);
    add_to_decayed(state, 0, taken[0], numbers(step));
    wgmma_wait<0>();
    keep_in_place(taken[1]);
    if constexpr (BACK) {
      release(QUERIES, step);
      scale_by_value(taken[1], scales);
      keep_in_place(taken[1]);
      wgmma_fence();
      take_in(taken[1], factor, rest, 1);
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(taken[1]);
    }
    add_to_decayed(state, 1, taken[1], numbers(step));
  }
  static void scale_all(Columns& x, float by) {
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) x[i] *= by;
  }
  // x times betas, as left factors.
  void make_written(uint32_t (&factor)[4][4], uint32_t (&rest)[4][4], Columns& x, Column& state, ValueScales& scales, int step) const {
    Columns written;
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) written[i] = x[i];
    scale_by_token(written, betas(step), 1);
    to_scaled_factor(factor, written, [&](const float(&by)[2]) { scales.multiply(state, by), scales.multiply(x, by); }, scales, state);
    to_rounding<Piece>(rest, factor, written);
  }
  // x += (factor + rest) times the inverse without its diagonal, or (BACK) that one's transpose.
  void multiply_by_inverse_pieces(Columns& x, const uint32_t (&factor)[4][4], const uint32_t (&rest)[4][4]) const {
    const auto multiply = [&](const uint32_t (&a)[4][4], int piece) {
      if constexpr (BACK) multiply_by_columns<Piece>(x, a, at.inverse() + piece * BOX, true);
      else multiply_by_rows<Piece>(x, a, at.inverse() + piece * BOX, true);
    };
    static_assert(INVERSE_PARTS == 2);
    multiply(factor, 1), multiply(rest, 0), multiply(factor, 0);
  }
  static void scale_by_value(Columns& x, const ValueScales& scales) {
    const float of[2] = {scales.of(0), scales.of(1)};
    scales.multiply(x, of);
  }
  // x as a left factor of halves; where it has left their window, it and the state are moved into it, and what others(factors of values) moves.
  template <class Others> static void to_scaled_factor(uint32_t (&factor)[4][4], Columns& x, Others others, ValueScales& scales, const Column& state) {
    to_factor<Piece>(factor, x);
    const uint32_t sizes = of_whole_rows(sizes_of_rows(factor));
    if (!has_large_rows(sizes) && !has_small_rows(sizes)) return;
    float largest[2] = {}, by[2];
    scales.add_largest(largest, state), scales.add_largest(largest, x);
    scales.choose(by, largest);
    others(by), scales.multiply(x, by);
    to_factor<Piece>(factor, x);
  }

  void run(const View& first_state, const View& last_state) const {
    Column state = {};
    const int column = 64 * part + 16 * (warp() % 4);
    const StateMemory first(first_state, walk.sequence, walk.head, column);
    if (first.data) first.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    OutBuffers buffers{at.out(place), 1 + place};
    ValueScales scales;
    if (first.data) scales.move(state);  // it may be far below the window
#pragma unroll 1
    for (int step = 0; step < walk.chunks; ++step) compute(state, scales, buffers, step, walk.number(walk.chunk(step)));
    buffers.finish();
    if (!BACK) return;
    const float back[2] = {scales.back(0), scales.back(1)};
    const StateMemory last(last_state, walk.sequence, walk.head, column);
    if (last.data) last.each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i] * back[i / 2]; });
  }
};

// Block number: first gradients of states, then states, of a head of a sequence each; of each all values, or the first 64 and then the others.
KERNEL((1 + CARRIERS) * WARPGROUP, 1) states(${parameters('states')}) {
  constexpr int BLOCKS_OF_WALK = 2 / CARRIERS;
  const StatePlaces at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (int i = 0; i < BARRIER_PAIRS; ++i) {
      barrier_init(at.first + StatePlaces::BARRIERS + 16 * i, 1);
      barrier_init(at.first + StatePlaces::BARRIERS + 16 * i + 8, 4 * CARRIERS);
    }
    fence_barrier_init();
  }
  sync_block();
  const Walk walk${packed ? ' = Walk::of(heads, sequences, cum_seqlens, v_view.shape[1], ' : '(heads, sequences, v_view.shape[1], '}static_cast<int>(block_x()) / BLOCKS_OF_WALK);
  const int group = uniform(warpgroup()), first_part = BLOCKS_OF_WALK > 1 ? static_cast<int>(block_x()) % BLOCKS_OF_WALK : 0;
  if (group == 0) {
    if (CARRIERS > 1) give_registers<40>();
    if (thread_x() == 0)
      StateCopier{at, walk, first_part, walk.back ? keys_after_map : keys_before_map, ${packed ? 'walk.rows(walk.back ? dout_map : v_map, value_copies_map, walk.back ? DOUT_ROWS : V_ROWS, copied_boxes)' : 'walk.back ? dout_map : v_map'}, inverses_map, weights_map, walk.back ? keys_before_map : keys_after_map, queries_before_map, decays}
          .run();
  } else {
    if (CARRIERS > 1) take_registers<232>();
    const int place = group - 1, part = first_part + place;
    const char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
    if (walk.back) StateCarrier<true>{at, memory, kept_states_map, written_rows_map, walk, place, part}.run(dfinal_state_view, dinitial_state_view);
    else StateCarrier<false>{at, memory, kept_states_map, written_rows_map, walk, place, part}.run(initial_state_view, initial_state_view);
  }
}
