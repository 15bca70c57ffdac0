// GPU vocabulary of the chunked recurrence, all chunks at once: the entry that makes states before chunks and, of two WAYS, their
// gradients after them.
#pragma once

// Shared memory: stages of copied rows and numbers, the plan, a warp's place for a state on its way to memory.
constexpr int STATE_NUMBERS = KeyTile::BYTES + StateValueTile::BYTES, STATE_STAGE = STATE_NUMBERS + NUMBERS_BYTES;
constexpr int STATE_PLAN = STATE_STAGES * STATE_STAGE, STATE_KEPT = STATE_PLAN + 128;

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct StatePlan {
  StateKeyRows keys;
  StateValueRows values;
  const ChunkNumbers* numbers;  // of the first chunk
  Element* to;  // of the first chunk, the block's first column
  int64_t chunk_stride, part_stride;
  float factor;  // of what a token writes
$if narrow
  float* units;  // inverses of kept states' units: of the first chunk, the block's first 16 columns
$end
  int count, heads, chunk_count, start, sequence, head;
  bool back;

  // The first token of the chunk that is met as number `step`.
  int token(int step) const { return (back ? chunk_count - 1 - step : step) * CHUNK; }
  void copy_async(SharedPointer shared, int step) const {
    if (step < chunk_count) {
      const SharedPointer stage = shared + step % STATE_STAGES * STATE_STAGE;
      copy_numbers_async<STATE_THREADS>(stage + STATE_NUMBERS, numbers + static_cast<int64_t>(token(step) / CHUNK) * heads);
      keys.copy_async({stage}, token(step), count);
      values.copy_async({stage + KeyTile::BYTES}, token(step), count);
    }
    copy_async_commit();
  }
};
static_assert(sizeof(StatePlan) <= 128);

static_assert(STATE_KEPT + STATE_WARPS * KEPT_BYTES <= ${state_shared}, "the spec has another size");

// Block number: see StateItem.
KERNEL(STATE_THREADS, ${state_blocks}) states(${parameters('states')}) {
$if dual
  const View &k_view = Bm_view, &v_view = x_view;
  constexpr bool reverse = false;
$end
$if dual and backward
  const View& q_view = C_view;
  constexpr float softmax_scale = 1;
$end
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  StatePlan& plan = *reinterpret_cast<StatePlan*>(memory + STATE_PLAN);
  if (thread_x() == 0) {
    const StateItem item(state_slices, heads);
    const Tokens tokens(cum_seqlens, sequences, item.sequence, k_view.shape[1]);
    const int64_t part_stride = padded_values * KEYS, chunk_stride = heads * WAYS * KEPT_PARTS * part_stride;
    const int64_t first_chunk = chunks_before(cum_seqlens, tokens, item.sequence, k_view.shape[1]);
    const int count = static_cast<int>(tokens.end - tokens.first);
$if backward
    const View &key_view = item.back ? q_view : k_view, &value_view = item.back ? dout_view : v_view;
    const float factor = item.back ? static_cast<float>(softmax_scale) : 1;
$else
    const View &key_view = k_view, &value_view = v_view;
    const float factor = 1;
$end
    plan = {{key_view, tokens, item.head, heads, 0, static_cast<int>(k_view.shape[3]), reverse},
            {value_view, tokens, item.head, heads, item.start, static_cast<int>(v_view.shape[3] - item.start), reverse},
            reinterpret_cast<const ChunkNumbers*>(chunk_numbers) + first_chunk * heads + item.head,
            reinterpret_cast<Element*>(kept_states) + first_chunk * chunk_stride +
                (item.head * WAYS + (item.back ? 1 : 0)) * KEPT_PARTS * part_stride + static_cast<int64_t>(item.start) * KEYS,
$if narrow
            chunk_stride, part_stride, factor,
            state_units + ((first_chunk * heads + item.head) * WAYS + (item.back ? 1 : 0)) * (padded_values / 16) + item.start / 16,
            count, static_cast<int>(heads), (count + CHUNK - 1) / CHUNK, item.start,
$else
            chunk_stride, part_stride, factor, count, static_cast<int>(heads), (count + CHUNK - 1) / CHUNK, item.start,
$end
            static_cast<int>(item.sequence), static_cast<int>(item.head), item.back};
  }
  sync_block();
  char* kept = memory + STATE_KEPT + warp() * KEPT_BYTES;

  if (STATE_STAGES > 1) plan.copy_async(shared, 0);
  State state = {};
  {
$if backward
    const View& first_view = plan.back ? dfinal_state_view : initial_state_view;
$else
    const View& first_view = initial_state_view;
$end
    const StateMemory first(first_view, plan.sequence, plan.head, plan.start + 16 * warp());
    if (first.data) first.each([&](int n, int i, const float* at) { state[n][i] = *at; });
  }
#pragma unroll 1
  for (int step = 0; step < plan.chunk_count; ++step) {
    const int place = step % STATE_STAGES * STATE_STAGE;
    const ChunkNumbers& numbers = *reinterpret_cast<const ChunkNumbers*>(memory + place + STATE_NUMBERS);
    if (STATE_STAGES == 1) plan.copy_async(shared, step);
$if narrow
    if (plan.start + 16 * warp() < padded_values) {
      const Unit unit = common_unit(state);
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride, unit.of);
      if (lane() == 0) plan.units[plan.token(step) / CHUNK * heads * WAYS * (padded_values / 16) + warp()] = unit.inverse;
    }
$else
    if (plan.start + 16 * warp() < padded_values)
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride);
$end
    copy_async_wait<0>();
    sync_block();  // the chunk's rows and numbers are there for all, and all are done with those before
    if (STATE_STAGES > 1) plan.copy_async(shared, step + 1);
    const float* left = plan.back ? numbers.gates.before : numbers.gates.after;
    Operands<4> written, rest;
$if (dual or summed) and backward
    Operands<4> least;
$end
$if narrow
    const auto weigh = [&](int c, float(&x)[2][4]) {
      to_sums(x[0], x[1], written[c]);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 16 * c + 8 * n + lane() % 4 * 2 + i % 2;
          x[n][i] *= left[t] * (plan.back ? numbers.query_norm(t) : numbers.key_norm(t)) * plan.factor;
        }
    };
    float largest = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x[2][4];
      load_a_transposed(written[c], StateValueTile{shared + place + KeyTile::BYTES}, 16 * c, 16 * warp());
      weigh(c, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = larger_size(largest, x[i / 4][i % 4]);
    }
    const Unit written_unit(largest_of_warp(largest));
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x[2][4];
      weigh(c, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i / 4][i % 4] *= written_unit.of;
      to_operands(written[c], rest[c], x[0], x[1]);
      sync_warp();  // one slice after another, for the sake of registers
    }
    write_state<PARTS>(state, numbers.gates.base, numbers.gates.rest, written_unit.inverse, written, rest, KeyTile{shared + place});
$else
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x[2][4];
      load_a_transposed(written[c], StateValueTile{shared + place + KeyTile::BYTES}, 16 * c, 16 * warp());
      to_sums(x[0], x[1], written[c]);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 16 * c + 8 * n + lane() % 4 * 2 + i % 2;
$if dual and not backward
          x[n][i] *= left[t];
$else
          x[n][i] *= left[t] * (plan.back ? numbers.query_norm(t) : numbers.key_norm(t)) * plan.factor;
$end
        }
      to_operands(written[c], rest[c], x[0], x[1]);
$if (dual or summed) and backward
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = written[c][2 * n + i / 2];
          x[n][i] -= i % 2 ? high_of(pair) : low_of(pair);
        }
#pragma unroll
      for (int i = 0; i < 4; ++i) least[c][i] = rounding_of(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], rest[c][i]);
$end
      sync_warp();  // one slice after another, for the sake of registers
    }
$if (dual or summed) and backward
    write_state<PARTS>(state, numbers.gates.base, numbers.gates.rest, written, rest, least, KeyTile{shared + place});
$else
    write_state<PARTS>(state, numbers.gates.base, numbers.gates.rest, written, rest, KeyTile{shared + place});
$end
$end
    if (STATE_STAGES == 1) sync_block();
  }
  copy_async_wait<0>();
$if backward
  const View& last_view = dinitial_state_view;
  if (!plan.back || !is_given(last_view)) return;
$else
  const View& last_view = final_state_view;
$end
  StateMemory(last_view, plan.sequence, plan.head, plan.start + 16 * warp()).each([&](int n, int i, const float* at) {
    *const_cast<float*>(at) = state[n][i];
  });
}
