// GPU vocabulary of the chunked recurrence's gradient with gates of keys and the delta rule: the entry that makes states before chunks,
// their gradients after them, what tokens write and its gradient. Part of backward.chunk_keys.gpu.cu; backward.chunk.gpu.cu has the
// formulas.
#pragma once

// Where a block's rows are. In shared memory: in registers it would be in the way.
struct StatePlan {
  StateValueRows values;
  const Element *after, *before, *queries, *pairs, *inverses;  // of the first chunk, as all that follow
  const float* decays;
  Element *to, *written;
$if narrow
  float* units;  // inverses of those of kept states, of their gradients, of what tokens write, and of its gradients: of the block's first 16 columns
  const RowUnits* row_units;
$end
  int64_t chunk_stride, part_stride, written_stride, padded_values;
  int count, heads, chunk_count, start, sequence, head;
  bool back;

  // The first token of the chunk that is met as number `step`.
  int token(int step) const { return (back ? chunk_count - 1 - step : step) * CHUNK; }
  void copy_async(SharedPointer shared, int step) const;
};
static_assert(sizeof(StatePlan) <= 256);

// Shared memory: stages of rows of keys and queries, values, matrices, decays and betas; the plan, a warp's place for a state on its way to
// memory.
constexpr int STATE_BEFORE = ROW_PIECES * KeyTile::BYTES, STATE_QUERIES = 2 * STATE_BEFORE;
constexpr int STATE_VALUES = STATE_QUERIES + QUERY_PIECES * KeyTile::BYTES, STATE_INVERSE = STATE_VALUES + StateValueTile::BYTES;
constexpr int STATE_PAIRS = STATE_INVERSE + INVERSE_PARTS * Square::BYTES, STATE_DECAYS = STATE_PAIRS + PAIR_PIECES * Square::BYTES;
constexpr int STATE_STAGE = STATE_DECAYS + 4 * DECAY_ROW;
constexpr int STATE_PLAN = STATE_STAGES * STATE_STAGE, STATE_KEPT = STATE_PLAN + 256;
static_assert(STATE_KEPT + STATE_WARPS * KEPT_BYTES <= ${state_shared}, "the spec has another size");

inline void StatePlan::copy_async(SharedPointer shared, int step) const {
  if (step < chunk_count) {
    const SharedPointer stage = shared + step % STATE_STAGES * STATE_STAGE;
    const int64_t number = static_cast<int64_t>(token(step) / CHUNK) * heads;
    const auto copy_keys = [&](int place, const Element* from, int pieces) {
#pragma unroll 1
      for (int piece = 0; piece < pieces; ++piece)
        copy_dense_async<STATE_THREADS>(KeyTile{stage + place + piece * KeyTile::BYTES}, from + (number * pieces + piece) * CHUNK * KEYS);
    };
    const auto copy_squares = [&](int place, const Element* from, int pieces) {
#pragma unroll 1
      for (int piece = 0; piece < pieces; ++piece)
        copy_dense_async<STATE_THREADS>(Square{stage + place + piece * Square::BYTES}, from + (number * pieces + piece) * CHUNK * CHUNK);
    };
    copy_keys(0, after, ROW_PIECES);
    copy_keys(STATE_BEFORE, before, ROW_PIECES);
    if (back) copy_keys(STATE_QUERIES, queries, QUERY_PIECES);
    values.copy_async({stage + STATE_VALUES}, token(step), count);
    copy_squares(STATE_INVERSE, inverses, INVERSE_PARTS);
    if (back) copy_squares(STATE_PAIRS, pairs, PAIR_PIECES);
    for (int i = thread_x(); i < DECAY_ROW / 4; i += STATE_THREADS)
      copy_async_16(stage + STATE_DECAYS + 16 * i, decays + number * DECAY_ROW + 4 * i, true);
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
    const Tokens tokens(cum_seqlens, sequences, item.sequence, v_view.shape[1]);
    const int64_t part_stride = padded_values * KEYS, chunk_stride = heads * 2 * PIECES * part_stride, matrix = CHUNK * KEYS;
    const int64_t first_chunk = chunks_before(cum_seqlens, tokens, item.sequence, v_view.shape[1]), first = first_chunk * heads + item.head;
    constexpr int ROWS_KEPT = WRITTEN_PIECES + PIECES;
    const int count = static_cast<int>(tokens.end - tokens.first);
    plan = {{item.back ? dout_view : v_view, tokens, item.head, heads, item.start, static_cast<int>(v_view.shape[3] - item.start), reverse},
            reinterpret_cast<const Element*>(keys_after) + first * ROW_PIECES * matrix,
            reinterpret_cast<const Element*>(keys_before) + first * ROW_PIECES * matrix,
            reinterpret_cast<const Element*>(queries_before) + first * QUERY_PIECES * matrix,
            reinterpret_cast<const Element*>(weights) + first * PAIR_PIECES * CHUNK * CHUNK,
            reinterpret_cast<const Element*>(inverses) + first * INVERSE_PARTS * CHUNK * CHUNK,
            decays + first * DECAY_ROW,
            reinterpret_cast<Element*>(kept_states) + first_chunk * chunk_stride +
                (item.head * 2 + (item.back ? 1 : 0)) * PIECES * part_stride + static_cast<int64_t>(item.start) * KEYS,
            reinterpret_cast<Element*>(written_rows) + (first * ROWS_KEPT + (item.back ? WRITTEN_PIECES : 0)) * CHUNK * padded_values + item.start,
$if narrow
            state_units + (first * 4 + (item.back ? 1 : 0)) * (padded_values / 16) + item.start / 16, reinterpret_cast<const RowUnits*>(row_units) + first,
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
    const float* decays_here = reinterpret_cast<const float*>(memory + place + STATE_DECAYS);
    const float* betas = decays_here + KEYS;
    const bool is_kept = plan.start + 16 * warp() < plan.padded_values;
    if (STATE_STAGES == 1) plan.copy_async(shared, step);
$if narrow
    const int64_t number = static_cast<int64_t>(plan.token(step) / CHUNK) * plan.heads;
    const Unit unit = common_unit(state);
    float* unit_place = plan.units + number * 4 * (plan.padded_values / 16) + warp();
    if (is_kept) {
      keep_state(state, kept, plan.to + plan.token(step) / CHUNK * plan.chunk_stride + 16 * warp() * KEYS, plan.part_stride, unit.of);
      if (lane() == 0) *unit_place = unit.inverse;
    }
    const RowUnits row_units_here = plan.row_units[number];
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
    Sums<4> seen = {};
    add_seen_of_pieces(seen, state, stage + (plan.back ? 0 : STATE_BEFORE), unit.of);
    load_values(values);
    const float seen_unit = unit.inverse * row_units_here.keys;
    if (plan.back) {
      scale_tokens(seen, [&](int) { return seen_unit * (1 / row_units_here.of_pairs()); });
#pragma unroll 1
      for (int piece = 0; piece < PAIR_PIECES; ++piece) add_triangle_back(seen, values, Square{stage + STATE_PAIRS + piece * Square::BYTES});
      scale_tokens(seen, [&](int) { return row_units_here.of_pairs(); });
      add_scaled_inverse<true>(seen, betas, stage + STATE_INVERSE, row_units_here.inverse);
    } else {
      Sums<4> x;
      to_all_sums(x, values);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[n][i] = x[n][i] - seen_unit * seen[n][i];
      add_scaled_inverse<false>(seen, betas, stage + STATE_INVERSE, row_units_here.inverse);
    }
    if (is_kept) {
      const Unit written_unit = common_unit(seen);
      Element* written = plan.written + plan.token(step) / CHUNK * plan.written_stride + 16 * warp();
      if (plan.back) store_written<PIECES>(seen, written, plan.padded_values, CHUNK * plan.padded_values, written_unit.of);
      else store_written<WRITTEN_PIECES>(seen, written, plan.padded_values, CHUNK * plan.padded_values, written_unit.of);
      if (lane() == 0) unit_place[2 * (plan.padded_values / 16)] = written_unit.inverse;
    }
    const Unit taken_unit = weigh_scaled(missing, rest, seen, [&](int t) { return plan.back ? -betas[t] : betas[t]; });
    take_in_pieces<ROW_PIECES, true>(state, decays_here, missing, rest, stage + (plan.back ? STATE_BEFORE : 0), taken_unit.inverse * row_units_here.keys);
    if (plan.back) take_in_pieces<QUERY_PIECES, false>(state, nullptr, values, values, stage + STATE_QUERIES, row_units_here.scaled_queries);
$else
    Sums<4> seen = {}, sums = {};
    add_seen_of_pieces(seen, state, stage + (plan.back ? 0 : STATE_BEFORE));
$if precise and keys <= 32  // keys of few features overlap much: states, and what tokens write, are three elements a number
    add_least_seen(seen, state, KeyTile{stage + (plan.back ? 0 : STATE_BEFORE)});
$elif precise  // a given gradient's terms in dbeta may be of both signs
    if (plan.back && is_given(dfinal_state_view)) add_least_seen(seen, state, KeyTile{stage});
$end
    load_values(values);
    if (plan.back) {
#pragma unroll 1
      for (int piece = 0; piece < PAIR_PIECES; ++piece) add_triangle_back(seen, values, Square{stage + STATE_PAIRS + piece * Square::BYTES});
      add_inverse<true>(sums, seen, stage + STATE_INVERSE);
    } else {
      Sums<4> x;
      to_all_sums(x, values);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[n][i] = betas[8 * n + lane() % 4 * 2 + i % 2] * (x[n][i] - seen[n][i]);
      add_inverse<false>(sums, seen, stage + STATE_INVERSE);
    }
    Element* written = plan.written + plan.token(step) / CHUNK * plan.written_stride + 16 * warp();
    if (is_kept && plan.back) store_written<PIECES>(sums, written, plan.padded_values, CHUNK * plan.padded_values);
    if (is_kept && !plan.back) store_written<WRITTEN_PIECES>(sums, written, plan.padded_values, CHUNK * plan.padded_values);
    if (plan.back) {
      weigh_tokens(missing, rest, sums, [&](int t) { return -betas[t]; });
    } else {
      weigh_tokens(missing, rest, sums, [](int) { return 1.0f; });
    }
    take_in_pieces<ROW_PIECES, true>(state, decays_here, missing, rest, stage + (plan.back ? STATE_BEFORE : 0));
$if precise and keys <= 32
    weigh_least(missing, sums, [&](int t) { return plan.back ? -betas[t] : 1.0f; });
    add_written(state, missing, KeyTile{stage + (plan.back ? STATE_BEFORE : 0)});
$end
    if (plan.back) take_in_pieces<QUERY_PIECES, false>(state, nullptr, values, values, stage + STATE_QUERIES);
$end
    if (STATE_STAGES == 1) sync_block();
  }
  copy_async_wait<0>();
  if (!plan.back || !is_given(dinitial_state_view)) return;
  StateMemory(dinitial_state_view, plan.sequence, plan.head, plan.start + 16 * warp()).each([&](int n, int i, const float* at) {
    *const_cast<float*>(at) = state[n][i];
  });
}
