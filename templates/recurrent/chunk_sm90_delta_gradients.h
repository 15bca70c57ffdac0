// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: the entry that computes the gradients of chunks' queries, keys,
// gates and betas, of the states that were kept. Part of backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_delta_places.h"
#include "recurrent/chunk_sm90_delta_gates.h"

// By one thread: of 32 values after the others what is multiplied, and a chunk's rows.
struct GradientCopier {
  const GradientPlaces at;
  const TensorMap &queries, &keys, &douts, &kept, &written;
  const ChunkNumbers* numbers;
  uint32_t chunk_parity = 1;

  uint32_t open(uint32_t barriers, uint32_t parity, uint32_t bytes) const {
    barrier_wait(at.empty(barriers), parity);
    barrier_arrive_expect(at.full(barriers), bytes);
    return at.full(barriers);
  }
  void run(const GradientItem& item) {
#pragma unroll 1
    for (int step = 0; step < VALUE_STEPS; ++step) {
      const uint32_t stage = step % GRADIENT_STAGES, full = open(stage, step / GRADIENT_STAGES % 2 ^ 1, GRADIENT_STAGE);
      load_tile(at.dout(stage), douts, full, {STEP * step, item.head, item.token, item.sequence});
#pragma unroll
      for (int i = 0; i < WRITTEN_PARTS + PARTS; ++i) load_tile(at.written(stage, i), written, full, {STEP * step, 0, i, item.head, item.chunk});
#pragma unroll
      for (int part = 0; part < 2 * PARTS; ++part)
#pragma unroll
        for (int box = 0; box < BOXES; ++box)
          load_tile(at.before(stage, part) + box * STEP_STATE_BOX, kept, full, {64 * box, STEP * step, part, item.head, item.chunk});
      if (step == 2) copy_rows(item);
    }
  }
  // Late: their place is free when the chunk before is done, and what is copied meanwhile must not wait for that.
  void copy_rows(const GradientItem& item) {
    const uint32_t full = open(ROWS, chunk_parity, 4 * BOX + NUMBERS_BYTES);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      const int from[4] = {64 * box, item.head, item.token, item.sequence};
      load_tile(at.queries() + box * BOX, queries, full, from);
      load_tile(at.keys() + box * BOX, keys, full, from);
    }
    load_bytes(at.numbers(), numbers + item.number, NUMBERS_BYTES, full);
    chunk_parity ^= 1;
  }
};

#include "recurrent/chunk_sm90_token_products.h"

// sums += pairs^T rows: weights of pairs of tokens, t by s, in shared memory, times keys of t.
static inline void add_pairs_back(TokenKeys& sums, uint32_t pairs, uint32_t rows) {
  const uint64_t a = row_major<128>(pairs, CHUNK), b = row_major<128>(rows, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<Element, KEYS, true, true>(sums, moved(a, 2048 * k), moved(b, 2048 * k), true);
}

// A warpgroup of three: OF_QUERIES has gradients of queries; OF_READS what keys read (gradients of what tokens write read the state by them);
// OF_WRITES what keys wrote.
enum Part { OF_QUERIES, OF_READS, OF_WRITES };
struct GradientMaker {
  const GradientPlaces at;
  char* memory;
  const float scale;

  static int own_row() { return 16 * (warp() % 4) + lane() / 4; }
  const ChunkNumbers& numbers() const { return *reinterpret_cast<const ChunkNumbers*>(memory + (at.numbers() - at.first)); }
  DeltaFlows& flows() const { return *reinterpret_cast<DeltaFlows*>(memory + (at.flows() - at.first)); }
  void release(uint32_t barriers) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(barriers));
  }
  // Calls use(stage) for what is copied of some values after the others.
  template <class Use> void each_step(Use use) const {
#pragma unroll 1
    for (uint32_t step = 0; step < VALUE_STEPS; ++step) {
      const uint32_t stage = step % GRADIENT_STAGES;
      barrier_wait_all(at.full(stage), step / GRADIENT_STAGES % 2);
      use(stage);
      release(stage);
    }
  }

  // Calls use(j, h, word) for each two features of rows in boxes, a word, that the lane has sums of, of 8 features number j; h: which of its
  // two rows.
  template <class Use> void each_word(uint32_t rows, Use use) const {
    const uint32_t from = rows - at.first + own_row() * 128 + lane() / 4 * 16 + lane() % 4 * 4;  // of 16 bytes number j of a row: number j ^ row % 8
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) use(j, h, *reinterpret_cast<const uint32_t*>(memory + (from ^ j % 8 * 16) + j / 8 * BOX + h * 1024));
      if (j % 4 == 3) sync_warp();  // one slice after another, for the sake of registers
    }
  }
  static float row_sum(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
  }
  // Adds products of each row with its sums.
  void multiply_with(uint32_t rows, const TokenKeys& sums, float (&dots)[2]) const {
    each_word(rows, [&](int j, int h, uint32_t word) { dots[h] = low_of(word) * sums[4 * j + 2 * h] + (high_of(word) * sums[4 * j + 2 * h + 1] + dots[h]); });
  }
  template <class Factor> static void scale_rows(TokenKeys& sums, Factor factor) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float f = factor(own_row() + 8 * h);
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j) sums[4 * j + 2 * h] *= f, sums[4 * j + 2 * h + 1] *= f;
    }
  }
  // The part of a row's gradient along the row does not change its norm: it is taken away.
  void take_along(uint32_t rows, TokenKeys& sums, const float* norms) const {
    float along[2] = {};
    multiply_with(rows, sums, along);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float norm = norms[own_row() + 8 * h];
      along[h] = row_sum(along[h]) * norm * norm;
    }
    each_word(rows, [&](int j, int h, uint32_t word) { sums[4 * j + 2 * h] -= low_of(word) * along[h], sums[4 * j + 2 * h + 1] -= high_of(word) * along[h]; });
  }

  // Pairs of token t with s before it (or with itself) times what is left at t of what s wrote, t's factor and the key's of s; the others are 0.
  // Without branches: all pairs are weighed.
  template <class Factor> void weigh(TokenPairs& pairs, bool itself, Factor factor) const {
    const ChunkNumbers& own = numbers();
    const int t = own_row(), column = lane() % 4 * 2;
    const float high[2] = {own.gates.high[t], own.gates.high[t + 8]}, low[2] = {own.gates.low[t], own.gates.low[t + 8]}, factors[2] = {factor(t), factor(t + 8)};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const Pack<float, 2> from_high = load_pack<2>(own.gates.high + 8 * j + column), from_low = load_pack<2>(own.gates.low + 8 * j + column);
      const float norms[2] = {own.key_norm(8 * j + column), own.key_norm(8 * j + column + 1)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = exp2_of((high[i / 2] - from_high.at[i % 2]) + (low[i / 2] - from_low.at[i % 2]));
        const float weighed = pairs[4 * j + i] * (factors[i / 2] * norms[i % 2] * left);
        pairs[4 * j + i] = 8 * j + column + i % 2 < t + i / 2 * 8 + itself ? weighed : 0;
      }
    }
  }
  // Of each of the lane's two rows the pair of the token with itself, in the lane that has it.
  static bool has_own() { return lane() % 4 == lane() / 4 / 2; }
  static float own_pair(const TokenPairs& pairs, int h) {
    float found = 0;
#pragma unroll
    for (int j = h; j < 8; j += 2)
      if (j / 2 == warp() % 4) found = lane() / 4 % 2 ? pairs[4 * j + 2 * h + 1] : pairs[4 * j + 2 * h];
    return found;
  }
  // What flows between pairs, `left` rows times `right` rows, goes to the sums of rows and, by way of flows, of columns.
  // In so many turns: fewer registers. ITSELF: besides, there are pairs of a token with itself, between which nothing flows.
  template <int TURNS, bool ITSELF> void add_flows(const TokenPairs& pairs, uint32_t left, uint32_t right, float (&rows)[2], float* columns) const {
    constexpr int COLUMNS = CHUNK / TURNS;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      float products[COLUMNS / 2];
      keep_in_place(products);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < SLICES; ++k)
        wgmma<Element, COLUMNS>(products, moved(depth_major<128>(left), k / 4 * BOX + k % 4 * 32), moved(depth_major<128>(right + turn * COLUMNS * 128), k / 4 * BOX + k % 4 * 32), k > 0);
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(products);
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; j += 2) {
        float x[4] = {};
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int t = own_row() + i / 2 * 8, s = COLUMNS * turn + 8 * (j + n) + lane() % 4 * 2 + i % 2;
            const float flow = ITSELF && s == t ? 0 : pairs[COLUMNS / 2 * turn + 4 * (j + n) + i] * products[4 * (j + n) + i];
            rows[i / 2] += flow, x[2 * n + i % 2] += flow;
          }
        store_token_sums(x, columns, COLUMNS / 8 * turn + j);
      }
    }
  }
  // To shared memory, for this warpgroup's products (after `barrier`, its own) and those of the third.
  static void put_pairs(const TokenPairs& pairs, uint32_t to, int barrier) {
    uint32_t words[4][4];
    to_factor(words, pairs);
    const StoreBuffers<Element, 1> box{to, 0};
#pragma unroll
    for (int j = 0; j < 8; j += 2) box.put<false>(j, words[j / 2]);
    fence_async();
    sync_some(barrier, WARPGROUP);
  }
  void put_rows(const float (&rows)[2], float* to) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = row_sum(rows[h]);
      if (lane() % 4 == 0) to[own_row() + 8 * h] = sum;
    }
  }
  // Rows of a gradient on their way. `barrier`: the warpgroup's own.
  void store(const TokenKeys& sums, uint32_t place, int barrier, const TensorMap& to, const GradientItem& item) const {
    if (thread_x() % WARPGROUP == 0) store_wait_read<0>();
    sync_some(barrier, WARPGROUP);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      const StoreBuffers<Element, 1> out{place + box * BOX, 0};
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float* x = sums + 32 * box + 4 * j;
        const uint32_t r[4] = {pack_pair<Element>(x[0], x[1]), pack_pair<Element>(x[2], x[3]), pack_pair<Element>(x[4], x[5]), pack_pair<Element>(x[6], x[7])};
        out.put<false>(j, r);
      }
    }
    fence_async();
    sync_some(barrier, WARPGROUP);
    if (thread_x() % WARPGROUP == 0) {
#pragma unroll
      for (int box = 0; box < BOXES; ++box) store_tile(to, {64 * box, item.head, item.token, item.sequence}, place + box * BOX);
      store_commit();
    }
  }

  void of_queries(const GradientItem& item, const TensorMap& to, uint32_t chunk_parity) const {
    TokenKeys dq = {};
    TokenPairs pairs = {};
    float through[2] = {};
    each_step([&](uint32_t stage) {
      keep_in_place(dq);
      keep_in_place(pairs);
      wgmma_fence();
#pragma unroll
      for (int i = WRITTEN_PARTS - 1; i >= 0; --i) multiply_rows_of(pairs, at.dout(stage), at.written(stage, i), true);
#pragma unroll
      for (int i = PARTS - 1; i >= 0; --i) multiply_by_keys<STEP>(dq, at.dout(stage), at.before(stage, i), true);
      wgmma_commit();
      if (GATED) add_through<OF_QUERIES>(stage, through);
      wgmma_wait<0>();
      keep_in_place(dq);
      keep_in_place(pairs);
    });
    barrier_wait_all(at.full(ROWS), chunk_parity);
    const ChunkNumbers& own = numbers();
    const Gates& gates = own.gates;
    scale_rows(dq, [&](int t) { return scale * gates.before[t] * own.query_norm(t); });
    weigh(pairs, true, [&](int t) { return scale * own.query_norm(t); });
    barrier_wait(at.meeting(PAIRS_FREE), chunk_parity);
    put_pairs(pairs, at.pairs(0), 3);
    barrier_arrive(at.meeting(PAIRS_THERE));
    if (GATED) {
      float rows[2] = {};
      barrier_wait(at.meeting(FLOWS_FREE), chunk_parity);
      multiply_with(at.queries(), dq, rows);
      add_flows<2, true>(pairs, at.queries(), at.keys(), rows, flows().read_here[warp() % 4]);
      put_rows(rows, flows().read[0]);
      put_through(through, flows().through[OF_QUERIES]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    keep_in_place(dq);
    wgmma_fence();
    multiply_by_keys<CHUNK>(dq, at.pairs(0), at.keys(), true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(dq);
$if normed
    take_along(at.queries(), dq, own.norms.q);
$end
    store(dq, at.out(0), 3, to, item);
    release(ROWS);
  }

  void of_reads(uint32_t chunk_parity) const {
    TokenKeys sums = {};
    TokenPairs pairs = {};
    float through[2] = {};
    each_step([&](uint32_t stage) {
      keep_in_place(sums);
      keep_in_place(pairs);
      wgmma_fence();
#pragma unroll
      for (int order = WRITTEN_PARTS - 1; order >= 0; --order)
#pragma unroll
        for (int i = 0; i < PARTS && i <= order; ++i)
          multiply_rows_of(pairs, at.gradient(stage, i), at.written(stage, order - i), true);
#pragma unroll
      for (int order = PARTS - 1; order >= 0; --order)
#pragma unroll
        for (int i = 0; i <= order; ++i) multiply_by_keys<STEP>(sums, at.gradient(stage, i), at.before(stage, order - i), true);
      wgmma_commit();
      if (GATED) add_through<OF_READS>(stage, through);
      wgmma_wait<0>();
      keep_in_place(sums);
      keep_in_place(pairs);
    });
    barrier_wait_all(at.full(ROWS), chunk_parity);
    const ChunkNumbers& own = numbers();
    const Gates& gates = own.gates;
    scale_rows(sums, [&](int t) { return -gates.before[t] * gates.beta[t] * own.key_norm(t); });
    barrier_wait(at.meeting(PAIRS_FREE), chunk_parity);
    float* to = exchange();
#pragma unroll
    for (int i = 0; i < KEYS / 8; ++i) store_pack(to + i * 4 * WARPGROUP, Pack<float, 4>{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]});
    const float own_pairs[2] = {own_pair(pairs, 0), own_pair(pairs, 1)};
    weigh(pairs, false, [&](int t) { return -gates.beta[t] * own.key_norm(t); });
    put_pairs(pairs, at.pairs(1), 4);
    barrier_arrive(at.meeting(PAIRS_THERE));
    if (GATED) {
      float rows[2] = {};
      barrier_wait(at.meeting(FLOWS_FREE), chunk_parity);
      if (has_own()) {
#pragma unroll
        for (int h = 0; h < 2; ++h) flows().beta[own_row() + 8 * h] = own_pairs[h] / gates.beta[own_row() + 8 * h];
      }
      add_flows<1, false>(pairs, at.keys(), at.keys(), rows, flows().read_here[4 + warp() % 4]);
      put_rows(rows, flows().read[1]);
      put_through(through, flows().through[OF_READS]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    release(ROWS);
  }

  void of_writes(const GradientItem& item, const TensorMap& to, uint32_t chunk_parity) const {
    TokenKeys dk = {};
    float through[2] = {};
    each_step([&](uint32_t stage) {
      keep_in_place(dk);
      wgmma_fence();
#pragma unroll
      for (int order = WRITTEN_PARTS - 1; order >= 0; --order)
#pragma unroll
        for (int i = 0; i < PARTS && i <= order; ++i)
          multiply_by_keys<STEP>(dk, at.written(stage, order - i), at.after(stage, i), true);
      wgmma_commit();
      if (GATED) add_through<OF_WRITES>(stage, through);
      wgmma_wait<0>();
      keep_in_place(dk);
    });
    barrier_wait_all(at.full(ROWS), chunk_parity);
    const ChunkNumbers& own = numbers();
    const Gates& gates = own.gates;
    scale_rows(dk, [&](int s) { return gates.after[s] * own.key_norm(s); });
    if (thread_x() % WARPGROUP == 0) store_wait_read<0>();  // its place is that of what is exchanged
    sync_warp();
    barrier_arrive(at.meeting(PAIRS_FREE));
    float left[2] = {}, read[2] = {};
    if (GATED) multiply_with(at.keys(), dk, left);
    barrier_wait(at.meeting(PAIRS_THERE), chunk_parity);
    keep_in_place(dk);
    wgmma_fence();
    add_pairs_back(dk, at.pairs(0), at.queries());
    add_pairs_back(dk, at.pairs(1), at.keys());
    multiply_by_keys<CHUNK>(dk, at.pairs(1), at.keys(), true);
    wgmma_commit();
    if (GATED) {
      multiply_exchanged(read);
      barrier_wait(at.meeting(FLOWS_FREE), chunk_parity);
      put_rows(left, flows().left);
      put_rows(read, flows().read_by_keys);
      put_through(through, flows().through[OF_WRITES]);
      barrier_arrive(at.meeting(FLOWS_THERE));
    }
    wgmma_wait<0>();
    keep_in_place(dk);
    add_exchanged(dk);
$if normed
    take_along(at.keys(), dk, own.norms.k);
$end
    store(dk, at.out(1), 9, to, item);
    release(ROWS);
  }

  float* exchange() const { return reinterpret_cast<float*>(memory + (at.exchange() - at.first)) + thread_x() % WARPGROUP * 4; }
  // Sums of the second warpgroup: added to sums; their products with keys.
  void add_exchanged(TokenKeys& sums) const {
    const float* from = exchange();
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j) {
      const Pack<float, 4> x = load_pack<4>(from + j * 4 * WARPGROUP);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[4 * j + i] += x.at[i];
    }
  }
  void multiply_exchanged(float (&dots)[2]) const {
    const float* from = exchange();
    Pack<float, 4> x;
    each_word(at.keys(), [&](int j, int h, uint32_t word) {
      if (h == 0) x = load_pack<4>(from + j * 4 * WARPGROUP);
      dots[h] = low_of(word) * x.at[2 * h] + (high_of(word) * x.at[2 * h + 1] + dots[h]);
    });
  }
  // What the state before the chunk holds for the gradient after it, of a step's values, of which a warp has 8: the products of values with
  // themselves, sums[lane() / 4 % 2] of the lanes that have_own(), of all products of values. Few at a time: matrix instructions round down.
  // Of 32 keys after the others, of which OF_READS, which has the least to do besides, takes two.
  template <Part PART> void add_through(uint32_t stage, float (&sums)[2]) const {
    constexpr int FIRST = PART == OF_READS ? 0 : PART == OF_QUERIES ? 2 : 3, END = PART == OF_READS ? 2 : FIRST + 1;
    static_assert(2 * BOXES == 4);
    const uint32_t row = warp() % 4 * 8 + lane() % 8, at_row = row * 128, pack = lane() / 8;
#pragma unroll
    for (int half = FIRST; half < END; ++half) {
      const uint32_t place = half / 2 * STEP_STATE_BOX + at_row + ((half % 2 * 4 + pack) ^ lane() % 8) * 16;
      uint32_t states[2][4] = {}, gradients[PARTS][4];
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        load_matrices(states[part], at.before(stage, part) + place);
        load_matrices(gradients[part], at.after(stage, part) + place);
      }
      float products[4] = {};  // with states, then with what rounding took from them
#pragma unroll
      for (int part = PARTS - 1; part >= 0; --part)  // smaller ones first
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
          const uint32_t a[4] = {states[0][k], states[1][k], states[0][k + 1], states[1][k + 1]};
          mma_16x8x16<Element>(products, a, gradients[part][k], gradients[part][k + 1]);
        }
      sums[0] += products[0] + products[2], sums[1] += products[1] + products[3];
    }
  }
  // The warp's sum of them, of what the chunk leaves.
  void put_through(const float (&sums)[2], float* to) const {
    const Gates& gates = numbers().gates;
    float sum = has_own() ? (lane() / 4 % 2 ? sums[1] : sums[0]) * (gates.base + gates.rest) : 0;
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) sum += shuffle_xor(sum, mask);
    if (lane() == 0) to[warp() % 4] = sum;
  }
};

// Blocks that stay: each has every grid-th chunk of a head.
KERNEL(4 * WARPGROUP, 1) gradients(${parameters('gradients')}) {
  const GradientPlaces at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) at.init();
  sync_block();
  const int items = static_cast<int>(chunks * heads), group = uniform(warpgroup()), steps = (items - static_cast<int>(block_x()) + static_cast<int>(grid_x()) - 1) / static_cast<int>(grid_x());
  const auto item_of = [&](int step) { return GradientItem(static_cast<int>(block_x()) + step * static_cast<int>(grid_x()), static_cast<int>(heads), static_cast<int>(sequences), static_cast<int>(q_view.shape[1])); };
  if (group == 3) {
    give_registers<32>();
    const int own = uniform(warp() % 4);
    if (own == 0 && lane() == 0) {
      GradientCopier copier{at, q_map, k_map, dout_map, kept_states_map, written_rows_map, reinterpret_cast<const ChunkNumbers*>(chunk_numbers)};
#pragma unroll 1
      for (int step = 0; step < steps; ++step) copier.run(item_of(step));
    }
    if (GATED && own == 1) {
      const DeltaFlows& flows = *reinterpret_cast<const DeltaFlows*>(memory + (at.flows() - at.first));
      barrier_arrive(at.meeting(FLOWS_FREE));
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const GradientItem item = item_of(step);
        const Tokens tokens(nullptr, sequences, item.sequence, item.count);
        float log_gates[2];
        TokenNumbers(g_view, g_type, tokens, item.head, false)
            .load(item.token, item.count, gamma_of(g_gamma_view, gamma_type, item.head, heads, layer_idx, num_layers), log_gates);
        barrier_wait(at.meeting(FLOWS_THERE), step % 2);
        const float sum = store_gate_gradients(flows, log_gates, GradientRow(dg_view, g_type, item.sequence, 0, item.head), dg_view.strides[1], item.token, item.count, is_given(dg_view));
        if (lane() == 0) gate_sums[item.number] = sum;
        const GradientRow beta_row(dbeta_view, beta_type, item.sequence, 0, item.head);
        for (int t = lane(); is_given(dbeta_view) && t < CHUNK && item.token + t < item.count; t += WARP) beta_row.store((item.token + t) * dbeta_view.strides[1], flows.beta[t]);
        sync_warp();
        barrier_arrive(at.meeting(FLOWS_FREE));
      }
    }
  } else {
    take_registers<160>();
    const GradientMaker maker{at, memory, static_cast<float>(softmax_scale)};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const GradientItem item = item_of(step);
      const uint32_t parity = step % 2;
      if (group == OF_QUERIES) maker.of_queries(item, dq_map, parity);
      else if (group == OF_READS) maker.of_reads(parity);
      else maker.of_writes(item, dk_map, parity);
    }
    if (thread_x() % WARPGROUP == 0) store_wait<0>();
  }
}
