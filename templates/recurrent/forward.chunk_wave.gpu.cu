// recurrent, forward, a chunk of 32 tokens at a time, on matrix instructions of a wave (MFMA, WMMA). A block goes through one sequence and head
// for some columns of the state; each of its waves keeps 16 of them, with all keys, in registers.
//
// What is computed is what forward.chunk.gpu.cu says, there of 64 tokens: with S the state before a chunk and c_t the sum of the log gates up to
// token t,
//   out_t = scale (e^c_t S^T q_t + sum over s <= t of e^(c_t - c_s) (q_t . k_s) v_s)
//   S     = e^c_last S + sum over s of e^(c_last - c_s) k_s v_s^T
// with exponents that are not positive. The block computes the weights of all pairs of tokens once, the waves the rest, each its own. What goes
// into the state is the sum of two operands, the second of which is what rounding took from the first: so a state nearly has the digits of f32.
//
// States are [key][column], outputs [column][token], so that each is the next product's operand where it is. Keys are in shared memory twice, by
// tokens and transposed; values transposed alone. 64 tokens would not fit there beside 128 keys.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys};                // up to 8 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
constexpr bool NORMED = ${normed};           // l2_norm
constexpr bool NARROW = ${E == 'f16'};
#include "recurrent/chunk_wave_pairs.h"

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;

// Shared memory: a chunk's rows, the pairs' weights, gates and norms.
constexpr int QUERIES = 0, KEY_ROWS = KeyTile::BYTES, TURNED_KEYS = 2 * KeyTile::BYTES, VALUES = TURNED_KEYS + KEYS * TOKEN_PITCH;
constexpr int PAIRS = VALUES + COLUMNS * TOKEN_PITCH, GATES = PAIRS + Pairs::BYTES, PLAN = GATES + static_cast<int>(sizeof(Gates) + 15) / 16 * 16;
constexpr int NORMS = PLAN + 128;
static_assert(NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0) <= ${shared}, "the spec has another size");

// Where a block's rows and numbers are, and its rows of `out`. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows queries, keys;
  ValueRows values;
  TokenNumbers gates;
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

// The weights of a chunk's pairs, the scale included.
static inline void put_pairs(char* memory, const Gates& gates, const Norms& norms, float scale) {
  const SharedPointer shared = shared_pointer(memory);
  const Pairs pairs(memory + PAIRS);
#pragma unroll 1
  for (int block = wave(); block < PAIR_BLOCKS; block += WAVES) {
    Sums x = multiply_block(shared + QUERIES, shared + KEY_ROWS, block);
    const int t = 16 * block_row(block) + matrix_column();
    const float factor = scale * (NORMED ? norms.q[t] : 1);
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int s = 16 * block_column(block) + matrix_row(i);
      x.at[i] = s <= t ? x.at[i] * (NORMED ? norms.k[s] : 1) * factor * gates.left(t, s) : 0;
    }
    pairs.put(block, x);
  }
}

// What the state takes in of each token, [token][column]: its value, times what is left of it after the chunk. Returns the inverse of its unit.
static inline float weigh_values(Parts (&to)[TILES], const Operand (&values)[TILES], const Gates& gates, const Norms& norms) {
  const auto factor = [&](int c, int i) {
    const int t = 16 * c + first_k() + i;
    return gates.after[t] * (NORMED ? norms.k[t] : 1);
  };
  float largest = 0;
  if constexpr (NARROW) {
#pragma unroll
    for (int c = 0; c < TILES; ++c)
#pragma unroll
      for (int i = 0; i < OPERAND_WORDS; ++i) {
        largest = larger_size(largest, low_of(values[c].words[i]) * factor(c, 2 * i));
        largest = larger_size(largest, high_of(values[c].words[i]) * factor(c, 2 * i + 1));
      }
    largest = largest_of_wave(largest);
  }
  const Unit unit(largest);
#pragma unroll
  for (int c = 0; c < TILES; ++c)
#pragma unroll
    for (int i = 0; i < OPERAND_WORDS; ++i)
      to[c].set(i, low_of(values[c].words[i]) * factor(c, 2 * i) * unit.of, high_of(values[c].words[i]) * factor(c, 2 * i + 1) * unit.of);
  return unit.inverse;
}

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
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
            {v_view, tokens, head, heads, start, values, reverse}, {g_view, g_type, tokens, head, reverse}, out,
            gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), count};
  }
  const Pairs pairs(memory + PAIRS);
  Gates& gates = *reinterpret_cast<Gates*>(memory + GATES);
  Norms& norms = *reinterpret_cast<Norms*>(memory + NORMS);

  State state = {};
  StateMemory(initial_state_view, sequence, head, start + 16 * wave()).load(state);
#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    sync_block();  // the plan is there, and all are done with the chunk before
    plan.copy(shared, token);
    load_gates(plan.gates, token, count, plan.gamma, gates);
    sync_block();
    if constexpr (NORMED) {
      put_norms(memory + QUERIES, memory + KEY_ROWS, norms);
      sync_block();
    }
    put_pairs(memory, gates, norms, scale);
    sync_block();

    Operand values[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) values[c] = load_operand(shared + VALUES + 16 * wave() * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
    const Unit unit = unit_of(state);
    Sums sums[TILES] = {};
    add_seen(sums, state, shared + QUERIES, unit.of);
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const int t = 16 * r + matrix_column();
      sums[r] = scaled(sums[r], gates.before[t] * (NORMED ? norms.q[t] : 1) * (scale * unit.inverse));
    }
    pairs.add(sums, values);
    plan.out.store(sums, token, count);

    Parts written[TILES];
    const float inverse = weigh_values(written, values, gates, norms);
    take_in(state, gates.base, gates.rest, written, shared + TURNED_KEYS, inverse);
  }
  StateMemory(final_state_view, sequence, head, start + 16 * wave()).store(state);
}
