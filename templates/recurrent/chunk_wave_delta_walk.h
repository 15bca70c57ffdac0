// GPU vocabulary of the chunked recurrence's gradients with the delta rule on matrix instructions of a wave: a block's walk through the chunks of
// a sequence, by which it makes some columns of gradients of queries and keys. Part of a template.
//
// Forward, S is written by u, with keys, and read by dout, for dq, and by -beta x, for a share of dk. Backward, D is written by dout, with
// queries, and by -beta x, with keys, and read by u, for the rest of dk. What is made is as good as elements, also where much of what tokens write
// cancels: states and rows of f32 are two elements a number, but where rows read; weights of pairs are rounded once.
#pragma once

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct WalkPlan {
  KeyRows douts, queries, keys;  // queries, keys: for their norms
  ValueRows query_columns, key_columns;
  TokenNumbers gates, betas;
  WalkRows missing, gradients, dq, dk;  // m and x
  float gamma, scale;
  int count;
};

// Of a chunk's rows of f32: factors that make them elements.
struct RowUnits {
  float of[CHUNK], inverse[CHUNK];
};

// Shared memory: rows that read and that write; what rounding took from u, which read or write; rows that write transposed, two elements a number; what they write, transposed; weights of
// pairs; gates; the plan; norms; units of u and beta x.
struct WalkPlaces {
  static constexpr int READERS = 0, WRITERS = KeyTile::BYTES, REST = 2 * KeyTile::BYTES, TURNED = 3 * KeyTile::BYTES, TURNED_PIECE = KEYS * TOKEN_PITCH;
  static constexpr int COLUMN_ROWS = TURNED + 2 * TURNED_PIECE, PAIRS = COLUMN_ROWS + COLUMNS * TOKEN_PITCH, GATES = PAIRS + Pairs::BYTES;
  static constexpr int PLAN = GATES + static_cast<int>(sizeof(Gates) + 15) / 16 * 16, NORMS = PLAN + 320;
  static constexpr int UNITS = NORMS + (NORMED ? static_cast<int>(sizeof(RowNorms)) : 0), END = UNITS + (NARROW ? 2 * static_cast<int>(sizeof(RowUnits)) : 0);
};
static_assert(sizeof(WalkPlan) <= 320 && WalkPlaces::END <= ${shared}, "the spec has another size");
static inline WalkPlan& walk_plan_in(char* memory) { return *reinterpret_cast<WalkPlan*>(memory + WalkPlaces::PLAN); }

// A chunk's numbers of a walk.
struct WalkChunk {
  char* memory;
  int token;
  const WalkPlan& plan;
  Gates& gates;
  RowNorms& norms;  // own: of q; written: of k
  RowUnits *of_u, *of_x;

  explicit WalkChunk(char* memory)
      : memory(memory), token(0), plan(walk_plan_in(memory)), gates(*reinterpret_cast<Gates*>(memory + WalkPlaces::GATES)),
        norms(*reinterpret_cast<RowNorms*>(memory + WalkPlaces::NORMS)), of_u(reinterpret_cast<RowUnits*>(memory + WalkPlaces::UNITS)), of_x(of_u + 1) {}
  float query_norm(int t) const { return NORMED ? norms.own[t] : 1; }
  float key_norm(int t) const { return NORMED ? norms.written[t] : 1; }
  float inverse_of_u(int t) const { return NARROW ? of_u->inverse[t] : 1; }
  float inverse_of_x(int t) const { return NARROW ? of_x->inverse[t] : 1; }

  // Gates, betas, norms and units; a barrier comes behind.
  void load_numbers() const {
    load_gates(plan.gates, token, plan.count, plan.gamma, gates);
    load_betas(plan.betas, token, plan.count, gates);
    if constexpr (NORMED) put_row_norms(plan.queries, plan.keys, token, plan.count, norms);
    if constexpr (NARROW) {
      put_units(plan.missing, *of_u);
      put_units(plan.gradients, *of_x);
    }
  }
  // Units of rows times betas, eight lanes a row. Betas are up to 2.
  void put_units(const WalkRows& rows, RowUnits& to) const {
#pragma unroll 1
    for (int t = thread_x() / 8; t < CHUNK; t += THREADS / 8) {
      const float* from = static_cast<const float*>(rows.first) + static_cast<int64_t>(token + t) * rows.stride;
      float largest = 0;
#pragma unroll 1
      for (int i = thread_x() % 8 * 4; token + t < plan.count && i < rows.columns; i += 32) {
        const Pack<float, 4> x = load_pack<4>(from + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) largest = larger_size(largest, x.at[j]);
      }
#pragma unroll
      for (int mask = 1; mask < 8; mask *= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
      const Unit unit(largest);
      if (thread_x() % 8 == 0) to.of[t] = unit.of, to.inverse[t] = unit.inverse;
    }
  }
  // Rows of f32 times `sign` and betas, as elements: [token][feature] at `place`, (REST) what rounding took, and (TURN) both transposed.
  template <bool TURN, bool REST> void put_rows(const WalkRows& rows, float sign, const RowUnits& units, int place) const {
#pragma unroll 1
    for (int i = thread_x(); i < CHUNK * (KEYS / 8); i += THREADS) {
      const int t = i % CHUNK, feature = i / CHUNK * 8;
      Pack<float, 4> x[2] = {};
      if (token + t < plan.count && feature < rows.columns) {
        const float* from = static_cast<const float*>(rows.first) + static_cast<int64_t>(token + t) * rows.stride + feature;
        x[0] = load_pack<4>(from), x[1] = load_pack<4>(from + 4);
      }
      const float factor = sign * gates.beta[t] * (NARROW ? units.of[t] : 1);
      Pack<Element, 8> all, rest;
      Element* turned = reinterpret_cast<Element*>(memory + WalkPlaces::TURNED + feature * TOKEN_PITCH) + t;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float number = x[j / 4].at[j % 4] * factor;
        all.at[j] = from_float<Element>(number), rest.at[j] = from_float<Element>(number - to_float(all.at[j]));
        if constexpr (TURN) {
          turned[j * (TOKEN_PITCH / 2)] = all.at[j];
          turned[j * (TOKEN_PITCH / 2) + WalkPlaces::TURNED_PIECE / 2] = rest.at[j];
        }
      }
      store_pack(reinterpret_cast<Element*>(memory + place + t * KEY_PITCH) + feature, all);
      if constexpr (REST) store_pack(reinterpret_cast<Element*>(memory + WalkPlaces::REST + t * KEY_PITCH) + feature, rest);
    }
  }
  // Weights of the chunk's pairs of a token that reads and one that writes, each with a factor. BACK: the one that writes is behind. STRICT: a
  // token and itself are no pair.
  template <bool BACK, bool STRICT, class Reader, class Writer> void put_pairs(Reader reader, Writer writer) const {
    const SharedPointer shared = shared_pointer(memory);
#pragma unroll 1
    for (int block = wave(); block < PAIR_BLOCKS; block += WAVES) {
      const int of_reader = BACK ? block_column(block) : block_row(block), of_writer = BACK ? block_row(block) : block_column(block);
      constexpr int LEFT = WalkPlaces::READERS, RIGHT = WalkPlaces::WRITERS, REST = WalkPlaces::REST;
      Sums x = multiply_block(shared + LEFT, shared + RIGHT, of_reader, of_writer);
      hold(x);
      part();
      const Sums more = multiply_block(shared + (BACK ? REST : LEFT), shared + (BACK ? RIGHT : REST), of_reader, of_writer);
      const int t = 16 * of_reader + matrix_column();
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int s = 16 * of_writer + matrix_row(i);
        const bool sees = STRICT ? (BACK ? s > t : s < t) : (BACK ? s >= t : s <= t);
        x.at[i] = sees ? (x.at[i] + more.at[i]) * reader(t) * writer(s) * (BACK ? gates.left(s, t) : gates.left(t, s)) : 0;
      }
      Pairs(memory + WalkPlaces::PAIRS).put(of_reader, of_writer, x);
    }
  }
  // sums [16 columns][16 tokens] of TILES tiles: what the rows that read see of the state, two elements a number, times a factor a token.
  template <bool BACK, class Factor> void read(Sums (&sums)[TILES], const State& state, Factor factor) const {
    const Unit unit = unit_of(state);
#pragma unroll
    for (int r = 0; r < TILES; ++r) sums[r] = {};
    const SharedPointer rows = shared_pointer(memory) + WalkPlaces::READERS;
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      part();
      const Pieces<Element, 2> x(scaled(state[k], unit.of));
#pragma unroll
      for (int r = 0; r < TILES; ++r) {
        part();
        const SharedPointer from = rows + 16 * r * KEY_PITCH + 32 * k;
        const Operand row = load_operand(from, KEY_PITCH);
        multiply<Element>(sums[r], x.at[0], row);
        multiply<Element>(sums[r], x.at[1], row);
        if constexpr (BACK) multiply<Element>(sums[r], x.at[0], load_operand(from + WalkPlaces::REST - WalkPlaces::READERS, KEY_PITCH));
        hold(sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < TILES; ++r) sums[r] = scaled(sums[r], unit.inverse * factor(16 * r + matrix_column()));
  }
  // sums += pairs with what they write.
  template <bool BACK> void add_pairs(Sums (&sums)[TILES]) const {
    Operand columns[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c)
      columns[c] = load_operand(shared_pointer(memory) + WalkPlaces::COLUMN_ROWS + 16 * wave() * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
    Pairs(memory + WalkPlaces::PAIRS).template add<BACK>(sums, columns, 1);
#pragma unroll
    for (int r = 0; r < TILES; ++r) hold(sums[r]);
    part();
  }
  // state = (base + rest) state + rows^T columns, with a factor a token. TWO: rows are two elements a number.
  template <bool TWO, class Factor> void take_in_columns(State& state, float base, float rest, Factor factor) const {
    Sums x[TILES];
    load_values(x, memory + WalkPlaces::COLUMN_ROWS);
#pragma unroll
    for (int c = 0; c < TILES; ++c) {
      part();
#pragma unroll
      for (int i = 0; i < SUMS; ++i) x[c].at[i] *= factor(16 * c + matrix_row(i));
      hold(x[c]);
    }
    const Unit unit = unit_of(x);
    Pieces<Element, 2> columns[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) columns[c] = Pieces<Element, 2>(scaled(x[c], unit.of));
    const SharedPointer turned = shared_pointer(memory) + WalkPlaces::TURNED;
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      part();
      Sums sums = {}, least = {};
#pragma unroll
      for (int c = 0; c < TILES; ++c) {
        const SharedPointer from = turned + 16 * k * TOKEN_PITCH + 32 * c;
        const Operand row = load_operand(from, TOKEN_PITCH);
        multiply<Element>(sums, row, columns[c].at[0]);
        multiply<Element>(least, row, columns[c].at[1]);
        if constexpr (TWO) multiply<Element>(least, load_operand(from + WalkPlaces::TURNED_PIECE, TOKEN_PITCH), columns[c].at[0]);
      }
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        float& y = state[k].at[i];
        y = y * base + (y * rest + (sums.at[i] + least.at[i]) * unit.inverse);
      }
      hold(state[k]);
    }
  }
};

// From the first chunk on; `state`: before it, with rows of values and columns of keys.
static inline void walk_forward(char* memory, State& state) {
  WalkChunk at(memory);
  const SharedPointer shared = shared_pointer(memory);
  const Gates& gates = at.gates;
  sync_block();  // the plan is there
  const WalkPlan& plan = at.plan;
  const int count = plan.count;
#pragma unroll 1
  for (; at.token < count; at.token += CHUNK) {
    const int token = at.token;
    sync_block();  // all are done with the chunk before
    plan.douts.copy_async({shared + WalkPlaces::READERS}, token, count);
    copy_chunk_transposed(shared + WalkPlaces::COLUMN_ROWS, plan.key_columns, token, count);
    copy_async_commit();
    at.load_numbers();
    copy_async_wait<0>();
    sync_block();  // betas and units are there
    at.put_rows<true, true>(plan.missing, 1, *at.of_u, WalkPlaces::WRITERS);
    sync_block();  // rows are there
    const auto written = [&](int s) { return at.key_norm(s) * at.inverse_of_u(s); };
    at.put_pairs<false, false>([&](int) { return plan.scale; }, written);
    sync_block();  // pairs are there
    Sums sums[TILES];
    at.read<false>(sums, state, [&](int t) { return plan.scale * gates.before[t]; });
    at.add_pairs<false>(sums);
    plan.dq.store(sums, token, count);
    sync_block();  // all are done with rows that read, and with pairs
    at.put_rows<false, false>(plan.gradients, -1, *at.of_x, WalkPlaces::READERS);
    sync_block();  // others are there
    at.put_pairs<false, true>([&](int t) { return at.inverse_of_x(t); }, written);
    sync_block();  // their pairs are there
    at.read<false>(sums, state, [&](int t) { return gates.before[t] * at.inverse_of_x(t); });
    at.add_pairs<false>(sums);
    plan.dk.store(sums, token, count);
    at.take_in_columns<true>(state, gates.base, gates.rest, [&](int s) { return gates.after[s] * written(s); });
  }
}

// From the last chunk on; `state`: the gradient behind it.
static inline void walk_back(char* memory, State& state) {
  WalkChunk at(memory);
  const SharedPointer shared = shared_pointer(memory);
  const Gates& gates = at.gates;
  sync_block();  // the plan is there
  const WalkPlan& plan = at.plan;
  const int count = plan.count;
#pragma unroll 1
  for (int chunk = (count + CHUNK - 1) / CHUNK - 1; chunk >= 0; --chunk) {
    const int token = at.token = chunk * CHUNK;
    sync_block();  // all are done with the chunk before
    plan.douts.copy_async({shared + WalkPlaces::WRITERS}, token, count);
    copy_chunk_transposed(shared + WalkPlaces::TURNED, plan.douts, token, count);
    copy_chunk_transposed(shared + WalkPlaces::COLUMN_ROWS, plan.query_columns, token, count);
    copy_async_commit();
    at.load_numbers();
    copy_async_wait<0>();
    sync_block();  // betas and units are there
    at.put_rows<false, true>(plan.missing, 1, *at.of_u, WalkPlaces::READERS);
    sync_block();  // rows are there
    const auto read = [&](int t) { return at.inverse_of_u(t); };
    const auto of_queries = [&](int s) { return plan.scale * at.query_norm(s); };
    at.put_pairs<true, false>(read, of_queries);
    sync_block();  // pairs are there
    Sums sums[TILES];
    at.read<true>(sums, state, [&](int t) { return gates.after[t] * read(t); });
    at.add_pairs<true>(sums);
    at.take_in_columns<false>(state, gates.base, gates.rest, [&](int s) { return gates.before[s] * of_queries(s); });
    sync_block();  // all are done with rows that write, and with pairs
    at.put_rows<true, false>(plan.gradients, -1, *at.of_x, WalkPlaces::WRITERS);
    copy_chunk_transposed(shared + WalkPlaces::COLUMN_ROWS, plan.key_columns, token, count);
    sync_block();  // others are there
    const auto of_keys = [&](int s) { return at.key_norm(s) * at.inverse_of_x(s); };
    at.put_pairs<true, true>(read, of_keys);
    sync_block();  // their pairs are there
    at.add_pairs<true>(sums);
    plan.dk.store(sums, token, count);
    at.take_in_columns<true>(state, 1, 0, [&](int s) { return gates.before[s] * of_keys(s); });
  }
}
