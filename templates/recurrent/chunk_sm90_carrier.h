// Hopper vocabulary of the chunked recurrence: a warpgroup that carries 64 columns of a state. Part of forward.chunk.sm90.cu.
#pragma once

struct Carrier {
  const Places at;
  char* memory;
  const TensorMap& out;
  const float ${dual ? 'skip' : 'scale'};
  const int count, sequence, head, column, part;
  const int first;  // token of the segment

  int own() const { return HEADS > 1 ? part : 0; }  // the part's head among the block's

  // The part's values of a stage, by tokens, as a left factor.
  void load_values(uint32_t (&a)[4][4], uint32_t stage) const {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    const uint32_t from = at.values(stage, part) + token * 128 + (pack ^ token % 8) * 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) load_matrices_transposed(a[k], from + k * 2048);
  }

$if dual
  // sums += skip x, 16 tokens at a time for the sake of registers.
  void add_skip(Columns& sums, uint32_t stage) const {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    const uint32_t from = at.values(stage, part) + token * 128 + (pack ^ token % 8) * 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t x[4];
      load_matrices_transposed(x, from + k * 2048);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[8 * k + 2 * i] += skip * low_of(x[i]);
        sums[8 * k + 2 * i + 1] += skip * high_of(x[i]);
      }
    }
  }

$end
  // What `taken` has of 64 keys is added to what gates leave of the state.
  static void add_to_state(Column& state, int box, const Columns& taken, float base, float rest) {
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) {
      float& x = state[CHUNK / 2 * box + i];
      x = x * base + (x * rest + taken[i]);
    }
  }

  // Starts the products by which the state takes in a chunk's rows times `written` and `rest`.
  void take_in(Columns& taken, const uint32_t (&written)[4][4], const uint32_t (&rest)[4][4], uint32_t stage, int box) const {
    const uint32_t keys = at.keys(stage) + box * BOX;
    multiply_by_columns(taken, rest, keys, false);  // smaller ones first: matrix instructions round down
    multiply_by_columns(taken, written, keys, true);
    wgmma_commit();
  }

$if delta
  // out, and the state after the chunk. In between, products that are started go on while other numbers are made ready.
  void compute(Column& state, Columns& sums, uint32_t stage, uint32_t slot) const {
$else
  // out, which store() sends off, and the state after the chunk. In between, products that are started go on while other numbers are made
  // ready: the waits between are also loops, over which the compiler moves nothing.
  template <class Store> void compute(Column& state, Columns& sums, const Turn<STAGES>& turn, const Turn<PAIR_SLOTS>& pairs, Store store) const {
    const uint32_t stage = turn.at, slot = pairs.at;
$end
    const Gates& gates = at.gates(memory, stage, own());
    uint32_t seen[SLICES][4];  // the state as it is read
    Columns taken;
    uint32_t written[4][4], rest[4][4];
$if delta
    const Norms& norms = at.norms(memory, slot);
    {
      uint32_t seen_rest[SLICES][4];
      to_factor(seen, state);
      to_rounding(seen_rest, seen, state);
      Columns x;  // what the keys read; then beta (v - that)
      keep_in_place(x);
      wgmma_fence();
      multiply_by_rows(x, seen_rest, at.keys(stage), false);
      multiply_by_rows(x, seen, at.keys(stage), true);
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(x);
      keep_in_place(sums);
      wgmma_fence();
      multiply_by_rows(sums, seen, at.queries(stage), false);
      wgmma_commit();
      Columns values;
      load_values(written, stage);
      from_factor(values, written);
#pragma unroll
      for (int j = 0; j < CHUNK / 8; ++j) {
        const int token = 8 * j + lane() % 4 * 2;
        const Pack<float, 2> before = load_pack<2>(gates.before + token), beta = load_pack<2>(gates.beta + token);
        Pack<float, 2> norm{{1, 1}};
        if (NORMED) norm = load_pack<2>(norms.k + token);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[4 * j + i] = beta.at[i % 2] * (values[4 * j + i] - before.at[i % 2] * norm.at[i % 2] * x[4 * j + i]);
      }
      to_factor(written, x);
      to_rounding(rest, written, x);
      wgmma_wait<0>();
      keep_in_place(sums);
    }
    keep_in_place(taken);
    wgmma_fence();
    multiply_by_rows(taken, rest, at.inverse(stage), false);
    multiply_by_rows(taken, written, at.inverse(stage) + BOX, true);
    multiply_by_rows(taken, written, at.inverse(stage), true);
    wgmma_commit();
    scale_by_token(sums, gates.before, scale);
    if (NORMED) scale_by_token(sums, norms.q, 1);
    wgmma_wait<0>();
    keep_in_place(taken);
    to_factor(written, taken);  // u
    keep_in_place(sums);
    wgmma_fence();
    multiply_by_rows(sums, written, at.pairs(slot), true);
    wgmma_commit();
    scale_by_token(taken, gates.after, 1);
    if (NORMED) scale_by_token(taken, norms.k, 1);
    uint32_t left[4][4];
    to_factor(left, taken);
    to_rounding(rest, left, taken);
    wgmma_fence();
    keep_in_place(taken);
    take_in(taken, left, rest, stage, 0);
    wgmma_wait<0>();
    keep_in_place(taken);
    keep_in_place(sums);
    add_to_state(state, 0, taken, gates.base, gates.rest);
    if constexpr (BOXES > 1) {
      keep_in_place(taken);
      wgmma_fence();
      take_in(taken, left, rest, stage, 1);
      wgmma_wait<0>();
      keep_in_place(taken);
      add_to_state(state, 1, taken, gates.base, gates.rest);
    }
$else
    to_factor(seen, state);
    keep_in_place(sums);
    wgmma_fence();
    multiply_by_rows(sums, seen, at.queries(stage), false);
    wgmma_commit();
    barrier_wait_all(at.summed(stage), turn.parity);
#pragma unroll
    for (int k = 0; k < 4; ++k) load_weighed(written[k], rest[k], at.values(stage, part), k, gates.after, 1);
    barrier_wait_all(at.weighed(slot), pairs.parity);
    wgmma_wait<0>();
    keep_in_place(sums);
    keep_in_place(taken);
    wgmma_fence();
    take_in(taken, written, rest, stage, 0);
    scale_by_token(sums, gates.before, ${dual ? '1' : 'scale'});
$if dual
    add_skip(sums, stage);
$end
    keep_in_place(sums);
    wgmma_fence();
    multiply_values_by_rows(sums, at.values(stage, part), at.pairs(slot, own()));
    wgmma_commit();
    wgmma_wait<1>();
    keep_in_place(taken);
    add_to_state(state, 0, taken, gates.base, gates.rest);
    if constexpr (BOXES > 1) {
      keep_in_place(taken);
      wgmma_fence();
      take_in(taken, written, rest, stage, 1);
    }
    wgmma_wait<BOXES - 1>();
    keep_in_place(sums);
    store();
    if constexpr (BOXES > 1) {
      wgmma_wait<0>();
      keep_in_place(taken);
      add_to_state(state, 1, taken, gates.base, gates.rest);
    }
$end
  }

$if delta
  // `alone`: where the state after the segment goes, which began with nothing or the identity, by values; null: to `final_state`.
  // Carrying, `chunks` is how many were computed until nothing was left, and rows of out are those carried.
  void run(const View& initial_state, const View& final_state, float* alone, int32_t* chunks) const {
    Column state = {};
    const StateMemory initial(initial_state, sequence, head, column + 16 * (warp() % 4));
$if delta
    if (at.carried(memory).carries) {
      begin_carrying(state, part, static_cast<int>(final_state.shape[2]));
#pragma unroll
      for (int stage = 0; stage < STAGES; ++stage) clear_values(memory + (at.values(stage, part) - at.first), part);
    } else if (initial.data && first == 0) {
      initial.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    }
$else
    if (initial.data && first == 0) initial.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
$end
$else
  void begin(Column& state, const View& initial_state, const float* kept) const {
    const StateMemory initial(initial_state, sequence, head, column + 16 * (warp() % 4));
    if (kept) {
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i) {
        const Pack<float, 4> x = load_pack<4>(kept + (i * WARPGROUP + thread_x() % WARPGROUP) * 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) state[4 * i + j] = x.at[j];
      }
    } else if (initial.data) {
      initial.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    }
  }
  static void keep(const Column& state, float* to) {
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
      store_pack(to + (i * WARPGROUP + thread_x() % WARPGROUP) * 4, Pack<float, 4>{state[4 * i], state[4 * i + 1], state[4 * i + 2], state[4 * i + 3]});
  }

  // `kept`: the state before a segment that is not the first; ends: the segment is the last one.
  void run(const View& initial_state, const View& final_state, const float* kept, bool ends) const {
    Column state = {};
    begin(state, initial_state, kept);
$end
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.out(part), 1 + part};
    Turn<STAGES> turn;
    Turn<PAIR_SLOTS> slot;
$if delta
    int token = 0;
$end
#pragma unroll 1
    for (${delta ? '' : 'int token = 0'}; token < count; token += CHUNK, turn.next(), slot.next()) {
      barrier_wait_all(at.full(turn.at), turn.parity);
$if delta
      if (token / CHUNK >= at.carried(memory).end) break;
$end
      Columns sums;
$if delta
      barrier_wait_all(at.weighed(slot.at), slot.parity);
      compute(state, sums, turn.at, slot.at);
      if (at.carried(memory).carries) at.carried(memory).note(turn.at, state);
$else
      compute(state, sums, turn, slot, [&] { store_values(sums, buffers, out, {column, head, first + token, sequence}); });
$end
      sync_warp();
      if (lane() == 0) {
        barrier_arrive(at.empty(turn.at));
        barrier_arrive(at.read(slot.at));
      }
$if delta
      const Carried& place = at.carried(memory);
      const int row = place.to[1] + (place.carries ? 0 : token), last = place.to[2] + (place.carries ? token / CHUNK : 0);
      store_values(sums, buffers, out, {column, place.to[0], row, last});
$end
    }
    buffers.finish();
$if delta
    if (chunks && thread_x() == WARPGROUP) *chunks = (token + CHUNK - 1) / CHUNK;
$end
$if delta
    if (alone) {
      keep_alone(state, alone, part);
      return;
    }
$else
    if (!ends) return;
$end
    StateMemory(final_state, ${delta ? 'at.carried(memory).to[2], at.carried(memory).to[0]' : 'sequence, head'}, column + 16 * (warp() % 4)).each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
  }
};
