// GPU vocabulary of the chunked recurrence's gradients with the delta rule on matrix instructions of a wave: a block's walk through the chunks of
// a sequence, by which it makes some columns of what tokens miss, or of the gradient of what they write. Part of a template.
//
// Both are as good as f32: states are PARTS elements a number, pairs of tokens and what is multiplied with them three bf16 a number.
#pragma once

// A wave's places in memory of a head of a sequence: states after groups of chunks, and their gradients; and of each token out . dout of the
// wave's columns.
struct KeptStates {
  float *states, *flows;
  int64_t first_group, head, heads;
  int block;   // of 16 values
  bool there;  // the block

  static bool ends_group(int chunk, int chunks) { return chunk % KEPT == KEPT - 1 || chunk == chunks - 1; }
  void keep(const State& state, int chunk, int chunks, int which) const {
    if (!there || !ends_group(chunk, chunks)) return;
    float* to = states + ((((first_group + chunk / KEPT) * heads + head) * 2 + which) * SLICES + block) * (16 * KEYS) + wave_lane();
#pragma unroll
    for (int k = 0; k < SLICES; ++k)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) to[(k * SUMS + i) * WAVE] = state[k].at[i];
  }
  // out [16 tokens][16 columns] of TILES tiles, with out's gradients.
  void store_flows(const Sums (&out)[TILES], const Sums (&douts)[TILES], int chunk) const {
    if (!there) return;
    float* to = flows + (((first_group * KEPT + chunk) * heads + head) * SLICES + block) * CHUNK;
#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        float sum = out[c].at[i] * douts[c].at[i];
        for (int mask = 1; mask < 16; mask *= 2) sum += exchange_wave(sum, mask);
        if (matrix_column() == 0) to[16 * c + matrix_row(i)] = sum;
      }
  }
};

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct WritePlan {
  KeyRows queries, keys;
  ValueRows values, douts;
  TokenNumbers gates, betas;
  WalkRows to, dv;
  float gamma, scale;
  int count;
};

// Shared memory: rows of queries and keys, by tokens and transposed; weights of pairs; the system; gates; the plan; norms.
struct WritePlaces {
  static constexpr int KEY_ROWS = KeyTile::BYTES, TURNED_QUERIES = 2 * KeyTile::BYTES, TURNED_KEYS = TURNED_QUERIES + KEYS * TOKEN_PITCH;
  static constexpr int PAIRS = TURNED_KEYS + KEYS * TOKEN_PITCH, SOLVER = PAIRS + FloatSquare::BYTES, GATES = SOLVER + Solver::BYTES;
  static constexpr int PLAN = GATES + static_cast<int>(sizeof(Gates) + 15) / 16 * 16, NORMS = PLAN + 256;
  static constexpr int END = NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0);
};
static_assert(sizeof(WritePlan) <= 256 && WritePlaces::END <= ${write_shared}, "the spec has another size");
static inline WritePlan& write_plan_in(char* memory) { return *reinterpret_cast<WritePlan*>(memory + WritePlaces::PLAN); }

// A wave's columns of a chunk's rows, [token][column], from memory.
static inline void load_columns(Sums (&to)[TILES], const ValueRows& rows, int token, int count) {
  const int column = 16 * wave() + matrix_column();
#pragma unroll
  for (int c = 0; c < TILES; ++c) {
    part();
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int t = token + 16 * c + matrix_row(i);
      to[c].at[i] = t < count && column < rows.columns ? to_float(rows.first[static_cast<int64_t>(t) * rows.stride + column]) : 0;
    }
    hold(to[c]);
  }
}

// A block of the weights of pairs, the scale included, and of the system, whose numbers not below the diagonal are not read. BACK: transposed.
template <bool BACK> static inline void put_write_pairs(char* memory, int block, const Gates& gates, const Norms& norms, float scale) {
  const SharedPointer shared = shared_pointer(memory);
  const Sums x = multiply_block(shared, shared + WritePlaces::KEY_ROWS, block);
  const int t = 16 * block_row(block) + matrix_column();
  const float factor = scale * (NORMED ? norms.q[t] : 1);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = 16 * block_column(block) + matrix_row(i);
    const float weight = s <= t ? x.at[i] * (NORMED ? norms.k[s] : 1) * factor * gates.left(t, s) : 0;
    FloatSquare{memory + WritePlaces::PAIRS}.put(BACK ? s : t, BACK ? t : s, weight);
  }
}
template <bool BACK> static inline void put_write_system(char* memory, int block, const Gates& gates, const Norms& norms) {
  const SharedPointer keys = shared_pointer(memory) + WritePlaces::KEY_ROWS;
  Sums x = multiply_block(keys, keys, block);
  const int t = 16 * block_row(block) + matrix_column();
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = 16 * block_column(block) + matrix_row(i);
    x.at[i] = s < t ? x.at[i] * (NORMED ? norms.k[s] * norms.k[t] : 1) * gates.beta[BACK ? t : s] * gates.left(t, s) : 0;
  }
  Solver{memory + WritePlaces::SOLVER}.put<BACK>(block, x);
}

// What rows of keys and of queries see of a state, [16 tokens][16 columns] of TILES tiles, as add_seen_precisely() does for one of them.
static inline void add_seen_by_both(Sums (&by_keys)[TILES], Sums (&by_queries)[TILES], const State& state, SharedPointer keys, SharedPointer queries,
                                    float unit) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums x = scaled(state[k], unit);
#pragma unroll
    for (int piece = 0; piece < PARTS; ++piece) {
      const Operand b = operand_of<Element>(x);
      x = rest_of<Element>(x);
#pragma unroll
      for (int r = 0; r < TILES; ++r) {
        multiply<Element>(by_keys[r], load_operand(keys + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH), b);
        hold(by_keys[r]);
        multiply<Element>(by_queries[r], load_operand(queries + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH), b);
        hold(by_queries[r]);
      }
    }
  }
}

// x [16 tokens][16 columns] of TILES tiles times a factor a token.
template <class Factor> static inline void scale_tokens(Sums (&x)[TILES], Factor factor) {
#pragma unroll
  for (int c = 0; c < TILES; ++c) {
    part();
#pragma unroll
    for (int i = 0; i < SUMS; ++i) x[c].at[i] *= factor(16 * c + matrix_row(i));
    hold(x[c]);
  }
}

// state = (base + rest) state + turned^T rows, where rows [16 tokens][16 columns] of TILES tiles are first multiplied with a factor a token.
template <class Factor>
static inline void take_in_rows(State& state, float base, float rest, const Sums (&rows)[TILES], SharedPointer turned, Factor factor) {
  Sums x[TILES];
#pragma unroll
  for (int c = 0; c < TILES; ++c) x[c] = rows[c];
  scale_tokens(x, factor);
  const Unit unit = unit_of(x);
#pragma unroll
  for (int c = 0; c < TILES; ++c) {
    const Parts parts(scaled(x[c], unit.of));  // of one tile: registers
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      part();
      const Operand row = load_operand(turned + 16 * k * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
      Sums sums = {}, least = {};
      multiply<Element>(sums, row, parts.at[0]);
#pragma unroll
      for (int piece = PARTS - 1; piece > 0; --piece) multiply<Element>(least, row, parts.at[piece]);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        float& y = state[k].at[i];
        const float more = (sums.at[i] + least.at[i]) * unit.inverse;
        y = c == 0 ? y * base + (y * rest + more) : y + more;
      }
      hold(state[k]);
    }
  }
}

// sums [16 tokens][16 columns] of TILES tiles += pairs rows, where pairs are of tokens before each or (BACK) behind it.
template <bool BACK> static inline void add_float_pairs(Sums (&sums)[TILES], char* pairs, const Sums (&rows)[TILES]) {
#pragma unroll
  for (int c = 0; c < TILES; ++c) {
    const Float x(rows[c]);
#pragma unroll
    for (int r = BACK ? 0 : c; r < (BACK ? c + 1 : TILES); ++r) {
      part();
      const Sums more = Solver::product(FloatSquare{pairs}.load(r, c), x);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sums[r].at[i] += more.at[i];
      hold(sums[r]);
    }
  }
}

// Through all chunks, from the first on or (BACK) from the last; `state`: before them.
template <bool BACK> static inline void walk_writes(char* memory, State& state, const KeptStates& kept) {
  using At = WritePlaces;
  const SharedPointer shared = shared_pointer(memory);
  const WritePlan& plan = write_plan_in(memory);
  Gates& gates = *reinterpret_cast<Gates*>(memory + At::GATES);
  Norms& norms = *reinterpret_cast<Norms*>(memory + At::NORMS);
  const auto key_norm = [&](int t) { return NORMED ? norms.k[t] : 1; };
  const auto query_norm = [&](int t) { return NORMED ? norms.q[t] : 1; };
  const Solver solver{memory + At::SOLVER};
  sync_block();  // the plan is there
  const int count = plan.count, chunks = (count + CHUNK - 1) / CHUNK;
#pragma unroll 1
  for (int step = 0; step < chunks; ++step) {
    const int chunk = BACK ? chunks - 1 - step : step, token = chunk * CHUNK;
    sync_block();  // all are done with the chunk before
    if (BACK || GATED) plan.queries.copy_async({shared}, token, count);
    plan.keys.copy_async({shared + At::KEY_ROWS}, token, count);
    if (BACK) copy_chunk_transposed(shared + At::TURNED_QUERIES, plan.queries, token, count);
    copy_chunk_transposed(shared + At::TURNED_KEYS, plan.keys, token, count);
    copy_async_commit();
    load_gates(plan.gates, token, count, plan.gamma, gates);
    load_betas(plan.betas, token, count, gates);
    copy_async_wait<0>();
    sync_block();  // the chunk is there
    if constexpr (NORMED) {
      put_norms(memory + (BACK || GATED ? 0 : At::KEY_ROWS), memory + At::KEY_ROWS, norms);
      sync_block();  // norms are there
    }
#pragma unroll 1
    for (int block = wave(); block < (BACK || GATED ? 2 : 1) * PAIR_BLOCKS; block += WAVES) {
      if (block < PAIR_BLOCKS) put_write_system<BACK>(memory, block, gates, norms);
      else put_write_pairs<BACK>(memory, block - PAIR_BLOCKS, gates, norms, plan.scale);
    }
    sync_block();  // the system is there
    solver.invert<BACK>();
    if (BACK && GATED) kept.keep(state, chunk, chunks, 1);
    const Unit unit = unit_of(state);
    Sums x[TILES] = {}, out[TILES] = {}, douts[TILES];
    if constexpr (!BACK && GATED) add_seen_by_both(x, out, state, shared + At::KEY_ROWS, shared, unit.of);
    else add_seen_precisely(x, state, shared + At::KEY_ROWS, unit.of);
    scale_tokens(x, [&](int t) { return (BACK ? gates.after[t] : -gates.before[t]) * (unit.inverse * key_norm(t)); });
    if constexpr (BACK) {
      load_columns(douts, plan.douts, token, count);
      add_float_pairs<true>(x, memory + At::PAIRS, douts);
    } else {
      Sums values[TILES];
      load_columns(values, plan.values, token, count);
#pragma unroll
      for (int c = 0; c < TILES; ++c)
#pragma unroll
        for (int i = 0; i < SUMS; ++i) x[c].at[i] += values[c].at[i];
    }
    sync_block();  // the inverses are there
    if constexpr (BACK) solver.solve_back(x);
    else solver.solve(x);
    plan.to.store_tokens(x, token, count);
    scale_tokens(x, [&](int t) { return gates.beta[t]; });
    if constexpr (BACK) {
      plan.dv.store_tokens(x, token, count);
      const float scale = plan.scale;
      take_in_rows(state, gates.base, gates.rest, douts, shared + At::TURNED_QUERIES,
                   [&](int t) { return scale * gates.before[t] * query_norm(t); });
      take_in_rows(state, 1, 0, x, shared + At::TURNED_KEYS, [&](int t) { return -gates.before[t] * key_norm(t); });
    } else {
      if constexpr (GATED) {
        const float factor = plan.scale * unit.inverse;
        scale_tokens(out, [&](int t) { return factor * gates.before[t] * query_norm(t); });
        add_float_pairs<false>(out, memory + At::PAIRS, x);
        load_columns(douts, plan.douts, token, count);
        kept.store_flows(out, douts, chunk);
      }
      take_in_rows(state, gates.base, gates.rest, x, shared + At::TURNED_KEYS, [&](int t) { return gates.after[t] * key_norm(t); });
      if (GATED) kept.keep(state, chunk, chunks, 0);
    }
  }
}
