// Hopper vocabulary of the chunked recurrence's gradient: a warpgroup that carries 64 rows of a state. Part of backward.chunk.sm90.cu.
#pragma once

// A warp's rows of a state in memory, which has keys by values.
struct StateInMemory {
  float* data;
  int row_stride, column_stride, rows, columns;

  StateInMemory(const View& view, const Stream& stream, int first, bool by_values, bool there) : data(nullptr), row_stride(0), column_stride(0), rows(0), columns(0) {
    if (!there || !is_given(view)) return;
$if dual  // values by keys
    const int stride = static_cast<int>(view.strides[2]), keys = static_cast<int>(view.shape[3]), values = static_cast<int>(view.shape[2]);
    row_stride = by_values ? stride : 1, column_stride = by_values ? 1 : stride;
$else
    const int stride = static_cast<int>(view.strides[2]), keys = static_cast<int>(view.shape[2]), values = static_cast<int>(view.shape[3]);
    row_stride = by_values ? 1 : stride, column_stride = by_values ? stride : 1;
$end
    rows = (by_values ? values : keys) - first, columns = by_values ? keys : values;
    data = static_cast<float*>(view.data) + stream.sequence * view.strides[0] + stream.head * view.strides[1] + static_cast<int64_t>(first) * row_stride;
  }
  // Calls use(i, at) for each of the lane's numbers that there are.
  template <${dual ? 'int BOXES = ::BOXES, ' : ''}class Use> void each(Use use) const {
    const float* at = data + lane() % 4 * 2 * column_stride + lane() / 4 * row_stride;
#pragma unroll
    for (int n = 0; n < ${dual ? '8 * BOXES' : 'KEYS / 8'}; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (8 * n + lane() % 4 * 2 + i % 2 < columns && lane() / 4 + i / 2 * 8 < rows) use(4 * n + i, at + i % 2 * column_stride + i / 2 * 8 * row_stride);
      at = keep(at + 8 * column_stride);
    }
  }
};

// MEETS: it is the gradient of a state that was kept.
template <bool FLOWS, bool MEETS> struct GradientCarrier {
  const Places at;
  char* memory;
  const Job& job;
  const Stream& stream;
  const FlowRows flows;
  const KeptStates kept;
  const int part;
$if dual
  const ValueGradient values;
$end
$if dual  // flows are past states of keys by values, which have boxes of their own
  static constexpr int BOXES = FLOWS ? VALUE_BOXES : ::BOXES, SLICES = 4 * BOXES, KEYS = 64 * BOXES, PLACES = ::KEYS;
  using Column = float[KEYS / 2];
$end

$if not dual and precise  // three elements a number of a state leave few registers
  // Where a lane's 8 features of 16 tokens lie in a box. One place for all that is read and stored.
  static uint32_t own_place() {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    return token * 128 + (pack ^ lane() % 8) * 16;
  }
  static void load_rows(uint32_t (&a)[4], uint32_t rows, int k) { load_matrices_transposed(a, rows + own_place() + k * 2048); }
  // store_values, to such places.
  template <class To> static void store_features(const Columns& sums, StoreBuffers<Element, OUT_BUFFERS>& buffers, const To& to, const int (&at)[4]) {
    buffers.open();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = pack_pair<Element>(sums[8 * k + 2 * i], sums[8 * k + 2 * i + 1]);
      store_matrices_transposed(buffers.current() + own_place() + k * 2048, r);
    }
    buffers.send(true, static_cast<Element*>(nullptr), 0, 0, 0, [&](uint32_t from) { store_tile(to, at, from); });
  }
$else
  // 64 features of 16 tokens, by tokens, as a left factor.
  static void load_rows(uint32_t (&a)[4], uint32_t rows, int k) {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    load_matrices_transposed(a, rows + token * 128 + (pack ^ token % 8) * 16 + k * 2048);
  }
$end

  static void add_to_state(Column& state, int box, const Columns& taken, float base, float rest) {
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) {
      float& x = state[CHUNK / 2 * box + i];
      x = x * base + (x * rest + taken[i]);
    }
  }

  // Elements a number of a state as it is read, and of what it takes in.
  static constexpr int READ = !FLOWS ? 1 : ${dual ? 'READ_PARTS' : precise ? '3' : '2'}, WRITTEN = ${dual ? 'FLOWS ? WRITTEN_PARTS : 2' : precise ? 'FLOWS ? 3 : 2' : '2'};

  // x and y as elements, and what rounding took from them, likewise.
  template <int PARTS> static void split(uint32_t (&parts)[PARTS][4], int i, float x, float y) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      parts[part][i] = pack_pair<Element>(x, y);
      if (part + 1 < PARTS) x -= low_of(parts[part][i]), y -= high_of(parts[part][i]);
    }
  }

  // Starts the products by which the state takes in a chunk's rows times `written`.
  void take_in(Columns& taken, const uint32_t (&written)[4][WRITTEN][4], uint32_t stage, int box) const {
    const uint64_t rows = row_major<128>(at.read(stage) + box * BOX, CHUNK);
    keep_in_place(taken);
    wgmma_fence();
#pragma unroll
    for (int part = WRITTEN - 1; part >= 0; --part)  // smaller ones first: matrix instructions round down
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, true>(taken, written[k][part], moved(rows, k * 2048), part < WRITTEN - 1 || k > 0);
    wgmma_commit();
  }

  // What tokens read of the state, to memory: `sums` times the rows that are met, added up over the warp's features.
  void put_flows(const Columns& sums, uint32_t stage, int chunk) const {
    float* to = flows.row(chunk, (job.back ? LEFT_ROWS : READ_ROWS) + 4 * part + warp() % 4);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t met[4];
      load_rows(met, at.met(stage, part), j / 2);
      float x[4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float* own = sums + 4 * (j + n);
        x[2 * n] = own[0] * low_of(met[2 * n]) + own[2] * low_of(met[2 * n + 1]);
        x[2 * n + 1] = own[1] * high_of(met[2 * n]) + own[3] * high_of(met[2 * n + 1]);
      }
      store_token_sums(x, to, j);
    }
  }

  // Starts sums = what a chunk's readers read of the state. What rounding takes from it comes first, as matrix instructions round down; the
  // next numbers' elements are made while products of those before go on.
  void read(Columns& sums, const Column& state, uint32_t stage) const {
    const uint64_t rows = depth_major<128>(at.readers(stage));
    const auto multiply = [&](const uint32_t (&a)[4], int k, bool add) { wgmma<Element, CHUNK>(sums, a, moved(rows, k / 4 * BOX + k % 4 * 32), add); };
    uint32_t seen[SLICES][READ][4];
    keep_in_place(sums);
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) split(seen[k], i, state[8 * k + 2 * i], state[8 * k + 2 * i + 1]);
      ${dual ? 'if constexpr (MEETS) values.put_state(seen[k][0], k);' : ''}
      if constexpr (READ == 1) continue;
      if (k > 1) wgmma_wait<1>();
      wgmma_fence();
#pragma unroll
      for (int part = READ - 1; part > 0; --part) multiply(seen[k][part], k, k > 0 || part < READ - 1);
      wgmma_commit();
    }
$if dual
    if constexpr (MEETS) {
      values.all_put();
      wgmma_fence();
      values.read(sums, rows, READ > 1);
      wgmma_commit();
      return;
    }
$end
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < SLICES; ++k) multiply(seen[k][0], k, READ > 1 || k > 0);
    wgmma_commit();
  }
  // Starts sums += what they read in the chunk.
  void read_pairs(Columns& sums, uint32_t stage, uint32_t slot) const {
    keep_in_place(sums);
    wgmma_fence();
    multiply_values_by_rows(sums, at.written(stage, part), at.pairs(slot));
    wgmma_commit();
  }
  // Rows that are written, by tokens, each times a factor.
  void prepare(uint32_t (&written)[4][WRITTEN][4], const float* factors, uint32_t stage) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t rows[4];
      load_rows(rows, at.written(stage, part), k);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Pack<float, 2> f = load_pack<2>(factors + 16 * k + lane() % 4 * 2 + i / 2 * 8);
        split(written[k], i, low_of(rows[i]) * (f.at[0] * job.write_scale), high_of(rows[i]) * (f.at[1] * job.write_scale));
      }
    }
  }

  // What is read of the state, scaled; its flows to memory.
  void finish_read(Columns& sums, const Gates& gates, const float* reading, uint32_t stage, int chunk) const {
    scale_by_token(sums, reading, job.read_scale);
    if constexpr (FLOWS) put_flows(sums, stage, chunk);
    ${dual ? 'if constexpr (MEETS) scale_by_token(sums, gates.beta, 1);' : ''}
  }

  // A chunk's rows of the gradient, and the state after it. In between, products that are started go on while other numbers are made ready.
  // store(sums), store_x(sums): on their way to memory.
  template <class Store${dual ? ', class StoreX' : ''}> void compute(Column& state, uint32_t stage, uint32_t slot, int chunk, Store store${dual ? ', StoreX store_x' : ''}) const {
    const Gates& gates = at.gates(memory, stage);
    const float *reading = job.back ? gates.after : gates.before, *writing = job.back ? gates.before : gates.after;
    Columns sums, taken;
    uint32_t written[4][WRITTEN][4];
    read(sums, state, stage);
    prepare(written, writing, stage);
    wgmma_wait<0>();
    keep_in_place(sums);
    finish_read(sums, gates, reading, stage, chunk);
    take_in(taken, written, stage, 0);
    read_pairs(sums, stage, slot);
    wgmma_wait<1>();
    keep_in_place(taken);
    add_to_state(state, 0, taken, gates.base, gates.rest);
    if constexpr (BOXES > 1) take_in(taken, written, stage, 1);
    wgmma_wait<BOXES - 1>();
    keep_in_place(sums);
    store(sums);
    ${dual ? 'if constexpr (MEETS) values.start(sums, stage);' : ''}
    if constexpr (BOXES > 1) {
      wgmma_wait<${dual ? 'MEETS' : '0'}>();
      keep_in_place(taken);
      add_to_state(state, 1, taken, gates.base, gates.rest);
    }
    ${dual ? 'if constexpr (MEETS) values.finish(sums, gates, stage, slot, store_x);' : ''}
  }

  // The state before a chunk, or after the last, kept for its gradient.
  void keep_for_gradient(const Column& state, int chunk) const {
    if (!FLOWS || MEETS || !kept.meets(chunk)) return;
    float* to = kept.state(chunk, part) + ${not dual and precise ? 'keep_here(thread_x())' : 'thread_x()'} % WARPGROUP * 4;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
      store_pack(to + i * WARPGROUP * 4, Pack<float, 4>{state[4 * i], state[4 * i + 1], state[4 * i + 2], state[4 * i + 3]});
  }
  // The product of a gradient with the state that was kept.
  void meet(const Column& state, int chunk) const {
    if (!MEETS || !kept.meets(chunk)) return;
    const float* from = kept.state(chunk, part) + ${not dual and precise ? 'keep_here(thread_x())' : 'thread_x()'} % WARPGROUP * 4;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i) {
      const Pack<float, 4> x = load_pack<4>(from + i * WARPGROUP * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum += state[4 * i + j] * x.at[j];
    }
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) sum += shuffle_xor(sum, mask);
    if (lane() == 0) kept.products_of(chunk)[4 * part + warp() % 4] = sum;
  }

  // `before`: the state before a segment that is not the first one met.
  void begin(Column& state, const View& first_state, const float* before) const {
    if (before) {
      before += (part * (${dual ? 'PLACES' : 'KEYS'} / 2) * WARPGROUP) + thread_x() % WARPGROUP * 4;
#pragma unroll
      for (int i = 0; i < KEYS / 8; ++i) {
        const Pack<float, 4> x = load_pack<4>(before + i * WARPGROUP * 4);
#pragma unroll
        for (int j = 0; j < 4; ++j) state[4 * i + j] = x.at[j];
      }
    } else {
      const StateInMemory from(first_state, stream, 64 * part + 16 * (warp() % 4), job.by_values, true);
      if (from.data) from.${dual ? 'template each<BOXES>' : 'each'}([&](int i, const float* x) { state[i] = *x; });
    }
  }

  static void keep(const Column& state, float* to, int part) {
    to += part * (${dual ? 'PLACES' : 'KEYS'} / 2) * WARPGROUP + thread_x() % WARPGROUP * 4;
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i)
      store_pack(to + i * WARPGROUP * 4, Pack<float, 4>{state[4 * i], state[4 * i + 1], state[4 * i + 2], state[4 * i + 3]});
  }
  // ends: the segment is the last one met.
  void run(const View& first_state, const View& last_state, const float* before, bool ends) const {
    Column state = {};
    begin(state, first_state, before);
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.out(part), 1 + part};
    Turn<STAGES> turn;
    Turn<PAIR_SLOTS> slot;
#pragma unroll 1
    for (int step = 0; step < stream.steps; ++step, turn.next(), slot.next()) {
      const int chunk = stream.chunk_of(step, job.back);
      keep_for_gradient(state, chunk);
      meet(state, chunk + 1);
      barrier_wait_all(at.full(turn.at), turn.parity);
      barrier_wait_all(at.weighed(slot.at), slot.parity);
$if dual
      if constexpr (MEETS) barrier_wait_all(at.state_taken(), step % 2 ^ 1);
$end
$if packed
      const auto store = [&](const Columns& sums) {
        const PackedBox to = job.out.box(64 * part, stream.head, chunk * CHUNK);
        ${not dual and precise ? 'store_features' : 'store_values'}(sums, buffers, to.map, to.at);
      };
$else
      const auto store = [&](const Columns& sums) { ${not dual and precise ? 'store_features' : 'store_values'}(sums, buffers, job.out, {64 * part, stream.head, chunk * CHUNK, stream.sequence}); };
$end
$if dual
      const auto store_x = [&](const Columns& sums) { values.store(sums, buffers, {64 * part, stream.head, chunk * CHUNK, stream.sequence}); };
      compute(state, turn.at, slot.at, chunk, store, store_x);
$else
      compute(state, turn.at, slot.at, chunk, store);
$end
      sync_warp();
      if (lane() == 0) {
        ${dual ? 'if constexpr (MEETS) barrier_arrive(at.state_taken());' : ''}
        barrier_arrive(at.empty(turn.at));
        barrier_arrive(at.taken(slot.at));
      }
    }
    buffers.finish();
    if (!ends) return;
    keep_for_gradient(state, stream.chunks);
    const StateInMemory after(last_state, stream, 64 * part + 16 * (warp() % 4), job.by_values, job.ends);
    if (after.data) after.${dual ? 'template each<BOXES>' : 'each'}([&](int i, const float* to) { *const_cast<float*>(to) = state[i]; });
  }
};
