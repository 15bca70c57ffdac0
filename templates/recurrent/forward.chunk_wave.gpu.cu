// recurrent, forward, a chunk of 32 tokens at a time, on matrix instructions of a wave (MFMA, WMMA). A block goes through one sequence and head
// for some columns of the state; each of its waves keeps 16 of them, with all keys, in registers.
//
// What is computed is what forward.chunk.gpu.cu says, there of 64 tokens: with S the state before a chunk, c_t the sum of the log gates up to
// token t, and u_t what token t writes (v_t; with beta see below),
//   out_t = scale (e^c_t S^T q_t + sum over s <= t of e^(c_t - c_s) (q_t . k_s) u_s)
//   S     = e^c_last S + sum over s of e^(c_last - c_s) k_s u_s^T
// with exponents that are not positive. The block computes the weights of all pairs of tokens once, the waves the rest, each its own. What goes
// into the state is the sum of two operands, the second of which is what rounding took from the first: so a state nearly has the digits of f32.
// What is only read to `out` is rounded once.
$if delta
//
// The delta rule: u_t = beta_t (v_t - e^c_t S^T k_t - sum over s < t of e^(c_t - c_s) (k_t . k_s) u_s), a triangular system
// (chunk_wave_delta.h). What tokens write may be far larger than its sum: of bf16 there are three operands.
$end
//
// States and what tokens write are [key or token][column], outputs [column][token], so that each is the next product's operand where it is.
// Keys are in shared memory twice, by tokens and transposed; values transposed alone. 64 tokens would not fit there beside 128 keys.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys};  // up to 8 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
constexpr bool DELTA = ${delta}, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = ${E == 'f16'};
constexpr int PARTS = ${delta and E == 'bf16' ? 3 : 2};
#include "recurrent/chunk_wave_pairs.h"
$if delta
#include "recurrent/chunk_wave_delta.h"
$elif dual  // ssd: steps are factors of keys, and lie where betas do
#include "ssd/dual_wave.h"
$end

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;

// Shared memory: a chunk's rows, the pairs' weights, gates, where rows are, norms, and the delta rule's system.
constexpr int QUERIES = 0, KEY_ROWS = KeyTile::BYTES, TURNED_KEYS = 2 * KeyTile::BYTES, VALUES = TURNED_KEYS + KEYS * TOKEN_PITCH;
constexpr int PAIRS = VALUES + COLUMNS * TOKEN_PITCH, GATES = PAIRS + Pairs::BYTES, PLAN = GATES + static_cast<int>(sizeof(Gates) + 15) / 16 * 16;
constexpr int NORMS = PLAN + 128, SOLVER = NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0);
static_assert(SOLVER + (${delta ? 'Solver::BYTES' : '0'}) <= ${shared}, "the spec has another size");

// Where a block's rows and numbers are, and its rows of `out`. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows queries, keys;
  ValueRows values;
  ${dual ? 'DualNumbers' : 'TokenNumbers'} gates${delta ? ', betas' : ''};
  OutRows out;
  float gamma;
  int count;

  // The chunk from `token` on, to shared memory.
  void copy(SharedPointer shared, int token) const {
    queries.copy_async({shared + QUERIES}, token, count);
    keys.copy_async({shared + KEY_ROWS}, token, count);
    copy_chunk_transposed(shared + TURNED_KEYS, keys, token, count);
    copy_chunk_transposed(shared + VALUES, values, token, count);
    copy_async_commit();
    copy_async_wait<0>();
  }
};
static_assert(sizeof(Plan) <= 128);

// The weights of a block of a chunk's pairs, the scale included.
static inline void put_pairs(char* memory, int block, const Gates& gates, const Norms& norms, float scale) {
  const SharedPointer shared = shared_pointer(memory);
  Sums x = multiply_block(shared + QUERIES, shared + KEY_ROWS, block);
  const int t = 16 * block_row(block) + matrix_column();
  const float factor = scale * (NORMED ? norms.q[t] : 1);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = 16 * block_column(block) + matrix_row(i);
    x.at[i] = s <= t ? x.at[i] * ${dual ? 'gates.beta[s]' : '(NORMED ? norms.k[s] : 1)'} * factor * gates.left(t, s) : 0;
  }
  Pairs(memory + PAIRS).put(block, x);
}
$if delta

// A block of the system. What is not below the diagonal is not read.
static inline void put_system(char* memory, int block, const Gates& gates, const Norms& norms) {
  const SharedPointer keys = shared_pointer(memory) + KEY_ROWS;
  Sums x = multiply_block(keys, keys, block);
  const int t = 16 * block_row(block) + matrix_column();
  const float factor = gates.beta[t] * (NORMED ? norms.k[t] : 1);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = 16 * block_column(block) + matrix_row(i);
    x.at[i] = s < t ? x.at[i] * (NORMED ? norms.k[s] : 1) * factor * gates.left(t, s) : 0;
  }
  Solver{memory + SOLVER}.put(block, x);
}
$end

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view;
  constexpr bool reverse = false;
  constexpr float softmax_scale = 1;
$end
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int64_t start = slice * COLUMNS;
  const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  const OutRows out(out_view, tokens, head, start, reverse && sequence < sequences);
  if (sequence == sequences) {
    const Sums zeros[TILES] = {};
#pragma unroll 1
    for (int token = 0; token < count; token += CHUNK) out.store(zeros, token, count);
    return;
  }
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const float scale = softmax_scale;
  Plan& plan = *reinterpret_cast<Plan*>(memory + PLAN);
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3] - start);
    plan = {{q_view, tokens, head, heads, 0, keys, reverse}, {k_view, tokens, head, heads, 0, keys, reverse},
$if dual
            {v_view, tokens, head, heads, start, values, reverse},
            dual_numbers(dt_view, dt_type, A_view, a_type, dt_bias_view, bias_type, tokens, head, dt_softplus), out, 0, count};
$else
            {v_view, tokens, head, heads, start, values, reverse}, {g_view, g_type, tokens, head, reverse},
$if delta
            {beta_view, beta_type, tokens, head, reverse},
$end
            out, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), count};
$end
  }
  Gates& gates = *reinterpret_cast<Gates*>(memory + GATES);
  Norms& norms = *reinterpret_cast<Norms*>(memory + NORMS);
$if dual
  const auto key_norm = [&](int t) { return gates.beta[t]; };
  const float skip = number_of_head(D_view, d_type, head);
$else
  const auto key_norm = [&](int t) { return NORMED ? norms.k[t] : 1; };
$end

  State state = {};
  ${dual ? 'Turned' : ''}StateMemory(initial_state_view, sequence, head, start + 16 * wave()).load(state);
#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    sync_block();  // the plan is there, and all are done with the chunk before
    plan.copy(shared, token);
$if dual
    load_steps(plan.gates, token, count, gates);
$else
    load_gates(plan.gates, token, count, plan.gamma, gates);
$end
$if delta
    load_betas(plan.betas, token, count, gates);
$end
    sync_block();
    if constexpr (NORMED) {
      put_norms(memory + QUERIES, memory + KEY_ROWS, norms);
      sync_block();
    }
#pragma unroll 1
    for (int block = wave(); block < (DELTA ? 2 : 1) * PAIR_BLOCKS; block += WAVES) {
$if delta
      if (block >= PAIR_BLOCKS) {
        put_system(memory, block - PAIR_BLOCKS, gates, norms);
        continue;
      }
$end
      put_pairs(memory, block, gates, norms, scale);
    }
    sync_block();

    const Unit unit = unit_of(state);
    Sums written[TILES];
$if not delta
    load_values(written, memory + VALUES);
$else
    const Solver solver{memory + SOLVER};
    solver.invert();
    Sums seen[TILES] = {};
    add_seen_precisely(seen, state, shared + KEY_ROWS, unit.of);
    load_values(written, memory + VALUES);
#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int t = 16 * c + matrix_row(i);
        written[c].at[i] = gates.beta[t] * (written[c].at[i] - gates.before[t] * key_norm(t) * unit.inverse * seen[c].at[i]);
      }
    sync_block();  // the inverses are there
    solver.solve(written);
$end
    const Unit written_unit = DELTA ? unit_of(written) : Unit();
    Operand rounded[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) rounded[c] = operand_of<Element>(scaled(written[c], written_unit.of));

    Sums sums[TILES] = {};
    add_seen(sums, state, shared + QUERIES, unit.of);
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const int t = 16 * r + matrix_column();
      sums[r] = scaled(sums[r], gates.before[t] * (NORMED ? norms.q[t] : 1) * (scale * unit.inverse));
    }
$if dual
    add_skip(sums, memory + VALUES, skip);
$end
    Pairs(memory + PAIRS).add(sums, rounded, written_unit.inverse);
    plan.out.store(sums, token, count);

#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int t = 16 * c + matrix_row(i);
        written[c].at[i] *= gates.after[t] * key_norm(t);
      }
    const Unit taken_unit = unit_of(written);
    Parts taken[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) taken[c] = Parts(scaled(written[c], taken_unit.of));
    take_in(state, gates.base, gates.rest, taken, shared + TURNED_KEYS, taken_unit.inverse);
  }
  ${dual ? 'Turned' : ''}StateMemory(final_state_view, sequence, head, start + 16 * wave()).store(state);
}
