// recurrent, forward, with gates of values, on matrix instructions of a wave (MFMA, WMMA): forward.chunk_wave.gpu.cu has the formulas and says how
// matrices lie, where e^c is now a factor of each column of the state. Rows are copied and pairs of tokens multiplied a chunk of 32 tokens at a
// time, once for all columns; the state goes on by 16 tokens, whose weights are made column by column (chunk_value_steps.h).
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys};  // up to 8 more than there are: zeros
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
constexpr bool NORMED = ${normed};  // l2_norm
constexpr bool NARROW = ${E == 'f16'};
constexpr int PARTS = 2;
#include "recurrent/chunk_wave_pairs.h"
#include "recurrent/chunk_value_steps.h"

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;

// Products of a chunk's queries and keys within the halves of each step; the others of a step are among Pairs, in whose blocks all else is 0.
struct HalfPairs {
  float at[TILES][2][HALF][HALF];  // [step][half][t][s]
};
// What a wave's step makes, and of its columns what the halves and the step leave of a state.
struct WaveStep {
  Weighed weighed;
  float halves[2][16], base[16], rest[16];
};

// Shared memory: a chunk's rows, products of its pairs, gates of tokens, norms, what waves make of a step, and where rows are.
constexpr int QUERIES = 0, KEY_ROWS = KeyTile::BYTES, TURNED_KEYS = 2 * KeyTile::BYTES, VALUES = TURNED_KEYS + KEYS * TOKEN_PITCH;
constexpr int PAIRS = VALUES + COLUMNS * TOKEN_PITCH, OWN_PAIRS = PAIRS + Pairs::BYTES, GATES = OWN_PAIRS + static_cast<int>(sizeof(HalfPairs));
constexpr int NORMS = GATES + 4 * CHUNK, STEPS = NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0);
constexpr int PLAN = STEPS + WAVES * static_cast<int>(sizeof(WaveStep));
static_assert(PLAN + 128 <= ${shared}, "the spec has another size");

// Where a block's rows and numbers are, and its rows of `out`. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows queries, keys;
  ValueRows values;
  TokenNumbers gates;
  OutRows out;
  float gamma;
  int count;

  // The chunk from `token` on, to shared memory, without its gates of values.
  void copy(char* memory, int token) const {
    const SharedPointer shared = shared_pointer(memory);
    queries.copy_async({shared + QUERIES}, token, count);
    keys.copy_async({shared + KEY_ROWS}, token, count);
    copy_chunk_transposed(shared + TURNED_KEYS, keys, token, count);
    copy_chunk_transposed(shared + VALUES, values, token, count);
    if (warp() == 0) {
      float numbers[2];
      gates.load(token, count < token + CHUNK ? count : token + CHUNK, gamma, numbers);
      float* to = reinterpret_cast<float*>(memory + GATES) + 2 * lane();
      if (2 * lane() < CHUNK) to[0] = numbers[0], to[1] = numbers[1];
    }
    copy_async_commit();
    copy_async_wait<0>();
  }
};
static_assert(sizeof(Plan) <= 128);

// The weights of a step's pairs of tokens, the scale included, but for what gates leave.
static inline void put_step_pairs(char* memory, int step, const Norms& norms, float scale) {
  const SharedPointer shared = shared_pointer(memory);
  Sums x = multiply_block(shared + QUERIES, shared + KEY_ROWS, step, step);
  const int t = matrix_column();
  const float factor = scale * (NORMED ? norms.q[STEP * step + t] : 1);
  HalfPairs& own = *reinterpret_cast<HalfPairs*>(memory + OWN_PAIRS);
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int s = matrix_row(i);
    x.at[i] *= factor * (NORMED ? norms.k[STEP * step + s] : 1);
    if (t / HALF == s / HALF) own.at[step][t / HALF][t % HALF][s % HALF] = x.at[i];
    if (t / HALF <= s / HALF) x.at[i] = 0;
  }
  Pairs(memory + PAIRS).put(step, step, x);
}

// By the first 32 lanes of a wave. raw: the step's gates as they lie in memory; row: its first token's in the chunk.
static inline void weigh_step(char* memory, const ValueGates& gates, const uint32_t (&raw)[HALF], int row, WaveStep& to) {
  const int half = lane() / 16, first = row + half * HALF;
  float logs[HALF];
  gates.read(raw, reinterpret_cast<const float*>(memory + GATES) + first, logs);
  const Element* values = reinterpret_cast<const Element*>(memory + VALUES + (16 * wave() + lane() % 16) * TOKEN_PITCH) + first;
  const HalfPairs& pairs = *reinterpret_cast<const HalfPairs*>(memory + OWN_PAIRS);
  const auto [factor, log] = weigh_half(logs, pairs.at[row / STEP][half], values, 1, to.weighed);
  to.halves[half][lane() % 16] = factor;
  const SplitExp all = split_exp((log + shuffle_xor(log, 16)) * LN_2);
  if (half == 0) to.base[lane()] = all.base, to.rest[lane()] = all.rest;
}

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int64_t start = slice * COLUMNS, column = start + 16 * wave();
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
  Plan& plan = *reinterpret_cast<Plan*>(memory + PLAN);
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3] - start);
    plan = {{q_view, tokens, head, heads, 0, keys, reverse}, {k_view, tokens, head, heads, 0, keys, reverse},
            {v_view, tokens, head, heads, start, values, reverse}, {g_view, g_type, tokens, head, reverse},
            out, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), count};
  }
  const Norms& norms = *reinterpret_cast<const Norms*>(memory + NORMS);
  WaveStep& made = reinterpret_cast<WaveStep*>(memory + STEPS)[wave()];
  const Pairs pairs(memory + PAIRS);
  const float scale = softmax_scale;
  const ValueGates value_gates(gv_view, gv_type, tokens, head, column + lane() % 16, reverse);
  uint32_t raw[HALF];  // the next step's gates, on their way
  value_gates.load(0, count, raw);

  State state = {};
  StateMemory(initial_state_view, sequence, head, column).load(state);
#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    sync_block();  // the plan is there, and all are done with the chunk before
    plan.copy(memory, token);
    sync_block();
    if constexpr (NORMED) {
      put_norms(memory + QUERIES, memory + KEY_ROWS, *reinterpret_cast<Norms*>(memory + NORMS));
      sync_block();
    }
#pragma unroll 1
    for (int step = wave(); step < TILES; step += WAVES) put_step_pairs(memory, step, norms, scale);
    sync_block();

#pragma unroll 1
    for (int row = 0; row < CHUNK && token + row < count; row += STEP) {
      const int step = row / STEP;
      if (wave_lane() < 32) weigh_step(memory, value_gates, raw, row, made);
      value_gates.load(token + row + STEP, count, raw);
      sync_wave();
      // What the columns' tokens write, [token][column]: what is left of it after its half.
      const int own = matrix_column();
      Sums written[1], before;
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        written[0].at[i] = made.weighed.kept.at[own][matrix_row(i)];
        before.at[i] = matrix_row(i) < HALF ? written[0].at[i] : 0;
      }
      const Unit unit = unit_of(state);
      Sums sums[1] = {};  // [column][token]
      add_seen(sums, state, shared + QUERIES + STEP * step * KEY_PITCH, unit.of);
      const float factor = scale * unit.inverse * (NORMED ? norms.q[row + own] : 1);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sums[0].at[i] *= factor * (own < HALF ? 1 : made.halves[0][matrix_row(i)]);
      const Sums wrote[1] = {before};
      const Unit written_unit = unit_of(wrote);
      pairs.add_block(sums[0], operand_of<Element>(scaled(before, written_unit.of)), step, step, written_unit.inverse);
#pragma unroll
      for (int i = 0; i < SUMS; ++i)
        sums[0].at[i] = sums[0].at[i] * made.weighed.left.at[matrix_row(i)][own] + made.weighed.sums.at[matrix_row(i)][own];
      plan.out.store(sums, token + row, count);

      const float second = made.halves[1][own];
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const int t = matrix_row(i);
        written[0].at[i] *= (t < HALF ? second : 1) * (NORMED ? norms.k[row + t] : 1);
      }
      const Unit taken_unit = unit_of(written);
      const Parts taken[1] = {Parts(scaled(written[0], taken_unit.of))};
      take_in(state, made.base[own], made.rest[own], taken, shared + TURNED_KEYS + 32 * step, taken_unit.inverse);
      sync_wave();  // all have read what is made of a step
    }
  }
  StateMemory(final_state_view, sequence, head, column).store(state);
}
