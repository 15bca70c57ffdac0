// Hopper vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: the entry that computes the gradients of one
// chunk's tokens; chunk_key_gradients.h says how. Here products with states are on wgmma: a warpgroup has what queries read, what keys read,
// what keys gave, or pairs of tokens. Part of backward.chunk_keys_delta.sm90.cu.
#pragma once

constexpr int STEP = 32, VALUE_STEPS = 128 / STEP, GRADIENT_STAGES = 3;
#include "recurrent/chunk_sm90_token_products.h"

constexpr int SUM_PITCH = KEYS + 8, SUMS_BYTES = CHUNK * SUM_PITCH * 4;  // floats of a row; a row of each token
constexpr int THREADS = 4 * WARPGROUP, WARPS = THREADS / WARP, OWN_KEYS = 1, KEY_THREADS = KEYS, GROUPS = THREADS / (KEYS / 2);
constexpr int RUNS = 2 * PARTS, RUN = CHUNK / RUNS;  // tokens of a thread in a chunk that is not steep (chunk_sm90_key_delta_flat.h)
constexpr bool LOADS_AHEAD = false, CLOSES_LATE = false, MORE_SUMS = true;
enum Role { OF_QUERIES, OF_READS, OF_KEYS, OF_PAIRS };
constexpr int COPIER = 3 * WARP;  // the thread of a warpgroup that copies

struct alignas(16) KeyFlows {
  float leaves[PARTS][KEYS];    // what a part's gates leave
  float left[PARTS][KEYS];      // what the part's keys give to the end of it, of what flows into the state after the chunk
  float change[PARTS][KEYS];    // sums of q dq - k dk
  float through[GROUPS][KEYS];  // products of the states before and of the gradient after the chunk
  float token_gates[CHUNK], gates[WARPS];  // logs, and sums of gradients
  Norms norms;
  float betas[CHUNK], of_betas[CHUNK];  // and gradients
  float itself[CHUNK];  // products of queries with what their own tokens write
  float whole[KEYS];    // what the chunk's gates leave
  float run_leaves[RUNS][KEYS], run_change[RUNS][KEYS];  // as `leaves` and `change`
  int steep[KEYS / WARP];  // of some of 32 keys the chunk leaves: too little for products of all pairs at once, 2; little (LEAST_OF_LASTING), 1

  bool is_steep() const { return ((steep[0] | steep[1] | steep[2] | steep[3]) & 2) != 0; }
  bool fades() const { return (steep[0] | steep[1] | steep[2] | steep[3]) != 0; }
};

// Places in shared memory. Stages, each some values of out's gradients, of what tokens write and of its gradients, by tokens, and of both states,
// share theirs with what comes after them (chunk_key_gradients.h): products of pairs within parts and of different parts; keys times r, and
// queries and keys times p; where these and products of different parts are, later sums of queries, keys, keys that read, and of keys once more.
struct At {
  static constexpr int KEY_ROWS = KeyTile::BYTES, STAGES_AT = 2 * KeyTile::BYTES;
  static constexpr int STEP_BOX = CHUNK * STEP * 2, STATE = STEP * 128, AFTER = PIECES * STATE, NEXT_KEYS = 2 * AFTER;  // of states 64 keys, all pieces of both
  static constexpr int DOUT = BOXES * NEXT_KEYS, WRITTEN = DOUT + STEP_BOX, WRITTEN_GRADIENTS = WRITTEN + WRITTEN_PIECES * STEP_BOX;
  static constexpr int STAGE = WRITTEN_GRADIENTS + PIECES * STEP_BOX;
  static constexpr int NEAR_BYTES = PARTS * PART * PART * 4, NEAR = STAGES_AT, NEAR_KEYS = NEAR + NEAR_BYTES, FLOWS_OF_PAIRS = NEAR_KEYS + NEAR_BYTES;
  static constexpr int FLOWS_OF_KEYS = FLOWS_OF_PAIRS + PIECES * Square::BYTES, KEPT = FLOWS_OF_KEYS + PIECES * Square::BYTES;
  static constexpr int READ = KEPT + PIECES * KeyTile::BYTES, READ_KEYS = READ + PIECES * KeyTile::BYTES;
  static constexpr int QUERY_SUMS = FLOWS_OF_PAIRS, KEY_SUMS = QUERY_SUMS + SUMS_BYTES, READ_SUMS = KEY_SUMS + SUMS_BYTES, MORE_KEY_SUMS = READ_SUMS + SUMS_BYTES;
  static constexpr int END_OF_STAGES = STAGES_AT + GRADIENT_STAGES * STAGE, END_OF_ROWS = READ_KEYS + PIECES * KeyTile::BYTES, END_OF_SUMS = MORE_KEY_SUMS + SUMS_BYTES;
  static constexpr int LATER = END_OF_ROWS > END_OF_SUMS ? END_OF_ROWS : END_OF_SUMS, FLOWS = LATER > END_OF_STAGES ? LATER : END_OF_STAGES;
  static constexpr int BARRIERS = FLOWS + static_cast<int>(sizeof(KeyFlows)), END = BARRIERS + 16 * GRADIENT_STAGES;

  uint32_t first;
  uint32_t stage(int number) const { return first + STAGES_AT + number * STAGE; }
  uint32_t full(int stage) const { return first + BARRIERS + 16 * stage; }
  uint32_t empty(int stage) const { return full(stage) + 8; }
};
static_assert(1024 + At::END <= ${shared} && At::STAGES_AT % 1024 == 0 && At::BARRIERS % 8 == 0, "the spec has another size");

#include "recurrent/chunk_sm90_key_gradient_sums.h"
constexpr bool KEEPS_RESTS = false;
#include "recurrent/chunk_key_gradient_rows.h"
#include "recurrent/chunk_sm90_key_delta_flat.h"
#include "recurrent/chunk_key_gradient_ends.h"

// By one thread: what a chunk's steps multiply.
struct GradientCopier {
  const At at;
$if packed
  const PackedRows douts;
  const TensorMap &kept, &written;
$else
  const TensorMap &douts, &kept, &written;
$end
  int chunk, head, token, sequence;

  void copy(int step) const {
    const uint32_t to = at.stage(step % GRADIENT_STAGES), full = at.full(step % GRADIENT_STAGES);
    barrier_arrive_expect(full, At::STAGE);
    load_tile(to + At::DOUT, douts, full, {STEP * step, head, token, sequence});
    load_tile(to + At::WRITTEN, written, full, {STEP * step, 0, 0, head, chunk});
#pragma unroll
    for (int box = 0; box < BOXES; ++box) load_tile(to + box * At::NEXT_KEYS, kept, full, {64 * box, STEP * step, 0, head, chunk});
  }
};

// What is done of each step beside products.
struct StepWork {
  const At at;
  char* memory;
  const GradientCopier& copier;
  const GradientRows dv;
  int token, count, values;
  const float beta;  // of the token whose values the thread stores

  // By a thread: products of both states, added up by key.
  void add_through(int stage, float (&sums)[2]) const {
    const int key = thread_x() % (KEYS / 2) * 2, group = thread_x() / (KEYS / 2);
    const char* from = memory + (at.stage(stage) - at.first) + key / 64 * At::NEXT_KEYS + key % 8 * 2;
#pragma unroll
    for (int i = 0; i < STEP / GROUPS; ++i) {
      const int row = group + i * GROUPS, place = row * 128 + (key % 64 / 8 ^ row % 8) * 16;
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
  // A value's gradient is beta times that of what its token writes: four a thread.
  void store_values(int step) const {
    static_assert(4 * THREADS == CHUNK * STEP && STEP / 4 == THREADS / CHUNK);
    const int row = thread_x() / (STEP / 4), column = thread_x() % (STEP / 4) * 4;
    const char* from = memory + (at.stage(step % GRADIENT_STAGES) - at.first) + At::WRITTEN_GRADIENTS + row * 64 + (column / 8 ^ row / 2 % 4) * 16 + column % 8 * 2;
    float x[4] = {};
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const auto some = load_pack<4>(reinterpret_cast<const Element*>(from + piece * At::STEP_BOX));
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] += to_float(some.at[i]);
    }
    if (token + row >= count || STEP * step + column >= values) return;
#pragma unroll
    for (int i = 0; i < 4; i += 2) dv.store_two(token + row, STEP * step + column + i, beta * x[i], beta * x[i + 1]);
  }
  // Calls multiply(stage, more) for each step; more: not the first one.
  template <bool COPIES, class Multiply, class Keep> void each_step(float (&through)[2], Multiply multiply, Keep keep_sums) const {
#pragma unroll 1
    for (int step = 0; step < VALUE_STEPS; ++step) {
      const int stage = step % GRADIENT_STAGES;
      barrier_wait_all(at.full(stage), step / GRADIENT_STAGES % 2);
      keep_sums();
      wgmma_fence();
      multiply(at.stage(stage), step > 0);
      wgmma_commit();
      if (GATED) add_through(stage, through);
      store_values(step);
      wgmma_wait<0>();
      keep_sums();
      sync_warp();
      if (lane() == 0) barrier_arrive(at.empty(stage));
      if (COPIES && thread_x() == OF_QUERIES * WARPGROUP + COPIER && step + GRADIENT_STAGES < VALUE_STEPS) {
        barrier_wait(at.empty(stage), step / GRADIENT_STAGES % 2);
        copier.copy(step + GRADIENT_STAGES);
      }
      sync_warp();
    }
  }
};

// sums (+)= a step's rows times a piece of a state.
static inline void multiply_with_piece(TokenKeys& sums, uint32_t rows, uint32_t state, bool add) {
  const uint64_t a = depth_major<2 * STEP>(rows), b = matrix_in_shared<128>(state, At::NEXT_KEYS, 8 * 128);
#pragma unroll
  for (int k = 0; k < STEP / 16; ++k) wgmma<Element, KEYS, false, true>(sums, moved(a, 32 * k), moved(b, 2048 * k), add || k > 0);
}
// sums (+)= rows times states, of so many pieces, without products that are below the last digits.
template <int ROW_COUNT> static inline void multiply_with_states(TokenKeys& sums, uint32_t rows, uint32_t states, bool more) {
#pragma unroll
  for (int order = (ROW_COUNT > 1 ? ROW_COUNT : PIECES) - 1; order >= 0; --order)
#pragma unroll
    for (int i = 0; i < PIECES && i <= order; ++i) {
      if (order - i >= ROW_COUNT) continue;
      multiply_with_piece(sums, rows + (order - i) * At::STEP_BOX, states + i * At::STATE, more);
      more = true;
    }
}

// Of a warpgroup: what pairs of different parts add to its sums.
static inline void add_steep_pairs(char* memory, KeyFlows& flows, SharedPointer shared, int group, TokenKeys& sums) {
  const int own_part = warp() % 4;
  if (group == OF_QUERIES || group == OF_READS) {
#pragma unroll 1
    for (int part = 0; part < own_part; ++part) {
      decay_sums(sums, flows.leaves[part]);
      add_part<false>(sums, shared + (group == OF_QUERIES ? At::FLOWS_OF_PAIRS : At::FLOWS_OF_KEYS), shared + At::KEPT, part);
    }
  } else {  // of keys, the products with queries; the warpgroup of pairs has those with keys that read
    if (GATED && group == OF_KEYS) put_left(memory, flows, sums);
#pragma unroll 1
    for (int part = PARTS - 1; part > own_part; --part) {
      decay_sums(sums, flows.leaves[part]);
      add_part<true>(sums, shared + (group == OF_KEYS ? At::FLOWS_OF_PAIRS : At::FLOWS_OF_KEYS), shared + (group == OF_KEYS ? At::READ : At::READ_KEYS), part);
    }
  }
}

// Block number: a chunk of a head.
KERNEL(THREADS, 1) gradients(${parameters('gradients')}) {
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
  const GradientCopier copier{at, ${packed ? 'rows(dout_map, DOUT_ROWS)' : 'dout_map'}, kept_states_map, written_rows_map, static_cast<int>(block_x() / heads), static_cast<int>(head), token, static_cast<int>(tokens.row)};
  if (thread_x() == 0) {
#pragma unroll
    for (int i = 0; i < GRADIENT_STAGES; ++i) {
      barrier_init(at.full(i), 1);
      barrier_init(at.empty(i), THREADS / WARP);
    }
    fence_barrier_init();
  }
  sync_block();
  if (group < GRADIENT_STAGES && thread_x() % WARPGROUP == COPIER) copier.copy(group);
  const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3]);
  const float scale = softmax_scale;
  ChunkRows<Element, KEYS, THREADS>(q_view, tokens, head, heads, 0, keys, ${packed ? 'REVERSED' : 'false'}).copy_async({shared}, token, count);
  ChunkRows<Element, KEYS, THREADS>(k_view, tokens, head, heads, 0, keys, ${packed ? 'REVERSED' : 'false'}).copy_async({shared + At::KEY_ROWS}, token, count);
  copy_async_commit();
  const Own own;
  OwnFactors factors{own, gk_view, gk_type, static_cast<int64_t>(head), tokens, token, count, ${packed ? 'REVERSED' : 'false'}, flows.token_gates, {}};
  const FlatOwn flat_own;
  load_flat_gates(factors.kept, flat_own, gk_view, gk_type, tokens, static_cast<int64_t>(head), token, count);  // as if the chunk were not steep; not waited for here
  if (warp() == 0) {
    float log_gates[2];
    TokenNumbers(g_view, g_type, tokens, head, ${packed ? 'REVERSED' : 'false'}).load(token, count, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), log_gates);
    flows.token_gates[2 * lane()] = log_gates[0], flows.token_gates[2 * lane() + 1] = log_gates[1];
  }
  if (group == OF_PAIRS) {
    static_assert(KEYS == WARPGROUP);
    const float word = decays[block_x() * int64_t{DECAY_ROW} + thread_x() % WARPGROUP];
    const bool steep = any_in_warp(leaves_less(word, LEAST_OF_FLAT)), fades = any_in_warp(leaves_less(word, LEAST_OF_LASTING));
    if (lane() == 0) flows.steep[warp() % 4] = 2 * steep + fades;
  }
  if (thread_x() < CHUNK) flows.betas[thread_x()] = decays[block_x() * int64_t{DECAY_ROW} + KEYS + thread_x()];
  if (NORMED && group == OF_READS) {
    static_assert(2 * CHUNK == WARPGROUP);
    const int i = thread_x() % WARPGROUP;
    (i < CHUNK ? flows.norms.q : flows.norms.k)[i % CHUNK] = decays[block_x() * int64_t{DECAY_ROW} + DECAYS_AND_BETAS + i];
  }

  TokenKeys sums;
  float through[2] = {};
  const StepWork work{at, memory, copier, GradientRows(dv_view, nullptr, tokens, head, heads, ${packed ? 'REVERSED' : 'false'}), token, count, values, decays[block_x() * int64_t{DECAY_ROW} + KEYS + thread_x() / (THREADS / CHUNK)]};
  if (group == OF_PAIRS) {
    TokenPairs pairs, key_pairs;
    const auto keep_pairs = [&] { keep_in_place(pairs), keep_in_place(key_pairs); };
    work.template each_step<false>(through, [&](uint32_t stage, bool more) {
      const uint32_t written = stage + At::WRITTEN, gradients = stage + At::WRITTEN_GRADIENTS;
#pragma unroll
      for (int i = WRITTEN_PIECES - 1; i >= 0; --i) multiply_rows_of(pairs, stage + At::DOUT, written + i * At::STEP_BOX, more || i < WRITTEN_PIECES - 1);
#pragma unroll
      for (int order = WRITTEN_PIECES - 1; order >= 0; --order)
#pragma unroll
        for (int i = 0; i < PIECES && i <= order; ++i)
          multiply_rows_of(key_pairs, gradients + i * At::STEP_BOX, written + (order - i) * At::STEP_BOX, more || order < WRITTEN_PIECES - 1 || i > 0);
    }, keep_pairs);
    copy_async_wait<0>();
    sync_block();  // all are done with the last step, whose place others take
#pragma unroll
    for (int j = 0; j < CHUNK / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = token_row() + i / 2 * 8, s = 8 * j + lane() % 4 * 2 + i % 2;
        float& x = key_pairs[4 * j + i];
        pairs[4 * j + i] *= scale;
        if (s == t) flows.of_betas[t] = x, flows.itself[t] = pairs[4 * j + i];
        x = s < t ? -flows.betas[t] * x : 0;
      }
    if (flows.is_steep()) {
      put_flows(memory + At::FLOWS_OF_PAIRS, memory + At::NEAR, pairs);
      put_flows(memory + At::FLOWS_OF_KEYS, memory + At::NEAR_KEYS, key_pairs);
    } else {
      put_square(memory + FlatAt::PAIRS, pairs);
      put_square(memory + FlatAt::KEY_PAIRS, key_pairs);
    }
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) sums[i] = 0;
  } else {
    const auto keep_sums = [&] { keep_in_place(sums); };
    if (group == OF_QUERIES) work.template each_step<true>(through, [&](uint32_t stage, bool more) { multiply_with_states<1>(sums, stage + At::DOUT, stage, more); }, keep_sums);
    else if (group == OF_READS) work.template each_step<false>(through, [&](uint32_t stage, bool more) { multiply_with_states<PIECES>(sums, stage + At::WRITTEN_GRADIENTS, stage, more); }, keep_sums);
    else work.template each_step<false>(through, [&](uint32_t stage, bool more) { multiply_with_states<WRITTEN_PIECES>(sums, stage + At::WRITTEN, stage + At::AFTER, more); }, keep_sums);
    copy_async_wait<0>();
    sync_block();  // as those of pairs
    if (group != OF_KEYS) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float factor = group == OF_QUERIES ? scale : -flows.betas[token_row() + 8 * h];
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j) sums[4 * j + 2 * h] *= factor, sums[4 * j + 2 * h + 1] *= factor;
      }
    }
  }
  if (GATED) store_pack(&flows.through[thread_x() / (KEYS / 2)][thread_x() % (KEYS / 2) * 2], Pack<float, 2>{through[0], through[1]});
  const bool steep = flows.is_steep();
  if (steep) hand_gates(memory, flat_own, factors.kept);
  else weigh_flat_gates(flows, flat_own, factors.kept);
  sync_block();
  uint32_t closed = 0;  // a bit of each number whose gate leaves nothing
  if (steep) {
    take_gates(memory, own, factors.kept);
    sync_block();  // gates make room
    weigh_all(memory, flows, own, factors, closed);
  } else {
    weigh_flat(memory, flows, flat_own, factors);
    fence_async();
  }
  sync_block();
  if (thread_x() < CHUNK) flows.of_betas[thread_x()] /= flows.betas[thread_x()];  // here, and not where there would be 32 divisions in a row
  if (steep) {
    add_steep_pairs(memory, flows, shared, group, sums);
  } else {
    add_flat_pairs(memory, flows, shared, group, sums);
  }
  sync_block();  // all are done with the rows: sums take their place
  if (steep || group != OF_PAIRS) put_sums(memory, group == OF_QUERIES ? At::QUERY_SUMS : group == OF_READS ? At::READ_SUMS : group == OF_KEYS ? At::KEY_SUMS : At::MORE_KEY_SUMS, sums);
  sync_block();
  finish_chunk(memory, flows, own, factors, closed,
               {place, {dq_view, nullptr, tokens, head, heads, ${packed ? 'REVERSED' : 'false'}}, {dk_view, nullptr, tokens, head, heads, ${packed ? 'REVERSED' : 'false'}}, dgk_view, dg_view, gk_type, g_type, dbeta_view, beta_type, keys, ${packed ? 'REVERSED' : 'false'}, gate_sums});
}
