// recurrent, forward, with gates of keys, a chunk of 64 tokens at a time, on matrix instructions of a warp (mma.sync): forward.chunk.gpu.cu
// has the formulas, where e^c is now a factor of each key. The launch `prepare` weighs queries and keys with what the gates leave of them,
// and pairs of tokens; then a block goes through one sequence and head for some columns of the state.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;     // up to 8 more than there are: zeros
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, COLUMNS = 16 * WARPS;
constexpr bool DELTA = ${delta}, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = ${narrow};                    // f16: numbers may be too large or too small for an element
#include "recurrent/chunk_gates.h"

using ValueRows = ChunkRows<Element, COLUMNS, THREADS>;
using KeyTile = Tile<Element, CHUNK, KEYS>;
using ValueTile = ValueRows::Place;
using Square = Tile<Element, CHUNK, CHUNK>;
// Elements a number: the delta rule's errors grow, so that it takes three bf16. Halves have units (chunk_key_units.h).
constexpr int QUERY_PIECES = 1, ROW_PIECES = ${split} ? 3 : 2, PAIR_PIECES = 1, INVERSE_PARTS = ${split} ? 3 : 2;
// Floats of a chunk: decays of keys, (delta) betas, of halves units of its rows.
constexpr int DECAY_ROW = ${delta} ? KEYS + CHUNK${narrow ? ' + 4' : ''} : KEYS${narrow ? ' + 4' : ''};
#include "recurrent/chunk_block.h"
$if narrow
#include "recurrent/chunk_unit.h"
#include "recurrent/chunk_key_units.h"

// Behind the decays.
static inline RowUnits& units_in(float* decay_row) { return reinterpret_cast<RowUnits*>(decay_row + DECAY_ROW)[-1]; }
$end
constexpr int PREPARE_GROUPS = DELTA ? 2 : 1;
#include "recurrent/chunk_prepare.h"
#include "recurrent/chunk_weighed.h"

constexpr int STAGES = ${stages};
// A stage in shared memory: queries; keys, (delta) keys before they write, each in pieces; values, the pairs' weights, (delta) the inverse,
// decays.
$if delta and keys > 128  // rows take turns in one place: keys before they write; queries, where the first piece of these was; keys
constexpr int KEY_ROWS = 0, EARLY_KEYS = 0, VALUES = ROW_PIECES * KeyTile::BYTES, PAIRS = VALUES + ValueTile::BYTES;
$else
constexpr int KEY_ROWS = KeyTile::BYTES, EARLY_KEYS = (1 + ROW_PIECES) * KeyTile::BYTES;
constexpr int VALUES = (1 + (DELTA ? 2 : 1) * ROW_PIECES) * KeyTile::BYTES, PAIRS = VALUES + ValueTile::BYTES;
$end
constexpr int INVERSE = PAIRS + Square::BYTES, DECAYS = INVERSE + (DELTA ? INVERSE_PARTS * Square::BYTES : 0), STAGE = DECAYS + 4 * DECAY_ROW;
constexpr int PLAN = STAGES * STAGE, ENDS = PLAN + 128;
static_assert(ENDS + 48 * WARPS <= ${shared}, "the spec has another size");

// Where a block's rows are. In shared memory: in registers it would be in the way.
struct Plan {
  ValueRows values;
  const Element *queries, *keys, *pairs;
$if delta
  const Element *early_keys, *inverse;
$end
  const float* decays;
  int64_t heads;
  int count;

  // Starts copying the chunk from `token` on.
  void copy_async(SharedPointer memory, int token) const {
    const SharedPointer stage = memory + token / CHUNK % STAGES * STAGE;
    if (token < count) {
      const int64_t number = token / CHUNK * heads, matrix = CHUNK * KEYS, square = CHUNK * CHUNK;
      const auto copy_keys = [&](int place, const Element* from) { copy_dense_async<THREADS>(KeyTile{stage + place}, from); };
      const auto copy_square = [&](int place, const Element* from) { copy_dense_async<THREADS>(Square{stage + place}, from); };
$if not delta or keys <= 128
      copy_keys(0, queries + number * matrix);
$end
#pragma unroll 1
      for (int piece = 0; piece < ROW_PIECES; ++piece) {
$if not delta or keys <= 128
        copy_keys(KEY_ROWS + piece * KeyTile::BYTES, keys + (number * ROW_PIECES + piece) * matrix);
$end
$if delta
        copy_keys(EARLY_KEYS + piece * KeyTile::BYTES, early_keys + (number * ROW_PIECES + piece) * matrix);
$end
      }
      values.copy_async({stage + VALUES}, token, count);
      copy_square(PAIRS, pairs + number * square);
$if delta
#pragma unroll 1
      for (int part = 0; part < INVERSE_PARTS; ++part)
        copy_square(INVERSE + part * Square::BYTES, inverse + (number * INVERSE_PARTS + part) * square);
$end
      for (int i = thread_x(); i < DECAY_ROW / 4; i += THREADS) copy_async_16(stage + DECAYS + 16 * i, decays + number * DECAY_ROW + 4 * i, true);
    }
    copy_async_commit();
  }
$if delta and keys > 128

  // By all, who are done with the rows before: the chunk's queries and all pieces of its keys but the first; then that.
  void copy_queries(SharedPointer stage, int token) const { copy_turn(stage, token, queries, 1, 1, ROW_PIECES); }
  void copy_keys(SharedPointer stage, int token) const { copy_turn(stage, token, keys, ROW_PIECES, 0, 0); }
  // The first piece of `pieces`, and pieces of keys.
  void copy_turn(SharedPointer stage, int token, const Element* first, int pieces, int from, int to) const {
    const int64_t number = token / CHUNK * heads, matrix = CHUNK * KEYS;
    sync_block();
    copy_dense_async<THREADS>(KeyTile{stage}, first + number * pieces * matrix);
#pragma unroll 1
    for (int piece = from; piece < to; ++piece)
      copy_dense_async<THREADS>(KeyTile{stage + piece * KeyTile::BYTES}, keys + (number * ROW_PIECES + piece) * matrix);
    copy_async_commit();
    copy_async_wait<0>();
    sync_block();
  }
$end
};
static_assert(sizeof(Plan) <= 128 && sizeof(End) <= 48);

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
            reinterpret_cast<const Element*>(weights) + first * CHUNK * CHUNK,
$if delta
            reinterpret_cast<const Element*>(keys_before) + ROW_PIECES * matrix,
            reinterpret_cast<const Element*>(inverses) + first * INVERSE_PARTS * CHUNK * CHUNK,
$end
            decays + first * DECAY_ROW, heads, count};
  }
  if (lane() == 0) end = {out, {final_state_view, sequence, head, column}};
  sync_block();
  if (STAGES > 1) plan.copy_async(shared, 0);

  State state = {};
  const StateMemory initial(initial_state_view, sequence, head, column);
  if (initial.data) initial.each([&](int n, int i, const float* at) { state[n][i] = *at; });

#pragma unroll 1
  for (int token = 0; token < count; token += CHUNK) {
    const int place = token / CHUNK % STAGES * STAGE;
    const SharedPointer stage = shared + place;
    if (STAGES == 1) plan.copy_async(shared, token);
    copy_async_wait<0>();
    sync_block();  // the chunk is there for all, and all are done with the one before
    if (STAGES > 1) plan.copy_async(shared, token + CHUNK);

    Operands<4> written, rest;  // u, and what rounding took from it
    const auto load_values = [&] {
#pragma unroll
      for (int c = 0; c < 4; ++c) load_a_transposed(written[c], ValueTile{stage + VALUES}, 16 * c, 16 * warp());
    };
$if narrow
    const Unit unit = common_unit(state);
    const RowUnits units = units_in(reinterpret_cast<float*>(memory + place + DECAYS));
$end
    Sums<4> sums = {};
    const float* decay = reinterpret_cast<const float*>(memory + place + DECAYS);
$if delta and not narrow
    {
      Sums<4> seen = {}, x;
      add_seen_of_pieces(seen, state, stage + EARLY_KEYS);
      load_values();
      to_all_sums(x, written);
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) seen[n][i] = decay[KEYS + 8 * n + lane() % 4 * 2 + i % 2] * (x[n][i] - seen[n][i]);
      add_inverse<false>(sums, seen, stage + INVERSE);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      to_operands(written[c], rest[c], sums[2 * c], sums[2 * c + 1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[2 * c][i] = 0, sums[2 * c + 1][i] = 0;
    }
$elif delta
    add_seen_of_pieces(sums, state, stage + EARLY_KEYS, unit.of);
    load_values();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x[2][4];
      to_sums(x[0], x[1], written[c]);
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[2 * c + n][i] = x[n][i] - sums[2 * c + n][i] * (unit.inverse * units.keys);
    }
    const float* betas = decay + KEYS;
    add_scaled_inverse<false>(sums, betas, stage + INVERSE, units.inverse);
    const Unit written_unit(largest_weighed(sums, [&](int t) { return betas[t]; }), LEAST_SUMMAND);
    weigh_tokens(written, rest, sums, [&](int t) { return betas[t] * written_unit.of; });
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
$end

$if delta and keys > 128
    plan.copy_queries(stage, token);
$end
$if narrow
    // What queries read of the state goes into the units of what pairs read, which is added to it. That of queries and the scale are in both.
    add_seen<false>(sums, state, KeyTile{stage}, unit.of);
    const float as_pairs = unit.inverse * (PAIR_FACTOR / units.keys)${delta ? ' * written_unit.of' : ''};
    scale_tokens(sums, [&](int) { return as_pairs; });
$else
    add_seen<false>(sums, state, KeyTile{stage}, 1);
$end
    if (!DELTA) load_values();
    add_triangle(sums, written, Square{stage + PAIRS});
$if narrow
    const float of_pairs = units.of_pairs()${delta ? ' * written_unit.inverse' : ''};
    scale_tokens(sums, [&](int) { return of_pairs; });
$end
    end.out.store(sums, token, count);
$if delta and keys > 128
    plan.copy_keys(stage, token);
$end
$if not delta and keys <= 128
    take_in_weighed<DELTA>(state, decay, written, rest, KeyTile{stage + KEY_ROWS}, KeyTile{stage + KEY_ROWS + KeyTile::BYTES}${narrow ? ', units.keys' : ''});
$else
    take_in_pieces<ROW_PIECES, ${delta}>(state, decay, written, rest, stage + KEY_ROWS${narrow and delta ? ', written_unit.inverse * units.keys' : narrow ? ', units.keys' : ''});
$end
    if (STAGES == 1) sync_block();
  }
  copy_async_wait<0>();
  end.state.each([&](int n, int i, const float* at) { *const_cast<float*>(at) = state[n][i]; });
}
