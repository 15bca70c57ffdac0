// recurrent, forward, with gates of values, on matrix instructions of a warp (mma.sync): forward.chunk.gpu.cu has the formulas, where e^c is
// now a factor of each column of the state. Rows are copied and pairs of tokens multiplied a chunk of 64 tokens at a time, once for all
// columns; the state goes on by 16 tokens (chunk_values.h), whose weights are made column by column.
$if delta
// So is what the tokens write, with the delta rule (chunk_value_delta.h).
$end
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;  // up to 8 more than there are: zeros
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, COLUMNS = 16 * WARPS;
constexpr bool NORMED = ${normed};                 // l2_norm
constexpr bool NARROW = ${E == 'f16'};             // a state may be too large for an element
#include "recurrent/chunk_gates.h"

using KeyRows = ChunkRows<Element, KEYS, THREADS>;
using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;
using KeyTile = KeyRows::Place;
using ValueTile = ValueRows::Place;
#include "recurrent/chunk_values.h"
#include "recurrent/chunk_value_units.h"
$if delta
#include "recurrent/chunk_value_delta.h"
using StepPairs = DeltaPairs;
using Step = DeltaStep;
$else
using StepPairs = ValuePairs;
using Step = Weighed;
$end

constexpr int STAGES = ${stages};
// Shared memory: stages of copied rows, products of pairs, two chunks' gates of tokens (and betas), warps' weights, norms, and what is needed
// once a chunk or less.
constexpr int QUERIES = 0, KEY_ROWS = KeyTile::BYTES, VALUES = 2 * KeyTile::BYTES, STAGE = VALUES + ValueTile::BYTES;
constexpr int PAIRS = STAGES * STAGE, GATES = PAIRS + static_cast<int>(sizeof(StepPairs)), WEIGHED = GATES + ${delta ? 4 : 2} * 4 * CHUNK;
constexpr int NORMS = WEIGHED + WARPS * static_cast<int>(sizeof(Step)), PLAN = NORMS + (NORMED ? static_cast<int>(sizeof(Norms)) : 0);
constexpr int PLAN_BYTES = ${delta ? 160 : 128}, ENDS = PLAN + PLAN_BYTES;
static_assert(ENDS + 48 * WARPS <= ${shared}, "the spec has another size");

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct Plan {
  KeyRows queries, keys;
  ValueRows values;
  TokenNumbers gates${delta ? ', betas' : ''};
  float gamma;
  int count;

  // Starts copying the chunk from `token` on.
  void copy_async(SharedPointer memory, int token) const {
    const SharedPointer stage = memory + token / CHUNK % STAGES * STAGE;
    if (token < count) {
      queries.copy_async({stage + QUERIES}, token, count);
      keys.copy_async({stage + KEY_ROWS}, token, count);
      values.copy_async({stage + VALUES}, token, count);
    }
    copy_async_commit();
  }
};
static_assert(sizeof(Plan) <= PLAN_BYTES && sizeof(End) <= 48);

// A chunk's numbers of tokens on their way, in the block's first warp.
struct NumbersUnderway {
  uint32_t raw[2];
  int first;
  void load(const TokenNumbers& numbers, int token, int count) {
    if (warp() != 0) return;
    first = token;
    numbers.load_raw(token, count, raw);
  }
  void put(const TokenNumbers& numbers, int count, float more, float* to) const {
    if (warp() != 0) return;
    float x[2];
    numbers.read(raw, first, count, more, x);
    to[2 * lane()] = x[0], to[2 * lane() + 1] = x[1];
  }
};

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
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
            {v_view, tokens, head, heads, start, values, reverse}, {g_view, g_type, tokens, head, reverse},
$if delta
            {beta_view, beta_type, tokens, head, reverse},
$end
            gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), count};
  }
  if (lane() == 0) end = {out, {final_state_view, sequence, head, column}};
  sync_block();
  if (STAGES > 1) plan.copy_async(shared, 0);

  State state = {};
  const StateMemory initial(initial_state_view, sequence, head, column);
  if (initial.data) initial.each([&](int n, int i, const float* at) { state[n][i] = *at; });
  float* all_gates = reinterpret_cast<float*>(memory + GATES);
  StepPairs& pairs = *reinterpret_cast<StepPairs*>(memory + PAIRS);
  Step& made = reinterpret_cast<Step*>(memory + WEIGHED)[warp()];
  Norms& norms = *reinterpret_cast<Norms*>(memory + NORMS);
  NumbersUnderway numbers${delta ? ', betas' : ''};
  numbers.load(plan.gates, 0, count);
  numbers.put(plan.gates, count, plan.gamma, all_gates);
$if delta
  float* all_betas = all_gates + 2 * CHUNK;
  betas.load(plan.betas, 0, count);
  betas.put(plan.betas, count, 0, all_betas);
$end
  const ValueGates value_gates(gv_view, gv_type, tokens, head, column + lane() % 16, reverse);
  uint32_t raw[HALF];  // the next step's gates, on their way
  value_gates.load(0, count, raw);
  const float scale = softmax_scale;

#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    const int turn = token / CHUNK % 2;
    const int place = turn % STAGES * STAGE;
    const SharedPointer stage = shared + place;
    const KeyTile queries{stage + QUERIES}, keys{stage + KEY_ROWS};
    const int half = lane() / 16 * HALF;
    const Element* values = reinterpret_cast<const Element*>(memory + place + VALUES) + half * ValueTile::PITCH + 16 * warp() + lane() % 16;
    const float* gates = all_gates + turn * CHUNK + half;
    if (STAGES == 1) plan.copy_async(shared, token);
    copy_async_wait<0>();
    sync_block();  // the chunk's rows and gates are there for all, and all are done with those before
    if (STAGES > 1) plan.copy_async(shared, token + CHUNK);
    numbers.load(plan.gates, token + CHUNK, count);
$if delta
    betas.load(plan.betas, token + CHUNK, count);
$end
    if constexpr (NORMED) {
      put_norms<THREADS>(memory + place + QUERIES, 0, norms.q);
      put_norms<THREADS>(memory + place + KEY_ROWS, CHUNK % THREADS, norms.k);
      sync_block();
    }
    put_${delta ? 'delta' : 'value'}_pairs(queries, keys, norms, scale, pairs);
    sync_block();

#pragma unroll 1
    for (int row = 0; row < CHUNK && token + row < count; row += STEP) {
      float logs[HALF];
      value_gates.read(raw, gates + row, logs);
      value_gates.load(token + row + STEP, count, raw);
      const auto norm = [&](const float* of, int n, int i) { return NORMED ? of[row + HALF * n + lane() % 4 * 2 + i % 2] : 1; };
      Sums<1> sums, left, kept, own;
$if delta
      const Unit unit = unit_of_sums(state);
      Sums<1> seen;
      see(sums, state, queries, row, unit.of);
      see<DELTA_PIECES>(seen, state, keys, row, unit.of);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          seen[n][i] *= norm(norms.k, n, i) * unit.inverse;
          sums[n][i] *= norm(norms.q, n, i) * (scale * unit.inverse);
        }
      put_columns(made.seen, seen);
      sync_warp();
      const ColumnFactors factors = solve_step(logs, pairs, row / STEP, all_betas + turn * CHUNK + half + row, values + row * ValueTile::PITCH, ValueTile::PITCH, made);
      sync_warp();
      get_columns(made.left, left), get_columns(made.kept, kept), get_columns(made.sums, own);
      sync_warp();  // all have them before the next step's come
$else
      const float unit = unit_of(state);
      see(sums, state, queries, row, unit);
      const ColumnFactors factors = weigh(logs, pairs.own[row / STEP][half / HALF], values + row * ValueTile::PITCH, ValueTile::PITCH, made);
      sync_warp();
      get_columns(made.left, left), get_columns(made.kept, kept), get_columns(made.sums, own);
      sync_warp();  // all have them before the next step's come
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] *= norm(norms.q, n, i) * (scale * (1 / unit));
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[1][i] *= factors.halves[0][i / 2];
      add_across(sums[1], kept[0], pairs.across[row / STEP][lane()]);
$end
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = sums[n][i] * left[n][i] + own[n][i];
      store_step(end.out, sums, token + row, count);

$if not delta
#pragma unroll
      for (int i = 0; i < 4; ++i) kept[0][i] *= factors.halves[1][i / 2];
$end
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) kept[n][i] *= norm(norms.k, n, i);
      const Unit unit_of_written = unit_of_sums(kept);
#pragma unroll
      for (int i = 0; i < 4; ++i) kept[0][i] *= unit_of_written.of, kept[1][i] *= unit_of_written.of;
      uint32_t written[${delta ? 'DELTA_PIECES' : '2'}][4];
      to_pieces(written, kept[0], kept[1]);
      take_in_step(state, factors, written, keys, row, unit_of_written.inverse);
    }
    if (STAGES == 1) sync_block();
    numbers.put(plan.gates, count, plan.gamma, all_gates + (1 - turn) * CHUNK);
$if delta
    betas.put(plan.betas, count, 0, all_betas + (1 - turn) * CHUNK);
$end
  }
  copy_async_wait<0>();
  end.state.each([&](int n, int i, const float* at) { *const_cast<float*>(at) = state[n][i]; });
}
