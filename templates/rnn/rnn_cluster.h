// GPU vocabulary (Hopper): the entry of rnn's steps by clusters. A cluster has ROWS rows of the batch of a direction, and each of its
// blocks has all gates of SLICE features, whose weights stay in registers as operands A of mma_16x8x16. States go from block to block by
// stores into their shared memory, which a barrier there counts: no step passes through the L2 cache.
//
// Warp w has gates of eight features, group w % 4 of the slice, and sums over half w / 4 of all features; a thread has the same feature
// and the same two columns of each product in all gates. The two warps of a group swap sums, and each goes on with one of the two; of four
// rows the second column is empty, and the first warp alone goes on.
//
// States have two places, in turn. A block's barriers of step s are done when all warps of all blocks have sent it their states for it,
// which they do when they have read those of step s - 1: so what is sent behind that, for step s + 1, may lie where those of s - 1 lay.
#pragma once
#include "rnn/rnn_gates.h"
#include "rnn/rnn_state_in.h"

constexpr int BLOCKS = ${blocks}, ROWS = ${rows};
constexpr int WARPS = 8, THREADS = WARPS * WARP, GROUPS = 4, SLICE = 8 * GROUPS, HALF_BLOCKS = BLOCKS / 2;
constexpr bool BOTH = ROWS == 8;  // warps of a group go on with sums
constexpr int TILES = (GATES + 1) / 2;  // of 16 lines: two gates of eight features
constexpr uint32_t BLOCK_BYTES = ROWS * SLICE * 2, HALF_BYTES = HALF_BLOCKS * BLOCK_BYTES, STATE_BYTES = 2 * HALF_BYTES;
static_assert(BLOCKS % 2 == 0 && (ROWS == 8 || ROWS == 4));

static inline int group_of_warp() { return warp() % GROUPS; }
static inline int half_of_warp() { return warp() / GROUPS; }

// What a block keeps in shared memory.
struct ClusterPlaces {
  uint32_t first = shared_pointer(dynamic_shared());
  // States before a step: [block][group][row][feature], so that a warp sends rows side by side.
  uint32_t states(int step) const { return first + step % 2 * STATE_BYTES; }
  static uint32_t of(int block, int group, int row) { return ((block * GROUPS + group) * ROWS + row) * 16; }
  // Sums that a warp gives to the other of its group: of each lane, the gates' side by side.
  uint32_t swapped(int step, int half) const { return first + 2 * STATE_BYTES + (((step % 2 * 2 + half) * GROUPS + group_of_warp()) * WARP + lane()) * 16; }
  // Counts the states that half of the blocks send.
  uint32_t arrived(int step, int half) const { return first + 2 * STATE_BYTES + 4 * GROUPS * WARP * 16 + (step % 2 * 2 + half) * 8; }
  static constexpr uint32_t BYTES = 2 * STATE_BYTES + 4 * GROUPS * WARP * 16 + 32;
};
static_assert(ClusterPlaces::BYTES == ${steps_shared}, "the spec has another size");

static inline void send_16(uint32_t to, const uint32_t (&x)[4], uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
               : : "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier) : "memory");
}
static inline Pack<uint32_t, 4> load_16(uint32_t from) {
  Pack<uint32_t, 4> x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(from) : "memory");
  return x;
}
static inline void store_16(uint32_t to, const uint32_t (&x)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" : : "r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}

// The warp's weights. A lane l = 4 g + t has elements 8 t .. 8 t + 7 of each 32, as states come: the order is the same in both factors.
struct ClusterWeights {
  Pack<uint32_t, 4> of[HALF_BLOCKS][GATES];

  // lines: those of the thread's feature, a gate each, or null; features: how many elements a line has, a multiple of 8.
  void load(const Element* const (&lines)[GATES], int features) {
#pragma unroll
    for (int c = 0; c < HALF_BLOCKS; ++c) {
      const int k = (half_of_warp() * HALF_BLOCKS + c) * SLICE + lane() % 4 * 8;
#pragma unroll
      for (int g = 0; g < GATES; ++g)
        of[c][g] = lines[g] && k < features ? load_pack<4>(reinterpret_cast<const uint32_t*>(lines[g] + k)) : Pack<uint32_t, 4>{};
    }
  }
  uint32_t word(int c, int gate, int i) const { return gate < GATES ? of[c][gate < GATES ? gate : 0].at[i] : 0; }

  // sums[g][i]: of row 4 i + t, gate g: a product's columns are rows 0, 4, 1, 5, 2, 6, 3, 7, or 0, none, 1, none, ..
  void multiply(float (&sums)[2 * TILES][2], uint32_t states) const {
    float parts[2][TILES][4] = {};  // two, so that more products are under way
    const int odd = lane() / 4 % 2, row = 4 * odd + lane() / 8;
#pragma unroll
    for (int c = 0; c < HALF_BLOCKS; ++c) {
      Pack<uint32_t, 4> x = {};
      if (BOTH || odd == 0) x = load_16(states + ClusterPlaces::of(half_of_warp() * HALF_BLOCKS + c, lane() % 4, row));
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t a[4] = {word(c, 2 * m, i), word(c, 2 * m + 1, i), word(c, 2 * m, i + 1), word(c, 2 * m + 1, i + 1)};
          mma_16x8x16<Element>(parts[i / 2][m], a, x.at[i], x.at[i + 1]);
        }
    }
#pragma unroll
    for (int g = 0; g < 2 * TILES; ++g)
#pragma unroll
      for (int i = 0; i < 2; ++i) sums[g][i] = parts[0][g / 2][g % 2 * 2 + i] + parts[1][g / 2][g % 2 * 2 + i];
  }
};

// The sums of the row that this thread goes on with: its own and the other warp's.
static inline void swap_sums(float (&back)[GATES], const float (&sums)[2 * TILES][2], const ClusterPlaces& places, int step) {
  const int half = half_of_warp();
  uint32_t given[4] = {};
#pragma unroll
  for (int g = 0; g < GATES; ++g) {
    back[g] = BOTH && half ? sums[g][1] : sums[g][0];
    given[g] = __float_as_uint(!BOTH || half ? sums[g][0] : sums[g][1]);
  }
  if (BOTH || half == 1) store_16(places.swapped(step, half), given);
  // Where the second warp only gives, it may be a step ahead, since states of half of the blocks let it go on: barriers are two, in turn.
  const int barrier = 1 + step % 2 * GROUPS + group_of_warp();
  if (!BOTH && half == 1) return arrive_some(barrier, 2 * WARP);
  sync_some(barrier, 2 * WARP);
  const Pack<uint32_t, 4> other = load_16(places.swapped(step, 1 - half));
#pragma unroll
  for (int g = 0; g < GATES; ++g) back[g] += __uint_as_float(other.at[g]);
}

// A state of each of eight lanes 4 g + t, in the order of g, as words: the same in all eight.
static inline Pack<uint32_t, 4> gather_eight(float state) {
  __shared__ alignas(16) Element eight[WARPS][4][8];
  eight[warp()][lane() % 4][lane() / 4] = from_float<Element>(state);
  sync_warp();
  return load_pack<4>(reinterpret_cast<const uint32_t*>(eight[warp()][lane() % 4]));
}

// Eight states of a row to all blocks, each lane of the eight to some.
static inline void send_states(const ClusterPlaces& places, int step, int row, float state) {
  const int rank = cluster_rank();
  const Pack<uint32_t, 4> words = gather_eight(state);
#pragma unroll
  for (int first = 0; first < BLOCKS; first += 8) {
    const int to = first + lane() / 4;
    if (to < BLOCKS)
      send_16(address_in_block(places.states(step) + ClusterPlaces::of(rank, group_of_warp(), row), to), words.at,
              address_in_block(places.arrived(step, rank / HALF_BLOCKS), to));
  }
}

// Block (x): rank in a cluster; clusters are parts of the batch, direction after direction.
KERNEL(THREADS, 1) steps(${parameters('steps')}) {
  const int features = static_cast<int>(w_hh_view.shape[2]), tokens = static_cast<int>(x_view.shape[1]), batch = static_cast<int>(x_view.shape[0]);
  const int parts = (batch + ROWS - 1) / ROWS, part = block_x() / BLOCKS % parts, direction = block_x() / BLOCKS / parts;
  const int half = half_of_warp(), feature = cluster_rank() * SLICE + group_of_warp() * 8 + lane() / 4;
  const ClusterPlaces places;

  if (thread_x() == 0) {
    for (int i = 0; i < 4; ++i) barrier_init(places.arrived(i / 2, i % 2), 1);
    fence_barrier_init();
    for (int i = 0; i < 4; ++i) barrier_arrive_expect(places.arrived(i / 2, i % 2), HALF_BYTES);
  }
  for (int i = thread_x(); i < BLOCKS * SLICE / 2 * ROWS; i += THREADS) {  // states before the first step
    const int at = i % ROWS, row = part * ROWS + at, first = i / ROWS * 2;
    uint32_t word = 0;
    if (is_given(h0_view) && row < batch && first < features) {
      const float* const from = state_in(h0_view, direction, row, first);
      word = pack_pair<Element>(from[0], from[1]);
    }
    asm volatile("st.shared.u32 [%0], %1;" : : "r"(places.states(0) + ClusterPlaces::of(first / SLICE, first % SLICE / 8, at) + first % 8 * 2), "r"(word) : "memory");
  }
  ClusterWeights weights;
  const Element* lines[GATES];
  float biases[GATES + 1] = {};  // a GRU's last: of n, beside the state's product
  const auto bias = [&](const View& view, int gate) {
    return is_given(view) && feature < features ? to_float(static_cast<const Element*>(view.data)[direction * view.strides[0] + gate * features + feature]) : 0.0f;
  };
#pragma unroll
  for (int g = 0; g < GATES; ++g) {
    lines[g] = feature >= features ? nullptr
                                   : static_cast<const Element*>(w_hh_view.data) + direction * w_hh_view.strides[0] + (static_cast<int64_t>(g) * features + feature) * w_hh_view.strides[1];
    biases[g] = bias(b_ih_view, g) + (GRU && g == 2 ? 0.0f : bias(b_hh_view, g));
  }
  if (GRU) biases[GATES] = bias(b_hh_view, 2);
  weights.load(lines, features);

  // The thread's cell.
  const int row_here = 4 * half + lane() % 4, row = part * ROWS + row_here;
  const bool is_there = row_here < ROWS && feature < features && row < batch;
  const int length = !is_there ? 0 : lengths ? lengths[row] : tokens;
  float state = is_there && is_given(h0_view) ? *state_in(h0_view, direction, row, feature) : 0.0f;
  float memory = LSTM && is_there && is_given(c0_view) ? *state_in(c0_view, direction, row, feature) : 0.0f;
  const int64_t columns = dirs * GATES * features;
  const auto token_of = [&](int number) { return direction == 1 ? tokens - 1 - number : number; };
  float next[GATES] = {};
  const auto load_products = [&](int number) {
    if (number >= tokens || token_of(number) >= length) return;
    const float* from = keep(products) + (static_cast<int64_t>(row) * tokens + token_of(number)) * columns + direction * GATES * features + feature;
#pragma unroll
    for (int g = 0; g < GATES; ++g, from += features) next[g] = load_once<1>(from).at[0];
  };
  load_products(0);
  sync_cluster();

#pragma unroll 1
  for (int number = 0; number < tokens; ++number) {
    float in[GATES], sums[2 * TILES][2], back[GATES];
#pragma unroll
    for (int g = 0; g < GATES; ++g) in[g] = next[g] + biases[g];
    load_products(number + 1);
    if (number > 0) {
      barrier_wait_cluster(places.arrived(number, half), (number - 1) / 2 % 2);
      if (thread_x() % (GROUPS * WARP) == 0) barrier_arrive_expect(places.arrived(number, half), HALF_BYTES);
    }
    weights.multiply(sums, places.states(number));
    swap_sums(back, sums, places, number);
    if (row_here >= ROWS) continue;
    const int64_t token = token_of(number);
    const bool valid = token < length;
    if (valid) state = next_state(in, back, state, biases[GATES], memory);
    if (number + 1 < tokens) send_states(places, number + 1, row_here, state);
    if (is_there) {
      Element* const to = const_cast<Element*>(keep(static_cast<const Element*>(y_view.data)));
      to[row * y_view.strides[0] + token * y_view.strides[1] + direction * features + feature] = from_float<Element>(valid ? state : 0.0f);
    }
    if (KEPT > 0 && keeps && is_there) {
      float* const at = gates + ((static_cast<int64_t>(direction) * batch + row) * tokens + token) * KEPT * features + feature;
#pragma unroll
      for (int g = 0; g < KEPT; ++g) {
        const int gate = g < GATES ? g : 0;
        const float last = LSTM ? memory : back[GATES - 1] + biases[GATES], taken = g == KEPT - 1 ? last : in[gate] + (GRU && g == 2 ? 0.0f : back[gate]);
        at[g * features] = valid ? taken : 0.0f;
      }
    }
  }
  if (is_there) {
    *state_in(h_n_view, direction, row, feature) = state;
    if (LSTM && is_given(c_n_view)) *state_in(c_n_view, direction, row, feature) = memory;
  }
  sync_cluster();  // no block ends while another may send to it
}
