// Hopper vocabulary of the chunked recurrence: a warpgroup that carries 64 columns of a state. Part of forward.chunk.sm90.cu.
#pragma once

using Column = float[KEYS / 2];     // 64 values by keys, as wgmma has them: a warp has 16 values
using Columns = float[CHUNK / 2];   // 64 values by tokens, or by 64 keys

// The same as left factors of products, 16 keys or tokens at a time; and what rounding took from them.
template <int N> static inline void to_factor(uint32_t (&a)[N][4], const float (&x)[8 * N]) {
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack_pair<Element>(x[8 * k + 2 * i], x[8 * k + 2 * i + 1]);
}
template <int N> static inline void to_rounding(uint32_t (&rest)[N][4], const uint32_t (&a)[N][4], const float (&x)[8 * N]) {
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) rest[k][i] = rounding_of(x[8 * k + 2 * i], x[8 * k + 2 * i + 1], a[k][i]);
}
template <int N> static inline void from_factor(float (&x)[8 * N], const uint32_t (&a)[N][4]) {
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[8 * k + 2 * i] = low_of(a[k][i]), x[8 * k + 2 * i + 1] = high_of(a[k][i]);
}

// Calls use(x, i) for each number x of token i of a pair, whose first one is `token`.
template <class Use> static inline void each_token_pair(Columns& x, Use use) {
#pragma unroll
  for (int j = 0; j < CHUNK / 8; ++j) use(8 * j + lane() % 4 * 2, x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
}
// Times a factor of each token.
static inline void scale_by_token(Columns& x, const float* factors, float more) {
  each_token_pair(x, [&](int token, float& a, float& b, float& c, float& d) {
    const Pack<float, 2> f = load_pack<2>(factors + token);
    a *= f.at[0] * more, b *= f.at[1] * more, c *= f.at[0] * more, d *= f.at[1] * more;
  });
}

// sums (+)= a rows^T, where rows lie in boxes of 64 elements.
template <int N> static inline void multiply_by_rows(Columns& sums, const uint32_t (&a)[N][4], uint32_t rows, bool add) {
  const uint64_t b = depth_major<128>(rows);
#pragma unroll
  for (int k = 0; k < N; ++k) wgmma<Element, CHUNK>(sums, a[k], moved(b, k / 4 * BOX + k % 4 * 32), add || k > 0);
}
// sums (+)= a rows, of one box.
static inline void multiply_by_columns(Columns& sums, const uint32_t (&a)[4][4], uint32_t rows, bool add) {
  const uint64_t b = row_major<128>(rows, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, true>(sums, a[k], moved(b, k * 2048), add || k > 0);
}

struct Carrier {
  const Places at;
  char* memory;
  const TensorMap& out;
  const float scale;
  const int count, sequence, head, column, part;

  // The part's values of a stage, by tokens, as a left factor.
  void load_values(uint32_t (&a)[4][4], uint32_t stage) const {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    const uint32_t from = at.values(stage, part) + token * 128 + (pack ^ token % 8) * 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) load_matrices_transposed(a[k], from + k * 2048);
  }

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

  // out, and the state after the chunk. In between, products that are started go on while other numbers are made ready.
  void compute(Column& state, Columns& sums, uint32_t stage, uint32_t slot) const {
    const Gates& gates = at.gates(memory, stage);
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
    {
      Columns values;
      load_values(written, stage);
      from_factor(values, written);
      scale_by_token(values, gates.after, 1);
      to_factor(written, values);
      to_rounding(rest, written, values);
    }
    wgmma_wait<0>();
    keep_in_place(sums);
    keep_in_place(taken);
    wgmma_fence();
    take_in(taken, written, rest, stage, 0);
    scale_by_token(sums, gates.before, scale);
    keep_in_place(sums);
    wgmma_fence();
    const uint64_t values = row_major<128>(at.values(stage, part), CHUNK), pairs = depth_major<128>(at.pairs(slot));
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, true>(sums, moved(values, k * 2048), moved(pairs, k * 32), true);
    wgmma_commit();
    wgmma_wait<1>();
    keep_in_place(taken);
    add_to_state(state, 0, taken, gates.base, gates.rest);
    if constexpr (BOXES > 1) {
      keep_in_place(taken);
      wgmma_fence();
      take_in(taken, written, rest, stage, 1);
    }
    wgmma_wait<0>();
    keep_in_place(sums);
    if constexpr (BOXES > 1) {
      keep_in_place(taken);
      add_to_state(state, 1, taken, gates.base, gates.rest);
    }
$end
  }

  void store(const Columns& sums, StoreBuffers<Element, OUT_BUFFERS>& buffers, int token) const {
    buffers.open();
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const uint32_t r[4] = {pack_pair<Element>(sums[4 * j], sums[4 * j + 1]), pack_pair<Element>(sums[4 * j + 2], sums[4 * j + 3]),
                             pack_pair<Element>(sums[4 * j + 4], sums[4 * j + 5]), pack_pair<Element>(sums[4 * j + 6], sums[4 * j + 7])};
      buffers.template put<true>(j, r);
    }
    buffers.send(true, static_cast<Element*>(nullptr), 0, 0, 0, [&](uint32_t from) { store_tile(out, {column, head, token, sequence}, from); });
  }

  void run(const View& initial_state, const View& final_state) const {
    Column state = {};
    const StateMemory initial(initial_state, sequence, head, column + 16 * (warp() % 4));
    if (initial.data) initial.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.out(part), 1 + part};
    Turn<STAGES> turn;
    Turn<PAIR_SLOTS> slot;
#pragma unroll 1
    for (int token = 0; token < count; token += CHUNK, turn.next(), slot.next()) {
      barrier_wait_all(at.full(turn.at), turn.parity);
      barrier_wait_all(at.weighed(slot.at), slot.parity);
      Columns sums;
      compute(state, sums, turn.at, slot.at);
      sync_warp();
      if (lane() == 0) {
        barrier_arrive(at.empty(turn.at));
        barrier_arrive(at.read(slot.at));
      }
      store(sums, buffers, token);
    }
    buffers.finish();
    StateMemory(final_state, sequence, head, column + 16 * (warp() % 4)).each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
  }
};
