// GPU vocabulary of the chunked recurrence's gradients with gates of keys, on matrix instructions of a wave: a block's walk through the chunks of
// a sequence, by which it makes some columns of the gradient of queries or of keys. Part of backward.chunk_keys_wave.gpu.cu.
//
// The state is turned: its rows are values, a wave has 16 keys of it, and a gate is a factor of a lane's column. With x_ts the product of out's
// gradient and a value, of tokens t that read and s that write (BACK: x_st), and w_s what s writes, a key reads
//   p_t (state rows_t) + sum over s of x_ts left(t, s) w_s
// in pairs of both parts as p_t x_ts (r_s w_s), by products of three bf16 a number, which have the digits and the range of f32; within a part one
// by one (chunk_wave_key_column.h).
//
// A walk back meets the last token first, in chunks of its own; a walk forward has the same chunks, so that its first may be short.
#pragma once
#include "recurrent/chunk_wave_key_flows.h"

// Shared memory: rows that read and that write, the latter transposed besides; products of pairs; tokens' gates; the plan; norms; waves' numbers.
constexpr int READERS = 0, WRITERS = KeyTile::BYTES, TURNED_WRITERS = 2 * KeyTile::BYTES, PRODUCTS = TURNED_WRITERS + KEYS * TOKEN_PITCH;
constexpr int WALK_GATES = PRODUCTS + static_cast<int>(sizeof(PairProducts)), WALK_PLAN = WALK_GATES + 4 * CHUNK, WALK_PLAN_BYTES = 336;
constexpr int WALK_NORMS = WALK_PLAN + WALK_PLAN_BYTES, NUMBERS = WALK_NORMS + (NORMED ? static_cast<int>(sizeof(RowNorms)) : 0);
static_assert(NUMBERS + WAVES * static_cast<int>(sizeof(WaveNumbers)) <= ${walk_shared}, "the spec has another size");

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct WalkPlan {
  KeyRows readers, writers, own_rows, written_rows;  // the latter two: rows of q and k, for their norms
  ValueRows own, values;                             // columns of the rows whose gradient is made; of what tokens write
  TokenNumbers token_gates;
  KeyGateRows gates;
  WalkRows out;
  KeyFlows flows;
  float gamma, read_scale, written_scale;
  int count;

  // Tokens [token, end) to shared memory.
  void copy(char* memory, int token, int end) const {
    const SharedPointer shared = shared_pointer(memory);
    readers.copy_async({shared + READERS}, token, end);
    writers.copy_async({shared + WRITERS}, token, end);
    copy_chunk_transposed(shared + TURNED_WRITERS, writers, token, end);
    if (warp() == 0) {
      float numbers[2], *to = reinterpret_cast<float*>(memory + WALK_GATES);
      token_gates.load(token, end, gamma, numbers);
      if (2 * lane() < CHUNK) to[2 * lane()] = numbers[0], to[2 * lane() + 1] = numbers[1];
    }
    if constexpr (NORMED) put_row_norms(own_rows, written_rows, token, end, *reinterpret_cast<RowNorms*>(memory + WALK_NORMS));
    copy_async_commit();
    copy_async_wait<0>();
  }
};
static_assert(sizeof(WalkPlan) <= WALK_PLAN_BYTES);
static inline WalkPlan& walk_plan_in(char* memory) { return *reinterpret_cast<WalkPlan*>(memory + WALK_PLAN); }

// sums [16 tokens][16 columns] of TILES tiles += rows state; the state is READ_PARTS elements a number, times `unit`.
static inline void add_read(Sums (&sums)[TILES], const State& state, SharedPointer rows, float unit) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    part();
    Sums x = scaled(state[k], unit);
#pragma unroll
    for (int piece = 0; piece < READ_PARTS; ++piece) {
      const Operand b = operand_of<Element>(x);
      if (piece + 1 < READ_PARTS) x = rest_of<Element>(x);
#pragma unroll
      for (int r = 0; r < TILES; ++r) {
        multiply<Element>(sums[r], load_operand(rows + 16 * r * KEY_PITCH + 32 * k, KEY_PITCH), b);
        hold(sums[r]);
      }
    }
  }
}
// What the later part's tokens read of what the earlier one's have left at its end: products [s][t], left [s][column].
static inline Sums multiply_far(const Sums& products, const Sums& left) {
  const Pieces<bfloat16, 3> a(products), b(left);
  Sums sums = {};
#pragma unroll
  for (int order = 2; order >= 0; --order)
#pragma unroll
    for (int piece = 0; piece <= order; ++piece) multiply<bfloat16>(sums, a.at[piece], b.at[order - piece]);
  return sums;
}

// A wave's turn at a chunk, tokens [token, end), whose rows and products are there; `past`: what flows past its first token.
template <bool BACK> static inline void take_turn(char* memory, const WalkPlan& plan, State& state, int token, int end, float& past) {
  const SharedPointer shared = shared_pointer(memory);
  WaveNumbers& numbers = reinterpret_cast<WaveNumbers*>(memory + NUMBERS)[wave()];
  PairProducts& products = *reinterpret_cast<PairProducts*>(memory + PRODUCTS);
  const RowNorms& norms = *reinterpret_cast<const RowNorms*>(memory + WALK_NORMS);
  const int first = PART * own_part();
  KeyColumn<BACK> column = {};
  if (has_part()) {
    column.load_values(plan.values, token + first, end, norms.written + first, plan.written_scale, numbers);
    column.load_gates(plan.gates, reinterpret_cast<const float*>(memory + WALK_GATES) + first, token + first, end, numbers);
    column.add_near(products.of_part(own_part()));
    column.put_left(numbers);
  }
  sync_wave();
  const float logs[2] = {numbers.logs[0][matrix_column()], numbers.logs[1][matrix_column()]};
  Sums written[TILES];
  numbers.load(written);
  const Sums far = multiply_far(products.far(), written[0]);
  written[0] = scaled(written[0], exp2_of(logs[1]));

  const Unit unit = unit_of(state);
  Sums seen[TILES] = {};
  add_read(seen, state, shared + READERS, unit.of);
  seen[0] = scaled(seen[0], unit.inverse), seen[1] = scaled(seen[1], unit.inverse * exp2_of(logs[0]));
#pragma unroll
  for (int i = 0; i < SUMS; ++i) seen[1].at[i] += far.at[i];
  sync_wave();  // all have what is left
  numbers.store(seen);
  sync_wave();
  if (has_part()) {
    column.add_read(numbers, plan.read_scale);
    column.put_gradients(products.of_part(own_part()), plan.read_scale, numbers);
    numbers.change_own([&](int i, float x) {
      store_number(plan.out, token + first + i, end, x);
      return x;
    });
    if constexpr (GATED) numbers.store_own(column.sums);
  }
  if constexpr (GATED) plan.flows.template take<BACK>(numbers, column.closed, plan.own, norms.own + first, token, end, past);

  const SplitExp left = split_exp((logs[0] + logs[1]) * LN_2);
  const Unit taken_unit = unit_of(written);
  Parts taken[TILES];
#pragma unroll
  for (int c = 0; c < TILES; ++c) taken[c] = Parts(scaled(written[c], taken_unit.of));
  take_in(state, left.base, left.rest, taken, shared + TURNED_WRITERS, taken_unit.inverse);
}

// Through all chunks; `state`: before them. Returns what flows past the last token's gate.
template <bool BACK> static inline void walk(char* memory, State& state) {
  const SharedPointer shared = shared_pointer(memory);
  const WalkPlan& plan = walk_plan_in(memory);
  sync_block();  // the plan is there
  const int count = plan.count, chunks = (count + CHUNK - 1) / CHUNK;
  float past = 0;
#pragma unroll 1
  for (int step = 0; step < chunks; ++step) {
    const int behind = (chunks - 1 - step) * CHUNK;  // tokens of full chunks that follow
    const int token = BACK ? step * CHUNK : step > 0 ? count - behind - CHUNK : 0;
    const int end = !BACK ? count - behind : token + CHUNK < count ? token + CHUNK : count;
    sync_block();  // all are done with the chunk before
    plan.copy(memory, token, end);
    sync_block();  // the chunk is there
    PairProducts& products = *reinterpret_cast<PairProducts*>(memory + PRODUCTS);
#pragma unroll 1
    for (int block = wave(); block < PAIR_BLOCKS; block += WAVES) products.put(block, multiply_block(shared + READERS, shared + WRITERS, block));
    sync_block();  // products of pairs are there
    if (BACK && GATED && step % KEPT == 0) past = plan.flows.through(state, step / KEPT);
    take_turn<BACK>(memory, plan, state, token, end, past);
    if (!BACK && GATED && (chunks - 1 - step) % KEPT == 0) plan.flows.keep(state, (chunks - 1 - step) / KEPT);
  }
}
