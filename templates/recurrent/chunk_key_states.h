// GPU vocabulary of the chunked recurrence's gradient with gates of keys: the entry that makes states before chunks, and their gradients
// after them. Part of backward.chunk_keys.gpu.cu.
#pragma once

// Shared memory: stages of rows (two elements a number), values and decays, the plan, a warp's place for a state on its way to memory.
constexpr int STATE_VALUES = 2 * KeyTile::BYTES, STATE_DECAYS = STATE_VALUES + StateValueTile::BYTES, STATE_STAGE = STATE_DECAYS + 4 * KEYS;
constexpr int STATE_PLAN = STATE_STAGES * STATE_STAGE, STATE_KEPT = STATE_PLAN + 128;
static_assert(STATE_KEPT + STATE_WARPS * KEPT_BYTES <= ${state_shared}, "the spec has another size");

// Where a block's rows are. In shared memory: in registers it would be in the way.
struct StatePlan {
  StateValueRows values;
  const Element* rows;  // of the first chunk, as all that follow: keys that are left after it, or queries that read what is before it
  const float* decays;
  Element* to;  // the block's first column
$if narrow
  float* units;  // inverses of kept states' units: the block's first 16 columns
  const RowUnits* row_units;
$end
  int64_t chunk_stride, part_stride;
  int count, heads, chunk_count, start, sequence, head;
  bool back;

  // The first token of the chunk that is met as number `step`.
  int token(int step) const { return (back ? chunk_count - 1 - step : step) * CHUNK; }
  void copy_async(SharedPointer shared, int step) const {
    if (step < chunk_count) {
      const SharedPointer stage = shared + step % STATE_STAGES * STATE_STAGE;
      const int64_t number = static_cast<int64_t>(token(step) / CHUNK) * heads;
      for (int part = 0; part < 2; ++part)
        copy_dense_async<STATE_THREADS>(KeyTile{stage + part * KeyTile::BYTES}, rows + (2 * number + part) * CHUNK * KEYS);
      values.copy_async({stage + STATE_VALUES}, token(step), count);
      for (int i = thread_x(); i < KEYS / 4; i += STATE_THREADS)
        copy_async_16(stage + STATE_DECAYS + 16 * i, decays + number * KEYS + 4 * i, true);
    }
    copy_async_commit();
  }
};
static_assert(sizeof(StatePlan) <= 128);

// Block number: see StateItem.
$if exchanged
static inline void carry_states(const View& v_view, const View& dout_view, const View& initial_state_view, const View& dfinal_state_view, const int32_t* cum_seqlens,
                                const View& dinitial_state_view, const Element* queries_before, const Element* keys_after, const float* decays, Element* kept_states,
                                int64_t sequences, int64_t heads, int64_t state_slices, int64_t padded_values, bool reverse${narrow ? ', float* state_units, const float* row_units' : ''}) {
$else
KERNEL(STATE_THREADS, ${state_blocks}) states(${parameters('states')}) {
$end
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  StatePlan& plan = *reinterpret_cast<StatePlan*>(memory + STATE_PLAN);
  if (thread_x() == 0) {
    const StateItem item(state_slices, heads);
    const Tokens tokens(cum_seqlens, sequences, item.sequence, v_view.shape[1]);
    const int64_t part_stride = padded_values * KEYS, chunk_stride = heads * 2 * PIECES * part_stride;
    const int64_t first_chunk = chunks_before(cum_seqlens, tokens, item.sequence, v_view.shape[1]), first = first_chunk * heads + item.head;
    const int count = static_cast<int>(tokens.end - tokens.first);
    plan = {{item.back ? dout_view : v_view, tokens, item.head, heads, item.start, static_cast<int>(v_view.shape[3] - item.start), reverse},
            reinterpret_cast<const Element*>(item.back ? queries_before : keys_after) + first * 2 * CHUNK * KEYS,
            decays + first * KEYS,
            reinterpret_cast<Element*>(kept_states) + first_chunk * chunk_stride +
                (item.head * 2 + (item.back ? 1 : 0)) * PIECES * part_stride + static_cast<int64_t>(item.start) * KEYS,
$if narrow
            state_units + (first * 2 + (item.back ? 1 : 0)) * (padded_values / 16) + item.start / 16, reinterpret_cast<const RowUnits*>(row_units) + first,
$end
            chunk_stride, part_stride, count, static_cast<int>(heads), (count + CHUNK - 1) / CHUNK, item.start,
            static_cast<int>(item.sequence), static_cast<int>(item.head), item.back};
  }
  sync_block();
  char* kept = memory + STATE_KEPT + warp() * KEPT_BYTES;

  if (STATE_STAGES > 1) plan.copy_async(shared, 0);
  State state = {};
  {
    const StateInMemory<${exchanged}> first(plan.back ? dfinal_state_view : initial_state_view, plan.sequence, plan.head, plan.start + 16 * warp());
    if (first.data) first.each([&](int n, int i, const float* at) { state[n][i] = *at; });
  }
#pragma unroll 1
  for (int step = 0; step < plan.chunk_count; ++step) {
    const int place = step % STATE_STAGES * STATE_STAGE;
    const SharedPointer stage = shared + place;
    if (STATE_STAGES == 1) plan.copy_async(shared, step);
$if narrow
    const int64_t number = static_cast<int64_t>(plan.token(step) / CHUNK) * plan.heads;
    if (plan.start + 16 * warp() < padded_values) {
      const Unit unit = common_unit(state);
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride, unit.of);
      if (lane() == 0) plan.units[number * 2 * (padded_values / 16) + warp()] = unit.inverse;
    }
    const float inverse = plan.back ? plan.row_units[number].scaled_queries : plan.row_units[number].keys;
$else
    if (plan.start + 16 * warp() < padded_values)
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride);
$end
    copy_async_wait<0>();
    sync_block();  // the chunk is there for all, and all are done with the one before
    if (STATE_STAGES > 1) plan.copy_async(shared, step + 1);
    Operands<4> written;
#pragma unroll
    for (int c = 0; c < 4; ++c) load_a_transposed(written[c], StateValueTile{stage + STATE_VALUES}, 16 * c, 16 * warp());
$if keys > 128
    take_in_pieces<2, false>(state, reinterpret_cast<const float*>(memory + place + STATE_DECAYS), written, written, stage${narrow ? ', inverse' : ''});
$else
    take_in_weighed<false>(state, reinterpret_cast<const float*>(memory + place + STATE_DECAYS), written, written, KeyTile{stage},
                           KeyTile{stage + KeyTile::BYTES}${narrow ? ', inverse' : ''});
$end
    if (STATE_STAGES == 1) sync_block();
  }
  copy_async_wait<0>();
  if (!plan.back || !is_given(dinitial_state_view)) return;
  StateInMemory<${exchanged}>(dinitial_state_view, plan.sequence, plan.head, plan.start + 16 * warp()).each([&](int n, int i, const float* at) {
    *const_cast<float*>(at) = state[n][i];
  });
}
