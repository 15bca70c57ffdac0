// GPU vocabulary of the chunked recurrence's gradient with the delta rule: the entries that come before `gradients`. Part of
// backward.chunk.gpu.cu, which has the formulas.
#pragma once
#include "recurrent/chunk_delta_prepare.h"

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct StatePlan {
  StateKeyRows keys, queries;
  StateValueRows values;
  const ChunkNumbers* numbers;  // of the first chunk, as all that follow
  const Element* matrices;
  Element *to, *written;
$if narrow
  float* units;  // inverses of those of kept states, of their gradients, of what tokens write, and of its gradients: of the block's first 16 columns
$end
  int64_t chunk_stride, part_stride, written_stride, padded_values;
  int count, heads, chunk_count, start, sequence, head;
  bool back;

  // The first token of the chunk that is met as number `step`.
  int token(int step) const { return (back ? chunk_count - 1 - step : step) * CHUNK; }
  void copy_async(SharedPointer shared, int step) const;
};
static_assert(sizeof(StatePlan) <= 256);

// Shared memory: stages of copied rows, matrices and numbers, the plan, a warp's place for a state on its way to memory.
constexpr int STATE_QUERIES = KeyTile::BYTES, STATE_VALUES = 2 * KeyTile::BYTES, STATE_MATRICES = STATE_VALUES + StateValueTile::BYTES;
constexpr int STATE_NUMBERS = STATE_MATRICES + MATRICES_KEPT * Square::BYTES, STATE_STAGE = STATE_NUMBERS + NUMBERS_BYTES;
constexpr int STATE_PLAN = STATE_STAGES * STATE_STAGE, STATE_KEPT = STATE_PLAN + 256;
static_assert(STATE_KEPT + STATE_WARPS * KEPT_BYTES <= ${state_shared}, "the spec has another size");

inline void StatePlan::copy_async(SharedPointer shared, int step) const {
  if (step < chunk_count) {
    const SharedPointer stage = shared + step % STATE_STAGES * STATE_STAGE;
    const int64_t place = static_cast<int64_t>(token(step) / CHUNK) * heads;
    copy_numbers_async<STATE_THREADS>(stage + STATE_NUMBERS, numbers + place);
    keys.copy_async({stage}, token(step), count);
    if (back) queries.copy_async({stage + STATE_QUERIES}, token(step), count);
    values.copy_async({stage + STATE_VALUES}, token(step), count);
#pragma unroll 1
    for (int i = 0; i < (back ? MATRICES_KEPT : INVERSE_PARTS); ++i)
      copy_dense_async<STATE_THREADS>(Square{stage + STATE_MATRICES + i * Square::BYTES},
                                      matrices + (place * MATRICES_KEPT + i) * CHUNK * CHUNK);
  }
  copy_async_commit();
}

// Block number: see StateItem.
KERNEL(STATE_THREADS, ${state_blocks}) states(${parameters('states')}) {
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  StatePlan& plan = *reinterpret_cast<StatePlan*>(memory + STATE_PLAN);
  if (thread_x() == 0) {
    const StateItem item(state_slices, heads);
    const Tokens tokens(cum_seqlens, sequences, item.sequence, q_view.shape[1]);
    const int64_t part_stride = padded_values * KEYS, chunk_stride = heads * 2 * PARTS * part_stride;
    const int64_t first_chunk = chunks_before(cum_seqlens, tokens, item.sequence, q_view.shape[1]);
    const int64_t way = item.head * 2 + (item.back ? 1 : 0);
    const int count = static_cast<int>(tokens.end - tokens.first), keys = static_cast<int>(q_view.shape[3]);
    plan = {{k_view, tokens, item.head, heads, 0, keys, reverse}, {q_view, tokens, item.head, heads, 0, keys, reverse},
            {item.back ? dout_view : v_view, tokens, item.head, heads, item.start, static_cast<int>(v_view.shape[3] - item.start), reverse},
            reinterpret_cast<const ChunkNumbers*>(chunk_numbers) + first_chunk * heads + item.head,
            reinterpret_cast<const Element*>(matrices) + (first_chunk * heads + item.head) * MATRICES_KEPT * CHUNK * CHUNK,
            reinterpret_cast<Element*>(kept_states) + first_chunk * chunk_stride + way * PARTS * part_stride +
                static_cast<int64_t>(item.start) * KEYS,
            reinterpret_cast<Element*>(written_rows) +
                ((first_chunk * heads + item.head) * ROWS_KEPT + (item.back ? WRITTEN_PARTS : 0)) * CHUNK * padded_values + item.start,
$if narrow
            state_units + ((first_chunk * heads + item.head) * 4 + (item.back ? 1 : 0)) * (padded_values / 16) + item.start / 16,
$end
            chunk_stride, part_stride, heads * ROWS_KEPT * CHUNK * padded_values, padded_values, count, static_cast<int>(heads),
            (count + CHUNK - 1) / CHUNK, item.start, static_cast<int>(item.sequence), static_cast<int>(item.head), item.back};
  }
  sync_block();
  char* kept = memory + STATE_KEPT + warp() * KEPT_BYTES;
  if (STATE_STAGES > 1) plan.copy_async(shared, 0);
  State state = {};
  {
    const StateMemory first(plan.back ? dfinal_state_view : initial_state_view, plan.sequence, plan.head, plan.start + 16 * warp());
    if (first.data) first.each([&](int n, int i, const float* at) { state[n][i] = *at; });
  }
#pragma unroll 1
  for (int step = 0; step < plan.chunk_count; ++step) {
    const int place = step % STATE_STAGES * STATE_STAGE;
    const SharedPointer stage = shared + place;
    const KeyTile key_tile{stage};
    const ChunkNumbers& numbers = *reinterpret_cast<const ChunkNumbers*>(memory + place + STATE_NUMBERS);
    const Gates& gates = numbers.gates;
    const bool is_kept = plan.start + 16 * warp() < plan.padded_values;
    if (STATE_STAGES == 1) plan.copy_async(shared, step);
$if narrow
    const Unit unit = common_unit(state);
    float* unit_place = plan.units + static_cast<int64_t>(plan.token(step) / CHUNK) * plan.heads * 4 * (plan.padded_values / 16) + warp();
    if (is_kept) {
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride, unit.of);
      if (lane() == 0) *unit_place = unit.inverse;
    }
$else
    if (is_kept)
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride);
$end
    copy_async_wait<0>();
    sync_block();  // the chunk is there for all, and all are done with the one before
    if (STATE_STAGES > 1) plan.copy_async(shared, step + 1);
    const auto load_values = [&](Operands<4>& to) {
#pragma unroll
      for (int c = 0; c < 4; ++c) load_a_transposed(to[c], StateValueTile{stage + STATE_VALUES}, 16 * c, 16 * warp());
    };
    Operands<4> values, missing, rest;
$if narrow
    const float scale = softmax_scale;
    Sums<4> seen = {};
    add_seen<true>(seen, state, key_tile, unit.of);
    load_values(values);
    if (plan.back) {
      scale_tokens(seen, [&](int t) { return gates.after[t] * numbers.key_norm(t) * unit.inverse * (1 / numbers.pair_unit); });
#pragma unroll 1
      for (int part = 0; part < PAIR_PARTS; ++part)
        add_triangle_back(seen, values, Square{stage + STATE_MATRICES + (INVERSE_PARTS + part) * Square::BYTES});
      scale_tokens(seen, [&](int) { return numbers.pair_unit; });
      add_scaled_inverse<true>(seen, gates.beta, stage + STATE_MATRICES, numbers.inverse_unit);
    } else {
      Sums<4> x;
      to_all_sums(x, values);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 8 * n + lane() % 4 * 2 + i % 2;
          seen[n][i] = x[n][i] - gates.before[t] * numbers.key_norm(t) * unit.inverse * seen[n][i];
        }
      add_scaled_inverse<false>(seen, gates.beta, stage + STATE_MATRICES, numbers.inverse_unit);
    }
    if (is_kept) {
      const Unit written_unit = common_unit(seen);
      Element* written = plan.written + plan.token(step) / CHUNK * plan.written_stride + 16 * warp();
      store_written<WRITTEN_PARTS>(seen, written, plan.padded_values, CHUNK * plan.padded_values, written_unit.of);
      if (lane() == 0) unit_place[2 * (plan.padded_values / 16)] = written_unit.inverse;
    }
    const Unit taken_unit = weigh_scaled(missing, rest, seen, [&](int t) {
      return gates.beta[t] * numbers.key_norm(t) * (plan.back ? -gates.before[t] : gates.after[t]);
    });
    write_state<WRITTEN_PARTS>(state, gates.base, gates.rest, taken_unit.inverse, missing, rest, key_tile);
    if (plan.back) {
      load_values(values);
      to_all_sums(seen, values);
      const Unit read_unit = weigh_scaled(missing, rest, seen, [&](int t) { return scale * gates.before[t] * numbers.query_norm(t); });
      write_state<WRITTEN_PARTS>(state, 1, 0, read_unit.inverse, missing, rest, KeyTile{stage + STATE_QUERIES});
    }
$else
$if summed
    Operands<4> least;
$end
    Sums<4> seen = {}, sums = {};
    add_seen<(PARTS > 1)>(seen, state, key_tile, 1);
$if summed
    add_least_seen(seen, state, key_tile);
$elif precise  // a given gradient's terms in dbeta may be of both signs
    if (plan.back && is_given(dfinal_state_view)) add_least_seen(seen, state, key_tile);
$end
    if (plan.back) {
      scale_tokens(seen, [&](int t) { return gates.after[t] * numbers.key_norm(t); });
      load_values(values);
#pragma unroll 1
      for (int part = 0; part < PARTS; ++part)
        add_triangle_back(seen, values, Square{stage + STATE_MATRICES + (INVERSE_PARTS + part) * Square::BYTES});
      add_inverse<true>(sums, seen, stage + STATE_MATRICES);
    } else {
      load_values(values);
      Sums<4> x;
      to_all_sums(x, values);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 8 * n + lane() % 4 * 2 + i % 2;
          seen[n][i] = gates.beta[t] * (x[n][i] - gates.before[t] * numbers.key_norm(t) * seen[n][i]);
        }
      add_inverse<false>(sums, seen, stage + STATE_MATRICES);
    }
    Element* written = plan.written + plan.token(step) / CHUNK * plan.written_stride + 16 * warp();
    if (is_kept && plan.back) store_written<PARTS>(sums, written, plan.padded_values, CHUNK * plan.padded_values);
    if (is_kept && !plan.back) store_written<WRITTEN_PARTS>(sums, written, plan.padded_values, CHUNK * plan.padded_values);
    if (plan.back) {
      const auto of_keys = [&](int t) { return -gates.before[t] * gates.beta[t] * numbers.key_norm(t); };
      weigh_tokens(missing, rest, sums, of_keys);
$if summed
      weigh_least(least, sums, of_keys);
      write_state<PARTS>(state, gates.base, gates.rest, missing, rest, least, key_tile);
$else
      write_state<PARTS>(state, gates.base, gates.rest, missing, rest, key_tile);
$end
      load_values(values);
      to_all_sums(sums, values);
      const float scale = softmax_scale;
      const auto of_queries = [&](int t) { return scale * gates.before[t] * numbers.query_norm(t); };
      weigh_tokens(missing, rest, sums, of_queries);
$if summed
      weigh_least(least, sums, of_queries);
      write_state<PARTS>(state, 1, 0, missing, rest, least, KeyTile{stage + STATE_QUERIES});
$else
      write_state<PARTS>(state, 1, 0, missing, rest, KeyTile{stage + STATE_QUERIES});
$end
    } else {
      const auto of_writes = [&](int t) { return gates.after[t] * numbers.key_norm(t); };
      weigh_tokens(missing, rest, sums, of_writes);
$if summed
      weigh_least(least, sums, of_writes);
      write_state<PARTS>(state, gates.base, gates.rest, missing, rest, least, key_tile);
$else
      write_state<PARTS>(state, gates.base, gates.rest, missing, rest, key_tile);
$end
    }
$end
    if (STATE_STAGES == 1) sync_block();
  }
  copy_async_wait<0>();
  if (plan.back && is_given(dinitial_state_view))
    StateMemory(dinitial_state_view, plan.sequence, plan.head, plan.start + 16 * warp()).each([&](int n, int i, const float* at) {
      *const_cast<float*>(at) = state[n][i];
    });
}
