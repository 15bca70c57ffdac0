// recurrent, forward, with gates of keys and of values together, on matrix instructions of a warp (mma.sync). A pair of tokens weighs a sum
// over keys of what their gates leave, which all columns of the state share, times what a column's own gates leave. So the launch `prepare`
// weighs rows and pairs of tokens by gates of keys and tokens, as that of forward.chunk_keys.gpu.cu, but of each step of 16 tokens by itself;
// then the state goes on a step at a time, as in forward.chunk_values.gpu.cu.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;  // up to 8 more than there are: zeros
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, COLUMNS = 16 * WARPS;
constexpr bool DELTA = false, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = false;                     // chunk_value_units.h has what halves need
#include "recurrent/chunk_gates.h"

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;
using KeyTile = Tile<Element, CHUNK, KEYS>;
using ValueTile = ValueRows::Place;
using Square = Tile<Element, CHUNK, CHUNK>;
// Elements a number of weighed rows; floats of a chunk: decays of keys, by step.
constexpr int QUERY_PIECES = 1, ROW_PIECES = 2, PAIR_PIECES = 1, DECAY_ROW = 4 * KEYS;
#include "recurrent/chunk_value_units.h"
#include "recurrent/chunk_values.h"
constexpr int PREPARE_GROUPS = 1;
#include "recurrent/chunk_prepare.h"

constexpr int STAGES = ${stages};
// A stage in shared memory: queries; keys in two pieces; values; products of pairs; decays. After the stages: warps' weights, and what is
// needed once a chunk or less.
constexpr int KEY_ROWS = KeyTile::BYTES, VALUES = 3 * KeyTile::BYTES, PAIRS = VALUES + ValueTile::BYTES;
constexpr int DECAYS = PAIRS + static_cast<int>(sizeof(ValuePairs)), STAGE = DECAYS + 4 * DECAY_ROW;
constexpr int WEIGHED = STAGES * STAGE, PLAN = WEIGHED + WARPS * static_cast<int>(sizeof(Weighed)), ENDS = PLAN + 128;
static_assert(ENDS + 48 * WARPS <= ${shared} && sizeof(ValuePairs) == 4 * ${pair_floats}, "the spec has another size");

// Where a block's rows are. In shared memory: in registers it would be in the way.
struct Plan {
  ValueRows values;
  const Element *queries, *keys;
  const ValuePairs* pairs;
  const float* decays;
  int64_t heads;
  int count;

  // Starts copying the chunk from `token` on.
  void copy_async(SharedPointer memory, int token) const {
    const SharedPointer stage = memory + token / CHUNK % STAGES * STAGE;
    if (token < count) {
      const int64_t number = token / CHUNK * heads, matrix = CHUNK * KEYS;
      copy_dense_async<THREADS>(KeyTile{stage}, queries + number * matrix);
#pragma unroll 1
      for (int piece = 0; piece < ROW_PIECES; ++piece)
        copy_dense_async<THREADS>(KeyTile{stage + KEY_ROWS + piece * KeyTile::BYTES}, keys + (number * ROW_PIECES + piece) * matrix);
      values.copy_async({stage + VALUES}, token, count);
      copy_bytes_async<sizeof(ValuePairs)>(stage + PAIRS, pairs + number);
      copy_bytes_async<4 * DECAY_ROW>(stage + DECAYS, decays + number * DECAY_ROW);
    }
    copy_async_commit();
  }

 private:
  template <int BYTES> static void copy_bytes_async(SharedPointer to, const void* from) {
#pragma unroll 1
    for (int i = thread_x(); i < BYTES / 16; i += THREADS) copy_async_16(to + 16 * i, static_cast<const char*>(from) + 16 * i, true);
  }
};
static_assert(sizeof(Plan) <= 128 && sizeof(End) <= 48);

// state = decays of columns and of keys state + factor (written + what rounding took from it) (keys + keys_rest), of a step; without the
// product of both rests.
static inline void take_in_weighed_step(State& state, const ColumnFactors& factors, const float* decays, const uint32_t (&written)[4],
                                        const uint32_t (&written_rest)[4], const KeyTile& keys, const KeyTile& keys_rest, int row, float factor) {
#pragma unroll
  for (int k = 0; k < SLICES; ++k) {
    uint32_t b[4], rest[4];
    float sums[2][4] = {};
    keys_rest.load_b_transposed(rest, row, 16 * k);
    keys.load_b_transposed(b, row, 16 * k);
    multiply_two(sums[0], sums[1], written, rest);
    multiply_two(sums[0], sums[1], written_rest, b);
    multiply_two(sums[0], sums[1], written, b);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const Pack<float, 2> decay = load_pack<2>(decays + 16 * k + 8 * n + lane() % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = state[2 * k + n][i];
        x = x * base_of(decay.at[i % 2]) + x * decay.at[i % 2];
        x = x * factors.base[i / 2] + (x * factors.rest[i / 2] + sums[n][i] * factor);
      }
    }
  }
}

// Block number: slice % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, 1) recurrent(${parameters('recurrent')}) {
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int64_t start = slice * COLUMNS, column = start + 16 * warp();
  const Tokens tokens(cum_seqlens, sequences, sequence, v_view.shape[1]);
  const int count = static_cast<int>(tokens.end - tokens.first);
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  End& end = reinterpret_cast<End*>(memory + ENDS)[warp()];
  const OutRows out(out_view, tokens, head, column, reverse && sequence < sequences);
  if (sequence == sequences) {
    const Sums<4> zeros = {};
#pragma unroll 1
    for (int token = 0; token < count; token += CHUNK) out.store(zeros, token, count);
    return;
  }
  Plan& plan = *reinterpret_cast<Plan*>(memory + PLAN);
  if (thread_x() == 0) {
    const int64_t first = chunks_before(cum_seqlens, tokens, sequence, v_view.shape[1]) * heads + head, matrix = first * CHUNK * KEYS;
    plan = {{v_view, tokens, head, heads, start, static_cast<int>(v_view.shape[3] - start), reverse},
            reinterpret_cast<const Element*>(queries_before) + matrix,
            reinterpret_cast<const Element*>(keys_after) + ROW_PIECES * matrix,
            reinterpret_cast<const ValuePairs*>(weights) + first,
            decays + first * DECAY_ROW, heads, count};
  }
  if (lane() == 0) end = {out, {final_state_view, sequence, head, column}};
  sync_block();
  if (STAGES > 1) plan.copy_async(shared, 0);

  State state = {};
  const StateMemory initial(initial_state_view, sequence, head, column);
  if (initial.data) initial.each([&](int n, int i, const float* at) { state[n][i] = *at; });
  Weighed& weighed = reinterpret_cast<Weighed*>(memory + WEIGHED)[warp()];
  const ValueGates value_gates(gv_view, gv_type, tokens, head, column + lane() % 16, reverse);
  uint32_t raw[HALF];  // the next step's gates, on their way
  value_gates.load(0, count, raw);

#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    const int place = token / CHUNK % STAGES * STAGE;
    const SharedPointer stage = shared + place;
    const KeyTile queries{stage}, keys{stage + KEY_ROWS}, keys_rest{stage + KEY_ROWS + KeyTile::BYTES};
    const ValuePairs& pairs = *reinterpret_cast<const ValuePairs*>(memory + place + PAIRS);
$if narrow
    const RowUnits& units = pairs.units;
$else
    const RowUnits units;
$end
    const float* decays_here = reinterpret_cast<const float*>(memory + place + DECAYS);
    const int half = lane() / 16 * HALF;
    const Element* values = reinterpret_cast<const Element*>(memory + place + VALUES) + half * ValueTile::PITCH + 16 * warp() + lane() % 16;
    if (STAGES == 1) plan.copy_async(shared, token);
    copy_async_wait<0>();
    sync_block();  // the chunk is there for all, and all are done with the one before
    if (STAGES > 1) plan.copy_async(shared, token + CHUNK);

#pragma unroll 1
    for (int row = 0; row < CHUNK && token + row < count; row += STEP) {
      float logs[HALF];
      value_gates.read(raw, logs);
      value_gates.load(token + row + STEP, count, raw);
      const Unit unit = unit_of_sums(state);
      Sums<1> sums, left, kept, own;
      see(sums, state, queries, row, unit.of);
      const ColumnFactors factors =
          weigh(logs, pairs.own[row / STEP][half / HALF], values + row * ValueTile::PITCH, ValueTile::PITCH, weighed);
      sync_warp();
      get_columns(weighed.left, left), get_columns(weighed.kept, kept), get_columns(weighed.sums, own);
      sync_warp();  // all have them before the next step's come

      const float read = unit.inverse * units.scaled_queries;
      const Unit across_unit = unit_of_sums(kept);
      float earlier[4], across[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) earlier[i] = kept[0][i] * across_unit.of;
      add_across(across, earlier, pairs.across[row / STEP][lane()]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[0][i] *= read;
        sums[1][i] = sums[1][i] * (factors.halves[0][i / 2] * read) + across[i] * (across_unit.inverse * units.of_pairs());
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[n][i] = sums[n][i] * left[n][i] + own[n][i];
      store_step(end.out, sums, token + row, count);

#pragma unroll
      for (int i = 0; i < 4; ++i) kept[0][i] *= factors.halves[1][i / 2];
      const Unit written_unit = unit_of_sums(kept);
#pragma unroll
      for (int i = 0; i < 4; ++i) kept[0][i] *= written_unit.of, kept[1][i] *= written_unit.of;
      uint32_t written[4], rest[4];
      to_operands(written, rest, kept[0], kept[1]);
      take_in_weighed_step(state, factors, decays_here + row / STEP * KEYS, written, rest, keys, keys_rest, row, written_unit.inverse * units.keys);
    }
    if (STAGES == 1) sync_block();
  }
  copy_async_wait<0>();
  end.state.each([&](int n, int i, const float* at) { *const_cast<float*>(at) = state[n][i]; });
}
