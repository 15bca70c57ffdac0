// GPU vocabulary of the chunked recurrence's gradient: the entry that computes the gradients of one chunk's tokens. Part of
// backward.chunk.gpu.cu.
#pragma once
#include "recurrent/chunk_gradient_rows.h"

// Shared memory: queries, keys, weights of pairs of tokens: for dv (or, with the delta rule, of keys with keys), and for dq and dk; stages
// of some columns of out's gradients, of what tokens write, (delta) of its gradients, of states and their gradients; numbers; what flows
// past the gates.
constexpr int KEY_ROWS = KeyTile::BYTES, PAIRS = 2 * KeyTile::BYTES, VALUE_PAIRS = PAIRS + Square::BYTES;
constexpr int FIRST_STAGE = VALUE_PAIRS + Square::BYTES;
constexpr int WRITTEN = ValueTile::BYTES, WRITTEN_GRADIENTS = WRITTEN + WRITTEN_PARTS * ValueTile::BYTES;
$if narrow and delta
constexpr int BEFORE = WRITTEN_GRADIENTS + WRITTEN_PARTS * ValueTile::BYTES, AFTER = BEFORE + PARTS * StateTile::BYTES;
$else
constexpr int BEFORE = WRITTEN_GRADIENTS + (DELTA ? PARTS * ValueTile::BYTES : 0), AFTER = BEFORE + PARTS * StateTile::BYTES;
$end
constexpr int STAGE = AFTER + PARTS * StateTile::BYTES, NUMBERS = FIRST_STAGE + STAGES * STAGE, FLOWS = NUMBERS + NUMBERS_BYTES;
$if narrow and delta  // Weights of pairs for dq and dk are two halves: their sums over tokens with much the same keys may be far smaller than they are.
constexpr int REST_OF_PAIRS = FIRST_STAGE;
static_assert(STAGE >= Square::BYTES, "a stage is too small for a square");
$end

// Parts of sums that warps have of each token: of what is read at it, of what it writes that tokens of this chunk read, or that is left
// after the chunk; and of rows' products with their gradients (l2_norm).
struct Flows {
  float read[HALVES][CHUNK], read_here[4][CHUNK], left[HALVES][CHUNK], through[WARPS], query_dots[HALVES][CHUNK], key_dots[HALVES][CHUNK];
$if delta
  float beta[CHUNK];  // gradients
$end
$if narrow
  PairUnits value_units, pair_units;  // of VALUE_PAIRS and of PAIRS
$end
$if dual  // ssd: what a token reads of itself, and the product of x and out's gradient. What is left and read here is without steps.
  // Besides, the chunk's steps up to each token, and flows times the steps between their ends.
  float own[CHUNK], skip[CHUNK], aged[WARPS];
  LongSum time[CHUNK];
  float between(int s, int t) const { return (time[t].high - time[s].high) + (time[t].low - time[s].low); }
$end
};
$if dual
#include "ssd/step_gradients.h"
$end

// Where a block's rows are. In shared memory: in registers it would be in the way.
struct GradientPlan {
  ChunkRows<Element, COLUMNS, THREADS> douts;
$if delta
  const Element* written;
$else
  ChunkRows<Element, COLUMNS, THREADS> values;
$end
  const Element* kept;
$if narrow
  const float* units;  // inverses of those of kept states, 16 values each; behind them of their gradients, then (delta) of what tokens write, of its gradients
$end
  int padded_values, token, count, slices;

$if narrow
  // Of 16 columns, number k of a slice.
  float unit(int row, int slice, int k) const { return units[row * (padded_values / 16) + slice * (COLUMNS / 16) + k]; }
$end
  // Starts copying some columns.
  void copy_async(SharedPointer shared, int slice) const {
    if (slice < slices) {
      const SharedPointer stage = shared + FIRST_STAGE + slice % STAGES * STAGE;
      const int start = slice * COLUMNS;
      const auto copy_rows = [&](int place, ChunkRows<Element, COLUMNS, THREADS> rows) {
        rows.first += start, rows.columns -= start;
        rows.copy_async({stage + place}, token, count);
      };
      copy_rows(0, douts);
$if delta
#pragma unroll 1
      for (int part = 0; part < ROWS_KEPT; ++part)
        copy_rows_async<THREADS>(ValueTile{stage + WRITTEN + part * ValueTile::BYTES},
                                 written + static_cast<int64_t>(part) * CHUNK * padded_values + start, padded_values, CHUNK, COLUMNS);
$else
      copy_rows(WRITTEN, values);
$end
#pragma unroll
      for (int part = 0; part < 2 * PARTS; ++part)
        copy_state_async(StateTile{stage + BEFORE + part * StateTile::BYTES},
                         kept + (static_cast<int64_t>(part) * padded_values + start) * KEYS);
    }
    copy_async_commit();
  }
  // Whole rows that lie one after another.
  static void copy_state_async(const StateTile& to, const Element* from) {
    constexpr int PACKS = KEYS / 8;
    if constexpr (THREADS % PACKS == 0 && COLUMNS * PACKS % THREADS == 0) {
      const SharedPointer at = to.at(thread_x() / PACKS, thread_x() % PACKS * 8);
      from += thread_x() * 8;
#pragma unroll
      for (int i = 0; i < COLUMNS * PACKS / THREADS; ++i)
        copy_async_16(at + i * (THREADS / PACKS) * to.PITCH * 2, from + i * THREADS * 8, true);
    } else {
#pragma unroll 1
      for (int i = thread_x(); i < COLUMNS * PACKS; i += THREADS) copy_async_16(to.at(i / PACKS, i % PACKS * 8), from + i * 8, true);
    }
  }
};
constexpr int PLAN = (FLOWS + static_cast<int>(sizeof(Flows)) + 15) / 16 * 16;
static_assert(PLAN + static_cast<int>(sizeof(GradientPlan)) <= ${shared}, "the spec has another size");

#include "recurrent/chunk_gradient_sums.h"

// By the first warp: gradients of log gates from what flows past them; returns the warp's sum of them.
static inline float store_gate_gradients(const Flows& flows, const float (&log_gates)[2], const GradientRow& to, int64_t stride, int token,
                                         int count, bool wanted) {
  float change[2], left = 0;  // from the token after it on
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane() + i;
    change[i] = 0;
    float own = 0;
#pragma unroll
    for (int half = 0; half < HALVES; ++half) change[i] += flows.read[half][t], own += flows.left[half][t];
#pragma unroll
    for (int r = 0; r < 4; ++r) change[i] -= flows.read_here[r][t];
    change[i] -= own, left += own;
  }
  if (lane() < WARPS) left += flows.through[lane()];
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) left += shuffle_xor(left, mask);
  float sum = change[0] + change[1];
#pragma unroll
  for (int by = 1; by < WARP; by *= 2) {
    const float later = shuffle_down(sum, by);
    if (lane() + by < WARP) sum += later;
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * lane() + i;
    const bool none = token + t >= count || log_gates[i] < -3.4e38f;
    const float gradient = none ? 0 : left + sum - (i ? change[0] : 0);
    if (wanted && token + t < count) to.store((token + t) * stride, gradient);
    total += gradient;
  }
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) total += shuffle_xor(total, mask);
  return total;
}

// Block number: a chunk of a head.
KERNEL(THREADS, ${blocks}) gradients(${parameters('gradients')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view, &dq_view = dC_view, &dk_view = dBm_view;
  constexpr bool reverse = false;
  constexpr float softmax_scale = 1;
$end
  const ChunkPlace at(cum_seqlens, sequences, heads, q_view.shape[1]);
  const Tokens& tokens = at.tokens;
  const uint32_t head = at.head;
  const int token = at.token, count = at.count;
  if (token >= count) {
$if dual
    if (thread_x() < 3) head_sums[block_x() * 3 + thread_x()] = 0;
$else
    if (GATED && thread_x() == 0) gate_sums[block_x()] = 0;
$end
    return;
  }
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3]), slices = (values + COLUMNS - 1) / COLUMNS;
  const ChunkNumbers& numbers = *reinterpret_cast<const ChunkNumbers*>(memory + NUMBERS);
  const Gates& gates = numbers.gates;
  Flows& flows = *reinterpret_cast<Flows*>(memory + FLOWS);
  const KeyTile query_tile{shared}, key_tile{shared + KEY_ROWS};
  const float scale = softmax_scale;
  ChunkRows<Element, KEYS, THREADS>(q_view, tokens, head, heads, 0, keys, reverse).copy_async(query_tile, token, count);
  ChunkRows<Element, KEYS, THREADS>(k_view, tokens, head, heads, 0, keys, reverse).copy_async(key_tile, token, count);
  copy_numbers_async<THREADS>(shared + NUMBERS, reinterpret_cast<const ChunkNumbers*>(chunk_numbers) + block_x());
  copy_async_commit();
  GradientPlan& plan = *reinterpret_cast<GradientPlan*>(memory + PLAN);
  if (thread_x() == 0)
    plan = {{dout_view, tokens, head, heads, 0, values, reverse},
$if delta
            reinterpret_cast<const Element*>(written_rows) + static_cast<int64_t>(block_x()) * ROWS_KEPT * CHUNK * padded_values,
$else
            {v_view, tokens, head, heads, 0, values, reverse},
$end
            reinterpret_cast<const Element*>(kept_states) + static_cast<int64_t>(block_x()) * 2 * PARTS * padded_values * KEYS,
$if narrow
            state_units + static_cast<int64_t>(block_x()) * (DELTA ? 4 : 2) * (padded_values / 16),
$end
            static_cast<int>(padded_values), token, count, slices};
  sync_block();
  const auto copy = [&](int slice) { plan.copy_async(shared, slice); };
  copy(0);
  copy_async_wait<1>();
  sync_block();
$if narrow and delta  // what tokens write is kept over their betas
  const auto factor = [&](int t, int s) { return s <= t ? scale * gates.beta[s] * gates.left(t, s) * numbers.query_norm(t) * numbers.key_norm(s) : 0; };
$else
  const auto factor = [&](int t, int s) { return s <= t ? scale * gates.left(t, s) * numbers.query_norm(t) * numbers.key_norm(s) : 0; };
$end
$if not delta
  {
    PairSums pairs = {};
    add_pairs<KeyTile, KEYS>(pairs, query_tile, key_tile);
    each_slice<4>([&](int j, int slice) {
      if (slice > row_slice()) return;
      each_number(pairs[j], slice, [&](int t, int s, float& x) { x *= factor(t, s); });
      ${narrow ? 'flows.pair_units.put' : 'put_pair_of'}(memory + PAIRS, slice, pairs[j]);
    });
  }
$end
  KeySums dq = {}, dk = {};
  PairSums value_pairs = {};
$if delta
  KeySums read_by_keys = {};
  PairSums key_pairs = {};
$end
$if dual
  const DualRows dv_rows(dx_view, tokens, head);
  const float skip = number_of_head(D_view, d_type, head);
$else
  const GradientRows dv_rows(dv_view, SHARED_HEADS ? value_sums : nullptr, tokens, head, heads, reverse);
$end
  float through = 0;
#pragma unroll 1
  for (int x = 0; x < slices; ++x) {
    const int place = FIRST_STAGE + x % STAGES * STAGE, row = 16 * row_slice();
    if (STAGES == 1 && x > 0) {
      sync_block();
      copy(x);
    }
    copy_async_wait<0>();
    sync_block();  // the slice is there for all, and all are done with the one before
$if dual
    if (x == 0 && warp() == 0) put_times(gates, flows);
$end
    if (STAGES > 1) copy(x + 1);
    const ValueTile dout_tile{shared + place}, written_tile{shared + place + WRITTEN};
    const StateTile before_tile{shared + place + BEFORE}, after_tile{shared + place + AFTER};
$if narrow
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k) {
      add_scaled_rows<1, PARTS>(dq, dout_tile, before_tile, 16 * k, plan.unit(0, x, k));
$if delta
      const ValueTile gradient_tile{shared + place + WRITTEN_GRADIENTS};
      add_scaled_rows<WRITTEN_PARTS, PARTS>(dk, written_tile, after_tile, 16 * k, plan.unit(1, x, k) * plan.unit(2, x, k));
      add_scaled_pairs<1, WRITTEN_PARTS>(value_pairs, dout_tile, written_tile, 16 * k, plan.unit(2, x, k));
      add_scaled_rows<WRITTEN_PARTS, PARTS>(read_by_keys, gradient_tile, before_tile, 16 * k, plan.unit(0, x, k) * plan.unit(3, x, k));
      add_scaled_pairs<WRITTEN_PARTS, WRITTEN_PARTS>(key_pairs, gradient_tile, written_tile, 16 * k, plan.unit(2, x, k) * plan.unit(3, x, k));
$else
      add_scaled_rows<WRITTEN_PARTS, PARTS>(dk, written_tile, after_tile, 16 * k, plan.unit(1, x, k));
$end
    }
$if delta
    store_value_gradients<WRITTEN_PARTS>(memory + place + WRITTEN_GRADIENTS, dv_rows, token, count, x * COLUMNS, values,
                                         [&](int t, int column) { return gates.beta[t] * plan.unit(3, x, column / 16); });
$else
    add_pairs<ValueTile, COLUMNS>(value_pairs, dout_tile, written_tile);
$end
    if (GATED)
      through += flow_through(memory + place + BEFORE, memory + place + AFTER, [&](int k) { return plan.unit(0, x, k) * plan.unit(1, x, k); });
$else
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k) {
      add_part_rows<1>(dq, dout_tile, before_tile, 16 * k);
      add_part_rows<WRITTEN_PARTS>(dk, written_tile, after_tile, 16 * k);
    }
#pragma unroll
    for (int part = 0; part < WRITTEN_PARTS; ++part)
      add_pairs<ValueTile, COLUMNS>(value_pairs, dout_tile, ValueTile{written_tile.base + part * ValueTile::BYTES});
$if delta
    const ValueTile gradient_tile{shared + place + WRITTEN_GRADIENTS};
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k) add_part_rows<PARTS>(read_by_keys, gradient_tile, before_tile, 16 * k);
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
      for (int other = 0; other < WRITTEN_PARTS && part + other < WRITTEN_PARTS; ++other)
        add_pairs<ValueTile, COLUMNS>(key_pairs, ValueTile{gradient_tile.base + part * ValueTile::BYTES},
                                      ValueTile{written_tile.base + other * ValueTile::BYTES});
$end
    if (GATED) through += flow_through(memory + place + BEFORE, memory + place + AFTER);
$if delta
    store_value_gradients<PARTS>(memory + place + WRITTEN_GRADIENTS, dv_rows, token, count, x * COLUMNS, values,
                                 [&](int t) { return gates.beta[t]; });
$end
$end

$if not delta
    float dv[OWN<COLUMNS / 16>][2][4] = {};
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      key_tile.load_a(a, row, 16 * k);
      each_slice<COLUMNS / 16>([&](int j, int slice) {
        after_tile.load_b(b, 16 * slice, 16 * k);
        multiply_two(dv[j][0], dv[j][1], a, b);
      });
    }
    each_slice<COLUMNS / 16>([&](int j, int slice) {
      each_number(dv[j], slice, [&](int s, int, float& y) { y *= gates.after[s] * numbers.key_norm(s)${narrow ? ' * plan.unit(1, x, slice)' : ''}; });
    });
#pragma unroll 1
    for (int t = row_slice(); t < 4; ++t) {
      uint32_t a[4], b[4];
      load_a_transposed(a, Square{shared + PAIRS}, 16 * t, row);
      each_slice<COLUMNS / 16>([&](int j, int slice) {
        dout_tile.load_b_transposed(b, 16 * t, 16 * slice);
$if narrow
        float own[2][4] = {};
        multiply_two(own[0], own[1], a, b);
        add_times(dv[j], own, flows.pair_units.inverses[t][row_slice()]);
$else
        multiply_two(dv[j][0], dv[j][1], a, b);
$end
      });
    }
    each_slice<COLUMNS / 16>([&](int j, int slice) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int t = token + row + 8 * h + lane() / 4, value = x * COLUMNS + 16 * slice + 8 * n + lane() % 4 * 2;
$if dual
          const uint32_t dout = *reinterpret_cast<const uint32_t*>(memory + place + ((t - token) * ValueTile::PITCH + value - x * COLUMNS) * 2);
          dv[j][n][2 * h] += skip * low_of(dout), dv[j][n][2 * h + 1] += skip * high_of(dout);
$end
          if (t < count && value < values) dv_rows.store_two(t, value, dv[j][n][2 * h], dv[j][n][2 * h + 1]);
        }
    });
$end
  }

  each_slice<SLICES>([&](int j, int slice) {
    each_number(dq[j], slice, [&](int t, int, float& x) { x *= scale * gates.before[t] * numbers.query_norm(t); });
$if dual  // without its step yet
    each_number(dk[j], slice, [&](int s, int, float& x) { x *= gates.after[s]; });
$else
    each_number(dk[j], slice, [&](int s, int, float& x) { x *= gates.after[s] * numbers.key_norm(s)${narrow and delta ? ' * gates.beta[s]' : ''}; });
$end
$if delta
    each_number(read_by_keys[j], slice, [&](int t, int, float& x) { x *= -gates.before[t] * gates.beta[t] * numbers.key_norm(t); });
$end
  });
$if narrow and delta
  sync_block();  // all are done with the last stage, whose place weights of pairs take
$end
  each_slice<4>([&](int j, int slice) {
    if (slice > row_slice()) return;
$if dual
    float stepped[2][4];
    each_number(value_pairs[j], slice, [&](int t, int s, float& x) {
      if (s == t) flows.skip[t] = x;
      x = s <= t ? x * gates.left(t, s) : 0;
    });
#pragma unroll
    for (int i = 0; i < 8; ++i) stepped[i / 4][i % 4] = value_pairs[j][i / 4][i % 4];
    each_number(stepped, slice, [&](int, int s, float& x) { x *= numbers.key_norm(s); });
    put_pair_of(memory + VALUE_PAIRS, slice, stepped);
$else
    each_number(value_pairs[j], slice, [&](int t, int s, float& x) { x *= factor(t, s); });
$if narrow and delta
    put_two_halves(flows.value_units, memory + VALUE_PAIRS, memory + REST_OF_PAIRS, slice, value_pairs[j]);
$else
    ${narrow ? 'flows.value_units.put' : 'put_pair_of'}(memory + VALUE_PAIRS, slice, value_pairs[j]);
$end
$end
$if delta
    each_number(key_pairs[j], slice, [&](int t, int s, float& x) {
      if (s == t) flows.beta[t] = x${narrow ? '' : ' / gates.beta[t]'};
      x = s < t ? -gates.beta[t] * ${narrow ? 'gates.beta[s] * ' : ''}numbers.key_norm(t) * numbers.key_norm(s) * gates.left(t, s) * x : 0;
    });
    ${narrow ? 'flows.pair_units.put' : 'put_pair_of'}(memory + PAIRS, slice, key_pairs[j]);
$end
  });
  if constexpr (GATED) {
    // Sums over rows and columns of the pairs' flows. The products of queries and keys are made again: there were no registers for them.
    PairSums pairs = {};
    add_pairs<KeyTile, KEYS>(pairs, query_tile, key_tile);
    multiply_sums(value_pairs, pairs);
$if delta
    PairSums keys_with_keys = {};
    add_pairs<KeyTile, KEYS>(keys_with_keys, key_tile, key_tile);
    multiply_sums(key_pairs, keys_with_keys);
    each_slice<4>([&](int j, int) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) value_pairs[j][n][i] += key_pairs[j][n][i];
    });
$end
    float rows[2] = {}, left[2] = {};
$if dual
    sync_block();  // times are there for all
    float aged = 0;
$end
    each_slice<4>([&](int j, int slice) {
      float columns[2][2] = {};
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 16 * row_slice() + i / 2 * 8 + lane() / 4, s = 16 * slice + 8 * n + lane() % 4 * 2 + i % 2;
          const float flow = s < t ? value_pairs[j][n][i] : 0;
$if dual
          const float stepped = flow * numbers.key_norm(s);
          rows[i / 2] += stepped, columns[n][i % 2] += flow, aged += stepped * flows.between(s, t);
          if (s == t) flows.own[t] = value_pairs[j][n][i];
$else
          rows[i / 2] += flow, columns[n][i % 2] += flow;
$end
        }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float sum = sum_of_column(columns[n][i]);
          if (lane() < 4) flows.read_here[row_slice()][16 * slice + 8 * n + lane() * 2 + i] = sum;
        }
    });
$if dual
    float of_state[2] = {};
    multiply_with(memory, dq, of_state);
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h] += of_state[h], aged += of_state[h] * flows.time[16 * row_slice() + 8 * h + lane() / 4].high;
$else
    multiply_with(memory, dq, rows);
$end
$if delta
    multiply_with(memory + KEY_ROWS, read_by_keys, rows);
$end
    put_row_sums(rows, flows.read[warp() / 4]);
    multiply_with(memory + KEY_ROWS, dk, left);
    put_row_sums(left, flows.left[warp() / 4]);
$if dual
    each_slice<SLICES>([&](int j, int slice) { each_number(dk[j], slice, [&](int s, int, float& x) { x *= numbers.key_norm(s); }); });
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int s = 16 * row_slice() + 8 * h + lane() / 4;
      aged += left[h] * numbers.key_norm(s) * flows.between(s, CHUNK - 1);
    }
    aged = sum_over_warp(aged);
    if (lane() == 0) flows.aged[warp()] = aged;
$end
    float sum = through;
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) sum += shuffle_xor(sum, mask);
    if (lane() == 0) flows.through[warp()] = sum * (gates.base + gates.rest);
  }
  sync_block();
$if dual
  if (warp() == 0)
    store_step_gradients(flows, gates,
                         {{dt_view, dt_type, tokens, head, 0}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus},
                         GradientRow(ddt_view, dt_type, tokens.row, tokens.first, head), ddt_view.strides[1], token, count, head_sums + block_x() * 3);
$else
  if (GATED && warp() == 0) {
    float log_gates[2];
    TokenNumbers(g_view, g_type, tokens, head, reverse)
        .load(token, count, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), log_gates);
    const GradientRow to(dg_view, g_type, tokens.row, reverse ? tokens.end - 1 : tokens.first, head);
    const int64_t stride = reverse ? -dg_view.strides[1] : dg_view.strides[1];
    const float sum = store_gate_gradients(flows, log_gates, to, stride, token, count, is_given(dg_view));
    if (lane() == 0) gate_sums[block_x()] = sum;
$if delta
    const GradientRow beta_row(dbeta_view, beta_type, tokens.row, reverse ? tokens.end - 1 : tokens.first, head);
    for (int t = lane(); is_given(dbeta_view) && t < CHUNK && token + t < count; t += WARP)
      beta_row.store((token + t) * (reverse ? -dbeta_view.strides[1] : dbeta_view.strides[1]), flows.beta[t]);
$end
  }
$end
#pragma unroll 1
  for (int s = 0; s <= row_slice(); ++s) {
    uint32_t a[4];
    Square{shared + VALUE_PAIRS}.load_a(a, 16 * row_slice(), 16 * s);
$if narrow
    add_scaled_row(dq, a, key_tile, 16 * s, flows.value_units.inverses[row_slice()][s]);
$if delta
    Square{shared + REST_OF_PAIRS}.load_a(a, 16 * row_slice(), 16 * s);
    add_scaled_row(dq, a, key_tile, 16 * s, flows.value_units.inverses[row_slice()][s]);
$end
$else
    add_rows(dq, a, key_tile, 16 * s);
$end
  }
#pragma unroll 1
  for (int t = row_slice(); t < 4; ++t) {
    uint32_t a[4];
    load_a_transposed(a, Square{shared + VALUE_PAIRS}, 16 * t, 16 * row_slice());
$if narrow
    add_scaled_row(dk, a, query_tile, 16 * t, flows.value_units.inverses[t][row_slice()]);
$if delta
    load_a_transposed(a, Square{shared + REST_OF_PAIRS}, 16 * t, 16 * row_slice());
    add_scaled_row(dk, a, query_tile, 16 * t, flows.value_units.inverses[t][row_slice()]);
$end
$else
    add_rows(dk, a, query_tile, 16 * t);
$end
$if delta
    load_a_transposed(a, Square{shared + PAIRS}, 16 * t, 16 * row_slice());
$if narrow
    add_scaled_row(dk, a, key_tile, 16 * t, flows.pair_units.inverses[t][row_slice()]);
$else
    add_rows(dk, a, key_tile, 16 * t);
$end
$end
  }
$if delta
#pragma unroll 1
  for (int s = 0; s <= row_slice(); ++s) {
    uint32_t a[4];
    Square{shared + PAIRS}.load_a(a, 16 * row_slice(), 16 * s);
$if narrow
    add_scaled_row(dk, a, key_tile, 16 * s, flows.pair_units.inverses[row_slice()][s]);
$else
    add_rows(dk, a, key_tile, 16 * s);
$end
  }
  each_slice<SLICES>([&](int j, int) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) dk[j][n][i] += read_by_keys[j][n][i];
  });
$end
$if normed
  float dots[2][2] = {};
  multiply_with(memory, dq, dots[0]);
  multiply_with(memory + KEY_ROWS, dk, dots[1]);
  put_row_sums(dots[0], flows.query_dots[warp() / 4]);
  put_row_sums(dots[1], flows.key_dots[warp() / 4]);
  sync_block();
  take_along(memory, flows.query_dots, numbers.norms.q, dq);
  take_along(memory + KEY_ROWS, flows.key_dots, numbers.norms.k, dk);
$end
  const GradientRows dq_rows(dq_view, SHARED_HEADS ? query_sums : nullptr, tokens, head, heads, reverse);
  const GradientRows dk_rows(dk_view, SHARED_HEADS ? key_sums : nullptr, tokens, head, heads, reverse);
  if constexpr (SHARED_HEADS) {
    store_sums(dq, dq_rows, token, count, keys);
    store_sums(dk, dk_rows, token, count, keys);
  } else {
    sync_block();  // all are done with the rows: gradients take their place, to be written in whole rows
    put_key_sums(memory, dq);
    put_key_sums(memory + KEY_ROWS, dk);
    sync_block();
    store_tile(memory, dq_rows, token, count, keys);
    store_tile(memory + KEY_ROWS, dk_rows, token, count, keys);
  }
}
