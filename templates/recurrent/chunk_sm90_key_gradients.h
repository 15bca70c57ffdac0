// Hopper vocabulary of the chunked recurrence's gradient with gates of keys: the entry that computes the gradients of one chunk's tokens;
// chunk_key_gradients.h says how. Here products with states are on wgmma: a warpgroup has what queries read and gradients of values, another what keys
// gave and pairs of tokens. Part of backward.chunk_keys.sm90.cu.
#pragma once

constexpr int STEP = 32, VALUE_STEPS = 128 / STEP, GRADIENT_STAGES = 2;
#include "recurrent/chunk_sm90_token_products.h"

constexpr int SUM_PITCH = KEYS + 4, SUMS_BYTES = CHUNK * SUM_PITCH * 4;  // floats of a row; a row of each token
constexpr int THREADS = 2 * WARPGROUP, WARPS = THREADS / WARP, OWN_KEYS = 2, KEY_THREADS = KEYS / OWN_KEYS;
constexpr bool LOADS_AHEAD = true, CLOSES_LATE = true, MORE_SUMS = false;
constexpr int GROUPS = 1, THROUGH_GROUPS = THREADS / (KEYS / 2);
enum Role { OF_QUERIES, OF_KEYS };

struct alignas(16) KeyFlows {
  float leaves[PARTS][KEYS];    // what a part's gates leave
  float left[PARTS][KEYS];      // what the part's keys give to the end of it, of what flows into the state after the chunk
  float change[PARTS][KEYS];    // sums of q dq - k dk
  float through[GROUPS][KEYS];  // products of the states before and of the gradient after the chunk
  float token_gates[CHUNK], gates[WARPS];  // logs, and sums of gradients
  Norms norms;
};

// Places in shared memory: in the loop over values keys that are left after the chunk and weights of pairs, as boxes, and stages, each some values of both
// states, of out's gradients and of values; after it queries and keys, whose places queries times p take, in pieces, and
// keys times r; products of different parts; what threads add to `through`. At last queries and keys once more, sums, products of pairs within parts.
struct At {
  static constexpr int KEYS_AFTER = 0, BOX_BYTES = CHUNK * 128, WEIGHTS = KEYS_AFTER + BOXES * BOX_BYTES, STAGES_AT = WEIGHTS + BOX_BYTES;
  static constexpr int STEP_BOX = CHUNK * STEP * 2, STEP_STATE_BOX = STEP * 128, STATE = BOXES * STEP_STATE_BOX;
  static constexpr int AFTER = PIECES * STATE, DOUT = 2 * AFTER, VALUES = DOUT + STEP_BOX, STAGE = VALUES + STEP_BOX;
  static constexpr int KEY_ROWS = KeyTile::BYTES, READ = 0, READ_KEYS = READ, KEPT = 2 * KeyTile::BYTES, FLOWS_OF_PAIRS = KEPT + PIECES * KeyTile::BYTES;
  static constexpr int THROUGH = FLOWS_OF_PAIRS + PIECES * Square::BYTES, QUERY_SUMS = 2 * KeyTile::BYTES, KEY_SUMS = QUERY_SUMS + SUMS_BYTES;
  static constexpr int READ_SUMS = KEY_SUMS, MORE_KEY_SUMS = KEY_SUMS, NEAR = KEY_SUMS + SUMS_BYTES;
  static constexpr int END_OF_STAGES = STAGES_AT + GRADIENT_STAGES * STAGE, END_OF_SUMS = NEAR + PARTS * PART * PART * 4;
  static constexpr int FLOWS = END_OF_SUMS > END_OF_STAGES ? END_OF_SUMS : END_OF_STAGES;
  static constexpr int BARRIERS = FLOWS + static_cast<int>(sizeof(KeyFlows)), END = BARRIERS + 16 * GRADIENT_STAGES + 8;
  static_assert(PIECES <= 2 && THROUGH + THROUGH_GROUPS * KEYS * 4 <= NEAR && STAGES_AT % 1024 == 0 && STAGE % 1024 == 0 && BARRIERS % 8 == 0);

  uint32_t first;
  uint32_t stage(int number) const { return first + STAGES_AT + number * STAGE; }
  uint32_t full(int stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(int stage) const { return full(stage) + 8; }
  uint32_t rows_full() const { return first + BARRIERS + 16 * GRADIENT_STAGES; }
};
static_assert(1024 + At::END <= ${shared}, "the spec has another size");
#include "recurrent/chunk_sm90_key_gradient_sums.h"
constexpr bool KEEPS_RESTS = true;
#include "recurrent/chunk_key_gradient_rows.h"
#include "recurrent/chunk_key_gradient_ends.h"

// By one thread: what a chunk's steps multiply.
struct GradientCopier {
  const At at;
$if packed
  const PackedRows douts, values;
  const TensorMap &kept, &keys_after, &weights;
$else
  const TensorMap &douts, &values, &kept, &keys_after, &weights;
$end
  int chunk, head, token, sequence;

  void copy_rows() const {
    barrier_arrive_expect(at.rows_full(), (BOXES + 1) * At::BOX_BYTES);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) load_tile(at.first + At::KEYS_AFTER + box * At::BOX_BYTES, keys_after, at.rows_full(), {64 * box, 0, 0, head, chunk});
    load_tile(at.first + At::WEIGHTS, weights, at.rows_full(), {0, 0, head, chunk});
  }
  void copy(int step) const {
    const uint32_t to = at.stage(step % GRADIENT_STAGES), full = at.full(step % GRADIENT_STAGES);
    barrier_arrive_expect(full, At::STAGE);
    load_tile(to + At::DOUT, douts, full, {STEP * step, head, token, sequence});
    load_tile(to + At::VALUES, values, full, {STEP * step, head, token, sequence});
    load_states(to, kept, full, step, head, chunk);
  }
};

// By a thread: products of some values of both states, added up by key.
static inline void add_through(const char* stage, float (&sums)[2]) {
  const int key = thread_x() % (KEYS / 2) * 2, group = thread_x() / (KEYS / 2);
  const char* from = stage + key / 64 * At::STEP_STATE_BOX + key % 8 * 2;
#pragma unroll
  for (int i = 0; i < STEP / THROUGH_GROUPS; ++i) {
    const int row = group + i * THROUGH_GROUPS, place = row * 128 + (key % 64 / 8 ^ row % 8) * 16;
    float x[2] = {}, y[2] = {};
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const uint32_t before = *reinterpret_cast<const uint32_t*>(from + piece * At::STATE + place);
      const uint32_t after = *reinterpret_cast<const uint32_t*>(from + At::AFTER + piece * At::STATE + place);
      x[0] += low_of(before), x[1] += high_of(before), y[0] += low_of(after), y[1] += high_of(after);
    }
    sums[0] += x[0] * y[0], sums[1] += x[1] * y[1];
  }
}

using ValueSums = float[STEP / 2];  // 64 tokens by a step's values

// sums = keys that are left times the gradient of the state after the chunk, and pairs^T times out's gradients.
static inline void multiply_values(ValueSums& sums, const At& at, uint32_t stage) {
  const uint64_t keys = depth_major<128>(at.first + At::KEYS_AFTER), after = depth_major<128>(stage + At::AFTER);
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k) wgmma<Element, STEP>(sums, moved(keys, k / 4 * At::BOX_BYTES + k % 4 * 32), moved(after, k / 4 * At::STEP_STATE_BOX + k % 4 * 32), k > 0);
  const uint64_t pairs = row_major<128>(at.first + At::WEIGHTS, CHUNK), douts = row_major<2 * STEP>(stage + At::DOUT, CHUNK);
#pragma unroll
  for (int k = 0; k < CHUNK / 16; ++k) wgmma<Element, STEP, true, true>(sums, moved(pairs, 2048 * k), moved(douts, 32 * STEP * k), true);
}

struct GradientSteps {
  const At at;
  const char* memory;
  const GradientCopier& copier;

  // Calls multiply(stage, more) for each step, more: not the first one; then use(step).
  template <bool COPIES, class Multiply, class Keep, class Use> void each_step(float (&through)[2], Multiply multiply, Keep keep_sums, Use use) const {
#pragma unroll 1
    for (int step = 0; step < VALUE_STEPS; ++step) {
      const int stage = step % GRADIENT_STAGES;
      barrier_wait_all(at.full(stage), step / GRADIENT_STAGES % 2);
      keep_sums();
      wgmma_fence();
      multiply(at.stage(stage), step > 0);
      wgmma_commit();
      if (GATED) add_through(memory + (at.stage(stage) - at.first), through);
      wgmma_wait<0>();
      keep_sums();
      sync_warp();
      if (lane() == 0) barrier_arrive(at.empty(stage));
      if (COPIES && thread_x() == OF_KEYS * WARPGROUP && step + GRADIENT_STAGES < VALUE_STEPS) {
        barrier_wait(at.empty(stage), step / GRADIENT_STAGES % 2);
        copier.copy(step + GRADIENT_STAGES);
      }
      sync_warp();
      use(step);
    }
  }
};

// A thread's gates of two neighbouring keys of a part, and how it weighs rows by what they leave, two numbers a word. (Rows of gradients are finished with
// keys apart: words of floats would meet in a bank.)
static_assert(!NORMED);
struct NeighbourKeys {
  float gates[PART][2];
  int part, key, first;

  NeighbourKeys() : part(thread_x() / (KEYS / 2)), key(thread_x() % (KEYS / 2) * 2), first(part * PART) {}
  void load(const View& view, int64_t type, const ChunkPlace& place) {
    if (!F32_GATES) return load_key_gates(gates, view, type, place.tokens, place.head, place.token + first, place.count, key, ${packed ? 'REVERSED' : 'false'});
$if packed
    const int64_t stride = REVERSED ? -view.strides[1] : view.strides[1], row = REVERSED ? place.tokens.end - 1 - place.token - first : place.tokens.first + place.token + first;
    const float* at = static_cast<const float*>(view.data) + place.tokens.row * view.strides[0] + row * view.strides[1] + place.head * view.strides[2] + key;
$else
    const float* at = static_cast<const float*>(view.data) + place.tokens.row * view.strides[0] + (place.tokens.first + place.token + first) * view.strides[1] + place.head * view.strides[2] + key;
$end
    const int there = place.count - place.token - first, keys = static_cast<int>(view.shape[3]) - key;
    if ((reinterpret_cast<uint64_t>(view.data) % 8 | (view.strides[0] | view.strides[1] | view.strides[2]) % 2) != 0) return load_key_gates(gates, at, ${packed ? 'stride' : 'view.strides[1]'}, there, keys);
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      Pack<float, 2> x = {};
      if (i < there && keys > 0) x = load_pack<2>(at);
      gates[i][0] = x.at[0], gates[i][1] = x.at[1];
      at += ${packed ? 'stride' : 'view.strides[1]'};
    }
  }
  void put(char* tile, int row, float x, float y) const {
    uint32_t* to = reinterpret_cast<uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2);
    const uint32_t word = pack_pair<Element>(x, y);
    *to = word;
    if (PIECES > 1) to[KeyTile::BYTES / 4] = rounding_of(x, y, word);
  }
  uint32_t word(const char* tile, int row) const { return *reinterpret_cast<const uint32_t*>(tile + (row * KeyTile::PITCH + key) * 2); }
  // Keys times r; then queries times p, which take the place of this thread's numbers.
  void weigh(char* memory, KeyFlows& flows) {
    float product[2] = {1, 1};
#pragma unroll
    for (int i = PART - 1; i >= 0; --i) {
      const int t = first + i;
      const uint32_t k = word(memory + At::KEY_ROWS, t);
      put(memory + At::KEPT, t, low_of(k) * product[0], high_of(k) * product[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) gates[i][j] = exp2_of(bounded_gate(gates[i][j] + flows.token_gates[t])), product[j] *= gates[i][j];
    }
    store_pack(&flows.leaves[part][key], Pack<float, 2>{product[0], product[1]});
    product[0] = product[1] = 1;
#pragma unroll
    for (int i = 0; i < PART; ++i) {
      const uint32_t q = word(memory, first + i);
#pragma unroll
      for (int j = 0; j < 2; ++j) product[j] *= gates[i][j];
      put(memory + At::READ, first + i, low_of(q) * product[0], high_of(q) * product[1]);
    }
  }
};

// Block number: a chunk of a head.
KERNEL(THREADS, 2) gradients(${parameters('gradients')}) {
  const ChunkPlace place(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, heads, q_view.shape[1]);
  const Tokens& tokens = place.tokens;
  const uint32_t head = place.head;
  const int token = place.token, count = place.count, group = uniform(warpgroup());
$if packed
  if (token >= count) {
    if (GATED && thread_x() == 0) gate_sums[block_x()] = 0;
    return;
  }
  const auto rows = [&](const TensorMap& map, CopyOf of) {
    const int sequence = static_cast<int>(place.sequence);
    return PackedRows::of(map, value_copies_map, of, copied_boxes, sequence, static_cast<int>(tokens.first), count, static_cast<int>(place.chunk) - token / CHUNK);
  };
$end
  const At at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = static_cast<char*>(__builtin_assume_aligned(dynamic_shared() + (at.first - shared_pointer(dynamic_shared())), 1024));
  const SharedPointer shared = at.first;
  KeyFlows& flows = *reinterpret_cast<KeyFlows*>(memory + At::FLOWS);
  const GradientCopier copier{at, ${packed ? 'rows(dout_map, DOUT_ROWS), rows(v_map, V_ROWS)' : 'dout_map, v_map'}, kept_states_map, keys_after_map, weights_map, static_cast<int>(place.chunk), static_cast<int>(head), token, static_cast<int>(tokens.row)};
  if (thread_x() == OF_KEYS * WARPGROUP) {
#pragma unroll
    for (int i = 0; i < GRADIENT_STAGES; ++i) {
      barrier_init(at.full(i), 1);
      barrier_init(at.empty(i), WARPS);
    }
    barrier_init(at.rows_full(), 1);
    fence_barrier_init();
    copier.copy(0);
    copier.copy_rows();
#pragma unroll 1
    for (int i = 1; i < GRADIENT_STAGES; ++i) copier.copy(i);
  }
  const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3]);
  const float scale = softmax_scale;
  if (warp() == 0) {
    float log_gates[2];
    TokenNumbers(g_view, g_type, tokens, head, ${packed ? 'REVERSED' : 'false'}).load(token, count, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), log_gates);
    flows.token_gates[2 * lane()] = log_gates[0], flows.token_gates[2 * lane() + 1] = log_gates[1];
  }
  sync_block();

  TokenKeys sums;
  float through[2] = {};
  const auto copy_rows = [&] {
    ChunkRows<Element, KEYS, THREADS>(q_view, tokens, head, heads, 0, keys, ${packed ? 'REVERSED' : 'false'}).copy_async({shared}, token, count);
    ChunkRows<Element, KEYS, THREADS>(k_view, tokens, head, heads, 0, keys, ${packed ? 'REVERSED' : 'false'}).copy_async({shared + At::KEY_ROWS}, token, count);
    copy_async_commit();
  };
  const Own own;
  OwnFactors factors{own, gk_view, gk_type, static_cast<int64_t>(head), tokens, token, count, ${packed ? 'REVERSED' : 'false'}, flows.token_gates, {}};
  const GradientSteps steps{at, memory, copier};
  if (group == OF_KEYS) {
    TokenPairs pairs;
    steps.template each_step<true>(through, [&](uint32_t stage, bool more) {
#pragma unroll
      for (int piece = PIECES - 1; piece >= 0; --piece) multiply_by_keys<STEP>(sums, stage + At::VALUES, stage + At::AFTER + piece * At::STATE, more || piece < PIECES - 1);
      multiply_rows_of(pairs, stage + At::DOUT, stage + At::VALUES, more);
    }, [&] { keep_in_place(sums), keep_in_place(pairs); }, [](int) {});
    sync_block();  // all are done with the last step, whose place others take
    copy_rows();
#pragma unroll
    for (int i = 0; i < CHUNK / 2; ++i) pairs[i] *= scale;
    put_flows(memory + At::FLOWS_OF_PAIRS, memory + At::NEAR, pairs);
  } else {
    const GradientRows dv(dv_view, nullptr, tokens, head, heads, ${packed ? 'REVERSED' : 'false'});
    ValueSums of_values;
    barrier_wait_all(at.rows_full(), 0);
    steps.template each_step<false>(through, [&](uint32_t stage, bool more) {
#pragma unroll
      for (int piece = PIECES - 1; piece >= 0; --piece) multiply_by_keys<STEP>(sums, stage + At::DOUT, stage + piece * At::STATE, more || piece < PIECES - 1);
      multiply_values(of_values, at, stage);
    }, [&] { keep_in_place(sums), keep_in_place(of_values); }, [&](int step) {
#pragma unroll
      for (int j = 0; j < STEP / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int t = token + token_row() + 8 * h, value = STEP * step + 8 * j + lane() % 4 * 2;
          if (t < count && value < values) dv.store_two(t, value, of_values[4 * j + 2 * h], of_values[4 * j + 2 * h + 1]);
        }
    });
    sync_block();  // as those of keys
    copy_rows();
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) sums[i] *= scale;
  }
  NeighbourKeys neighbours;
  neighbours.load(gk_view, gk_type, place);
  float* parts_of_through = reinterpret_cast<float*>(memory + At::THROUGH);
  if (GATED) store_pack(parts_of_through + 2 * thread_x(), Pack<float, 2>{through[0], through[1]});
  copy_async_wait<0>();
  sync_block();  // rows are there for all
  if (NORMED) {
    put_norms_of_rows(memory, flows.norms.q), put_norms_of_rows(memory + At::KEY_ROWS, flows.norms.k);
    sync_block();
  }
  uint32_t closed = 0;  // a bit of each number whose gate leaves nothing
  neighbours.weigh(memory, flows);
  sync_block();
  if (GATED && thread_x() < KEYS) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < THROUGH_GROUPS; ++i) sum += parts_of_through[i * KEYS + thread_x()];
    flows.through[0][thread_x()] = sum;
  }
  const int own_part = warp() % 4;
  if (group == OF_KEYS) {
    if (GATED) put_left(memory, flows, sums);
#pragma unroll 1
    for (int part = PARTS - 1; part > own_part; --part) {
      decay_sums(sums, flows.leaves[part]);
      add_part<true>(sums, shared + At::FLOWS_OF_PAIRS, shared + At::READ, part);
    }
  } else {
#pragma unroll 1
    for (int part = 0; part < own_part; ++part) {
      decay_sums(sums, flows.leaves[part]);
      add_part<false>(sums, shared + At::FLOWS_OF_PAIRS, shared + At::KEPT, part);
    }
  }
  sync_block();  // all are done with the rows: sums take their place, and queries and keys as they are
  copy_rows();
  factors.begin();
  put_sums(memory, group == OF_QUERIES ? At::QUERY_SUMS : At::KEY_SUMS, sums);
  copy_async_wait<0>();
  sync_block();
  finish_chunk(memory, flows, own, factors, closed,
               {place, {dq_view, nullptr, tokens, head, heads, ${packed ? 'REVERSED' : 'false'}}, {dk_view, nullptr, tokens, head, heads, ${packed ? 'REVERSED' : 'false'}}, dgk_view, dg_view, gk_type, g_type, keys, ${packed ? 'REVERSED' : 'false'}, gate_sums});
}
