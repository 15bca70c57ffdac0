// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: what the warpgroups that make gradients of two chunks do with sums
// in their registers. Part of backward.chunk_delta.sm90.cu.
#pragma once
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
struct GradientParts {
  const GradientPlaces at;
  char* memory;
  const float scale;

  static int own_row() { return 16 * (warp() % 4) + lane() / 4; }
  const ChunkNumbers& numbers(bool later) const { return *reinterpret_cast<const ChunkNumbers*>(memory + (at.numbers(later) - at.first)); }
  // What the later chunk, or the earlier one, leaves of a state.
  float left_by(bool later) const { return numbers(later).gates.base + numbers(later).gates.rest; }
  DeltaFlows& flows() const { return *reinterpret_cast<DeltaFlows*>(memory + (at.flows() - at.first)); }
  void release(uint32_t barriers) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(barriers));
  }
  // Calls use(stage) for what is copied of some values after the others, in a turn of the block's item number `number`.
  template <class Use> void each_step(int number, int turn, Use use) const {
    const int steps = steps_of(turn);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const uint32_t stage = step % GRADIENT_STAGES;
      barrier_wait_all(at.full(stage), stage_parity(number, turn, step));
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
  template <class Factor> void weigh(int turn, TokenPairs& pairs, bool itself, Factor factor) const {
    const ChunkNumbers &own = numbers(turn != EARLIER), &written = numbers(turn == LATER);
    const bool across = turn == ACROSS;
    const int t = own_row(), column = lane() % 4 * 2, end = across ? CHUNK : t + itself;
    float factors[2], high[2], low[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      high[h] = own.gates.high[t + 8 * h], low[h] = own.gates.low[t + 8 * h], factors[h] = factor(t + 8 * h);
      if (across) factors[h] *= own.gates.before[t + 8 * h];
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int first = 8 * j + column;
      const Pack<float, 2> from_high = load_pack<2>(written.gates.high + first), from_low = load_pack<2>(written.gates.low + first), after = load_pack<2>(written.gates.after + first);
      const float norms[2] = {written.key_norm(first), written.key_norm(first + 1)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float own_left = exp2_of((high[i / 2] - from_high.at[i % 2]) + (low[i / 2] - from_low.at[i % 2])), left = across ? after.at[i % 2] : own_left;
        const float weighed = pairs[4 * j + i] * (factors[i / 2] * norms[i % 2] * left);
        pairs[4 * j + i] = first + i % 2 < end + i / 2 * 8 ? weighed : 0;
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
  // Some columns at a time: fewer registers. `itself`: nothing flows between that token and the row's own, likewise of the row 8 on.
  // meanwhile(): while the first of them are multiplied; sums of columns are written after it.
  template <int TIMES, class Meanwhile>
  void add_flows(const TokenPairs& pairs, uint32_t left, uint32_t right, float (&rows)[2], float* columns, int itself, Meanwhile meanwhile) const {
    constexpr int COLUMNS = CHUNK / TIMES;
#pragma unroll
    for (int turn = 0; turn < TIMES; ++turn) {
      float products[COLUMNS / 2];
      keep_in_place(products);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < SLICES; ++k)
        wgmma<Element, COLUMNS>(products, moved(depth_major<128>(left), k / 4 * BOX + k % 4 * 32), moved(depth_major<128>(right + turn * COLUMNS * 128), k / 4 * BOX + k % 4 * 32), k > 0);
      wgmma_commit();
      if (turn == 0) meanwhile();
      wgmma_wait<0>();
      keep_in_place(products);
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; j += 2) {
        float x[4] = {};
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int s = COLUMNS * turn + 8 * (j + n) + lane() % 4 * 2 + i % 2;
            const float flow = s == itself + i / 2 * 8 ? 0 : pairs[COLUMNS / 2 * turn + 4 * (j + n) + i] * products[4 * (j + n) + i];
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
  void store(const TokenKeys& sums, uint32_t place, int barrier, const ${packed ? 'PackedRows' : 'TensorMap'}& to, const GradientItem& item, bool later) const {
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
      for (int box = 0; box < BOXES; ++box) store_tile(to, {64 * box, item.head, item.first_token(later), item.sequence}, place + box * BOX);
      store_commit();
    }
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
  void multiply_exchanged(uint32_t keys, float (&dots)[2]) const {
    const float* from = exchange();
    Pack<float, 4> x;
    each_word(keys, [&](int j, int h, uint32_t word) {
      if (h == 0) x = load_pack<4>(from + j * 4 * WARPGROUP);
      dots[h] = low_of(word) * x.at[2 * h] + (high_of(word) * x.at[2 * h + 1] + dots[h]);
    });
  }
  // What the state before the chunks holds for the gradient after them, of a step's values, of which a warp has 8: the products of values with
  // themselves, sums[lane() / 4 % 2] of the lanes that have_own(), of all products of values. Few at a time: matrix instructions round down.
  // Of 32 keys after the others, two by OF_READS and two by OF_WRITES: OF_QUERIES has most to do besides.
  template <Part PART> void add_through(uint32_t stage, float (&sums)[2]) const {
    constexpr int FIRST = PART == OF_READS ? 0 : 2, END = FIRST + 2;
    static_assert(2 * BOXES == 4 && PART != OF_QUERIES);
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
  // The warp's sum of them, of what both chunks leave.
  void put_through(const float (&sums)[2], float* to) const {
    float sum = has_own() ? (lane() / 4 % 2 ? sums[1] : sums[0]) * left_by(true) * left_by(false) : 0;
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) sum += shuffle_xor(sum, mask);
    if (lane() == 0) to[warp() % 4] = sum;
  }
};

