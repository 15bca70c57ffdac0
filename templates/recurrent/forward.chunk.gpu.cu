// recurrent, forward, a chunk of 64 tokens at a time, on matrix instructions of a warp (mma.sync). A block goes through one sequence and
// head for some columns of the state; each of its warps keeps 16 of them, with all keys, in registers.
//
// With S the state before a chunk, c_t the sum of the log gates up to token t, and u_t what token t writes (v_t; with beta see below), a
// chunk is
//   out_t = scale (e^c_t S^T q_t + sum over s <= t of e^(c_t - c_s) (q_t . k_s) u_s)
//   S     = e^c_last S + sum over s of e^(c_last - c_s) k_s u_s^T
// with exponents that are not positive. The block computes the weights of all pairs of tokens once (`pairs`), the warps the rest, each its
// own. What goes into the state is the sum of two operands, the second of which is what rounding took from the first: so a state nearly has
// the digits of f32. With the delta rule (split) there are three bf16 where keys have few features: these overlap much, so that what tokens
// write may be far larger than its sum. What is only read to `out` is rounded once. The delta rule: u_t = beta_t (v_t - e^c_t S^T k_t - sum
// over s < t of e^(c_t - c_s) (k_t . k_s) u_s), a triangular system. The launch `invert` inverts its matrix for every chunk, in parallel. In
// f16 (narrow) the inverse, what is missing and what tokens write have powers of two as units (chunk_growth.h): so halves hold large ones, and
// small ones keep their digits.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;     // up to 8 more than there are: zeros
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, COLUMNS = 16 * WARPS;
constexpr bool DELTA = ${delta}, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = ${E == 'f16'};                // a state may be too large for an element
$if delta
constexpr int INVERSE_PARTS = ${split ? 3 : 2};       // elements a number
$end
#include "recurrent/chunk_gates.h"

using KeyRows = ChunkRows<Element, KEYS, THREADS>;
using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;
using KeyTile = KeyRows::Place;
using ValueTile = ValueRows::Place;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_block.h"
$if dual  // ssd: steps are factors of keys, and lie where betas do
#include "ssd/dual_chunk.h"
$end

constexpr int STAGES = ${stages};
// Shared memory: stages of copied rows, the pairs' weights, two chunks' gates, norms, and what is needed once a chunk or less.
constexpr int QUERIES = 0, KEY_ROWS = KeyTile::BYTES, VALUES = 2 * KeyTile::BYTES, INVERSE = VALUES + ValueTile::BYTES;
constexpr int STAGE = INVERSE + (${delta ? 'INVERSE_PARTS * Square::BYTES' : '0'});
constexpr int PAIRS = STAGES * STAGE, GATES = PAIRS + Square::BYTES, NORMS = GATES + 2 * static_cast<int>(sizeof(Gates));
constexpr int PLAN = NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0), ENDS = PLAN + 128;
static_assert(ENDS + 48 * WARPS <= ${shared}, "the spec has another size");

// The weights of a chunk's pairs, the scale included.
static inline void put_pairs(const KeyTile& queries, const KeyTile& keys, const Gates& gates, const Norms& norms, float scale,
                             char* pairs) {
  multiply_rows(queries, keys, [&](int t, int s, float x, float y) {
    if (NORMED) x *= norms.q[t] * norms.k[s], y *= norms.q[t] * norms.k[s + 1];
$if dual
    x *= gates.beta[s], y *= gates.beta[s + 1];
$end
    x = s <= t ? x * scale * gates.left(t, s) : 0;
    y = s + 1 <= t ? y * scale * gates.left(t, s + 1) : 0;
    *reinterpret_cast<uint32_t*>(pairs + (t * Square::PITCH + s) * 2) = pack_pair<Element>(x, y);
  });
}

$if delta
#include "recurrent/chunk_inverse.h"

$end
// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows queries, keys;
  ValueRows values;
  ${dual ? 'DualNumbers' : 'TokenNumbers'} gates;
$if delta
  TokenNumbers betas;
  const Element* inverse;
  int64_t inverse_stride;
$end
  float gamma;
  int count;

  // Starts copying the chunk from `token` on.
  void copy_async(SharedPointer memory, int token) const {
    const SharedPointer stage = memory + token / CHUNK % STAGES * STAGE;
    if (token < count) {
      queries.copy_async({stage + QUERIES}, token, count);
      keys.copy_async({stage + KEY_ROWS}, token, count);
      values.copy_async({stage + VALUES}, token, count);
$if delta
      const Element* from = inverse + token / CHUNK * inverse_stride;
#pragma unroll
      for (int part = 0; part < INVERSE_PARTS; ++part)
        copy_dense_async<THREADS>(Square{stage + INVERSE + part * Square::BYTES}, from + part * CHUNK * CHUNK);
$end
    }
    copy_async_commit();
  }
};
static_assert(sizeof(Plan) <= 128 && sizeof(End) <= 48);

// A chunk's log gates and betas on their way, in the block's first warp.
struct GatesUnderway {
$if dual
  float gates[2], betas[2];
$else
  uint32_t gates[2], betas[2];
$end
  int first;
  void load(const Plan& plan, int token) {
    if (warp() != 0) return;
    first = token;
$if dual
    plan.gates.load(token, plan.count, gates, betas);
$else
    plan.gates.load_raw(token, plan.count, gates);
$end
$if delta
    plan.betas.load_raw(token, plan.count, betas);
$end
  }
  void put(const Plan& plan, Gates& to) const {
    if (warp() != 0) return;
$if dual
    put_gates(to, gates);
    put_betas(to, betas);
$else
    float x[2];
    plan.gates.read(gates, first, plan.count, plan.gamma, x);
    put_gates(to, x);
$if delta
    plan.betas.read(betas, first, plan.count, 0, x);
    put_betas(to, x);
$end
$end
  }
};

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view;
  constexpr bool reverse = false;
  constexpr float softmax_scale = 1;
  const float skip = number_of_head(D_view, d_type, block_x() / slices % heads);
$end
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int64_t start = slice * COLUMNS, column = start + 16 * warp();
  const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  End& end = reinterpret_cast<End*>(memory + ENDS)[warp()];
  OutRows out(out_view, tokens, head, column, reverse && sequence < sequences);
  if (sequence == sequences) {
    const Sums<4> zeros = {};
#pragma unroll 1
    for (int token = 0; token < count; token += CHUNK) out.store(zeros, token, count);
    return;
  }
  Plan& plan = *reinterpret_cast<Plan*>(memory + PLAN);
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3] - start);
    plan = {{q_view, tokens, head, heads, 0, keys, reverse}, {k_view, tokens, head, heads, 0, keys, reverse},
$if dual
            {v_view, tokens, head, heads, start, values, reverse},
            {{dt_view, dt_type, tokens, head, false}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus},
            0, count};
$else
            {v_view, tokens, head, heads, start, values, reverse}, {g_view, g_type, tokens, head, reverse},
$if delta
            {beta_view, beta_type, tokens, head, reverse},
            reinterpret_cast<const Element*>(inverses) +
                (chunks_before(cum_seqlens, tokens, sequence, q_view.shape[1]) * heads + head) * INVERSE_PARTS * CHUNK * CHUNK,
            heads * INVERSE_PARTS * CHUNK * CHUNK,
$end
            gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), count};
$end
  }
  if (lane() == 0) end = {out, {final_state_view, sequence, head, column}};
  sync_block();
  if (STAGES > 1) plan.copy_async(shared, 0);

  State state = {};
  const StateMemory initial(initial_state_view, sequence, head, column);
  if (initial.data) initial.each([&](int n, int i, const float* at) { state[n][i] = *at; });
  Gates* all_gates = reinterpret_cast<Gates*>(memory + GATES);
  Norms& norms = *reinterpret_cast<Norms*>(memory + NORMS);
  GatesUnderway numbers;
  numbers.load(plan, 0);
  numbers.put(plan, all_gates[0]);
  const float scale = softmax_scale;
$if narrow
  float held = 1;  // times what the registers hold, the state
$end

#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    const int turn = token / CHUNK % 2;
    const int place = turn % STAGES * STAGE;
    const SharedPointer stage = shared + place;
    const KeyTile queries{stage + QUERIES}, keys{stage + KEY_ROWS};
    const ValueTile values{stage + VALUES};
    const Square pairs{shared + PAIRS};
    const Gates& gates = all_gates[turn];
    if (STAGES == 1) plan.copy_async(shared, token);
    copy_async_wait<0>();
    sync_block();  // the chunk's rows and gates are there for all, and all are done with those before
    if (STAGES > 1) plan.copy_async(shared, token + CHUNK);
    numbers.load(plan, token + CHUNK);
    if constexpr (NORMED) {
      put_norms<THREADS>(memory + place + QUERIES, 0, norms.q);
      put_norms<THREADS>(memory + place + KEY_ROWS, CHUNK % THREADS, norms.k);
      sync_block();
    }
    put_pairs(queries, keys, gates, norms, scale, memory + PAIRS);
    sync_block();

    Operands<4> written, rest;  // u, rounded; then as the state takes it in
$if delta and split
    Operands<4> least;
$end
#pragma unroll
    for (int c = 0; c < 4; ++c) load_a_transposed(written[c], values, 16 * c, 16 * warp());
$if narrow
    constexpr float unit = 1;
    const Unit state_unit(largest_size(state));
#pragma unroll
    for (int n = 0; n < 2 * SLICES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) state[n][i] *= state_unit.of;
    held *= state_unit.inverse;
$else
    const float unit = unit_of(state);
$end
    Sums<4> sums = {};
$if delta and split
    {
      Sums<4> seen = {}, x;
      add_seen<true>(seen, state, keys, 1);
      add_least_seen(seen, state, keys);
      to_all_sums(x, written);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 8 * n + lane() % 4 * 2 + i % 2;
          seen[n][i] = gates.beta[t] * (x[n][i] - gates.before[t] * (NORMED ? norms.k[t] : 1) * seen[n][i]);
        }
      add_inverse<false>(sums, seen, stage + INVERSE);
    }
$elif narrow
    add_seen<true>(sums, state, keys, unit);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x[2][4];
      to_sums(x[0], x[1], written[c]);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 16 * c + 8 * n + lane() % 4 * 2 + i % 2;
          const float factor = gates.before[t] * (NORMED ? norms.k[t] : 1) * held;
          sums[2 * c + n][i] = gates.beta[t] * (x[n][i] - factor * sums[2 * c + n][i]);
        }
    }
    const Unit missing_unit(largest_size(sums), LEAST_SUMMAND), inverse_unit = unit_in(memory + place + INVERSE);
    const float written_unit = missing_unit.of * (inverse_unit.of * TWO_UNITS);
    {
      Operands<4> missing, missing_rest;  // beta (v - what the keys read)
      weigh_tokens(missing, missing_rest, sums, [&](int) { return missing_unit.of; });
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = 0;
      add_triangle_precisely<Square>(sums, missing, missing_rest, stage + INVERSE);
    }
    scale_tokens(sums, [](int) { return TWO_UNITS; });
$elif delta
    {
      Sums<4> seen = {};
      add_seen<true>(seen, state, keys, unit);
      Operands<4> missing, missing_rest;  // beta (v - what the keys read)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float x[2][4];
        to_sums(x[0], x[1], written[c]);
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int t = 16 * c + 8 * n + lane() % 4 * 2 + i % 2;
            const float factor = gates.before[t] * (NORMED ? norms.k[t] : 1) * (1 / unit);
            x[n][i] = gates.beta[t] * (x[n][i] - factor * seen[2 * c + n][i]);
          }
        to_operands(missing[c], missing_rest[c], x[0], x[1]);
      }
      add_triangle_precisely<Square>(sums, missing, missing_rest, stage + INVERSE);
    }
$end
$if delta
    Sums<4> own;  // u${narrow ? ', times its unit' : ''}
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) own[n][i] = sums[n][i], sums[n][i] = 0;
#pragma unroll
    for (int c = 0; c < 4; ++c) to_operand(written[c], own[2 * c], own[2 * c + 1]);
$end

    add_seen<false>(sums, state, queries, unit);
$if narrow  // as what is written
    held *= written_unit;
    scale_tokens(sums, [&](int t) { return gates.before[t] * (NORMED ? norms.q[t] : 1) * (scale * held); });
$else
    scale_tokens(sums, [&](int t) { return gates.before[t] * (NORMED ? norms.q[t] : 1) * (scale * (1 / unit)); });
$end
$if dual
    add_skip(sums, written, skip);
$end
    add_triangle(sums, written, pairs);
$if narrow
    const float base = gates.base * held, base_rest = gates.rest * held;
    held = missing_unit.inverse * (inverse_unit.inverse * (1 / TWO_UNITS));
    scale_tokens(sums, [&](int) { return held; });
$end
    end.out.store(sums, token, count);

#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x[2][4];
$if delta
#pragma unroll
      for (int i = 0; i < 4; ++i) x[0][i] = own[2 * c][i], x[1][i] = own[2 * c + 1][i];
$else
      to_sums(x[0], x[1], written[c]);
$end
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = 16 * c + 8 * n + lane() % 4 * 2 + i % 2;
          x[n][i] *= gates.after[t] * ${dual ? 'gates.beta[t]' : '(NORMED ? norms.k[t] : 1)'};
        }
      to_operands(written[c], rest[c], x[0], x[1]);
$if delta and split
      to_least(least[c], x[0], x[1]);
$end
      sync_warp();  // one slice after another, for the sake of registers
    }
    take_in(state, ${narrow ? 'base, base_rest' : 'gates.base, gates.rest'}, written, rest, keys);
$if delta and split
    add_written(state, least, keys);
$end
    if (STAGES == 1) sync_block();
    numbers.put(plan, all_gates[1 - turn]);
  }
  copy_async_wait<0>();
  end.state.each([&](int n, int i, const float* at) { *const_cast<float*>(at) = state[n][i]${narrow ? ' * held' : ''}; });
}
