// GPU vocabulary of the chunked recurrence's gradient with gates of keys: the entry that computes the gradients of one chunk's tokens. Part
// of backward.chunk_keys.gpu.cu.
//
// With p_t what the gates leave from the start of a part of 16 tokens to token t, r_s what they leave from token s to the part's end, and e
// what they leave of a whole part, each by key, the pair (t, s) of parts a > b has the factor p_t (e between) r_s: so rows times p and r
// meet in matrix products, whose sums decay by e from part to part, as a state does. Pairs within a part are added up one by one, in f32.
//
// A log gate's gradient is the sum over what flows past it: q dq of tokens from it on, less k dk of these, and what the state after the
// chunk gets of the one before it and of the chunk's keys. With the delta rule keys read, too: a key's gradient is that of a row that reads
// and of one that is kept, and the pair (t, s) has a second product, -beta_t x_t . u_s.
#pragma once

constexpr int SUM_PITCH = KEYS + 4, SUMS_BYTES = CHUNK * SUM_PITCH * 4;  // floats of a row; a row of each token
// A thread's part of a chunk when numbers are taken one by one: so many keys, KEY_THREADS apart, of the tokens of a part.
constexpr int OWN_KEYS = (PARTS * KEYS + THREADS - 1) / THREADS, KEY_THREADS = KEYS / OWN_KEYS;
constexpr bool LOADS_AHEAD = false, CLOSES_LATE = false, MORE_SUMS = false;
static_assert(KEYS % OWN_KEYS == 0 && PARTS * KEY_THREADS <= THREADS);
constexpr int GROUPS = THREADS / (KEYS / 2);  // of threads that share two keys of a state

struct alignas(16) KeyFlows {
  float leaves[PARTS][KEYS];     // e
  float left[PARTS][KEYS];       // what the part's keys give to the end of it, of what flows into the state after the chunk
  float change[PARTS][KEYS];     // sums of q dq - k dk
  float through[GROUPS][KEYS];   // products of the states before and of the gradient after the chunk
  float token_gates[CHUNK], gates[WARPS];  // logs, and sums of gradients
  Norms norms;
$if narrow
  PairUnits pair_units${delta ? ', key_pair_units' : ''};
  RowUnits row_units;
$end
$if delta
  float betas[CHUNK], of_betas[CHUNK];  // and gradients
$end
};

// Places in shared memory. What `gradients` has in its loop over values and what it has after it share one.
struct At {
  static constexpr int KEY_ROWS = KeyTile::BYTES, FLOWS = 2 * KeyTile::BYTES, PLAN = FLOWS + static_cast<int>(sizeof(KeyFlows)), SHARED = PLAN + 128;
  // In the loop (without the delta rule: keys that are left after the chunk, weights of pairs); stages: some columns of out's gradients, of
  // what tokens write (delta: and of its gradients), of both states.
$if exchanged
  static constexpr int KEYS_AFTER = SHARED, WEIGHTS = KEYS_AFTER + KeyTile::BYTES, QUERIES_BEFORE = WEIGHTS + Square::BYTES, FIRST_STAGE = QUERIES_BEFORE + KeyTile::BYTES;
$else
  static constexpr int KEYS_AFTER = SHARED, WEIGHTS = KEYS_AFTER + KeyTile::BYTES, FIRST_STAGE = DELTA ? SHARED : WEIGHTS + Square::BYTES;
$end
  static constexpr int WRITTEN = ValueTile::BYTES, WRITTEN_GRADIENTS = WRITTEN + WRITTEN_PIECES * ValueTile::BYTES;
  static constexpr int BEFORE = WRITTEN_GRADIENTS + (DELTA ? PIECES * ValueTile::BYTES : 0), AFTER = BEFORE + PIECES * StateTile::BYTES;
  static constexpr int STAGE = AFTER + PIECES * StateTile::BYTES;
  // After it: products of pairs within parts and of different parts; keys times r, whose place queries and (delta) keys times p take. Where
  // these are and those of different parts, later sums of queries and keys, and (delta) of keys that read; where queries' are, gradients of gates.
  static constexpr int NEAR_BYTES = PARTS * PART * PART * 4, NEAR = SHARED, NEAR_KEYS = NEAR + NEAR_BYTES;
  static constexpr int FLOWS_OF_PAIRS = NEAR_KEYS + (DELTA ? NEAR_BYTES : 0), FLOWS_OF_KEYS = FLOWS_OF_PAIRS + PIECES * Square::BYTES;
  static constexpr int KEPT = FLOWS_OF_KEYS + (DELTA ? PIECES * Square::BYTES : 0), READ = KEPT, READ_KEYS = READ + PIECES * KeyTile::BYTES;
  static constexpr int QUERY_SUMS = FLOWS_OF_PAIRS, KEY_SUMS = QUERY_SUMS + SUMS_BYTES, READ_SUMS = KEY_SUMS + SUMS_BYTES, MORE_KEY_SUMS = KEY_SUMS;
  static constexpr int END_OF_LOOP = FIRST_STAGE + STAGES * STAGE, END_OF_ROWS = READ_KEYS + (DELTA ? PIECES * KeyTile::BYTES : 0),
                       END_OF_SUMS = READ_SUMS + (DELTA ? SUMS_BYTES : 0);
  static constexpr int LATER = END_OF_ROWS > END_OF_SUMS ? END_OF_ROWS : END_OF_SUMS, END = END_OF_LOOP > LATER ? END_OF_LOOP : LATER;
};
static_assert(At::END <= ${shared}, "the spec has another size");

// Where a block's rows are. In shared memory: in registers it would be in the way.
struct KeyGradientPlan {
  ChunkRows<Element, COLUMNS, THREADS> douts;
$if delta
  const Element* written;
$else
  ChunkRows<Element, COLUMNS, THREADS> values;
$end
  const Element* kept;
$if narrow
  const float* units;  // inverses of those of kept states, 16 values each, and behind them of their gradients, then (delta) of what tokens write, of its gradients
$end
  int padded_values, token, count, slices;
$if narrow
  // Of 16 columns, number k of a slice.
  float unit(int row, int slice, int k) const { return units[row * (padded_values / 16) + slice * (COLUMNS / 16) + k]; }
$end

  // Starts copying some columns.
  void copy_async(SharedPointer shared, int slice) const {
    if (slice < slices) {
      const SharedPointer stage = shared + At::FIRST_STAGE + slice % STAGES * At::STAGE;
      const int start = slice * COLUMNS;
      const auto copy_rows = [&](int place, ChunkRows<Element, COLUMNS, THREADS> rows) {
        rows.first += start, rows.columns -= start;
        rows.copy_async({stage + place}, token, count);
      };
      copy_rows(0, douts);
$if delta
#pragma unroll 1
      for (int piece = 0; piece < WRITTEN_PIECES + PIECES; ++piece)
        copy_rows_async<THREADS>(ValueTile{stage + At::WRITTEN + piece * ValueTile::BYTES},
                                 written + static_cast<int64_t>(piece) * CHUNK * padded_values + start, padded_values, CHUNK, COLUMNS);
$else
      copy_rows(At::WRITTEN, values);
$end
      const Element* from = kept + static_cast<int64_t>(start) * KEYS;
#pragma unroll
      for (int part = 0; part < 2 * PIECES; ++part) {
        const StateTile to{stage + At::BEFORE + part * StateTile::BYTES};
        constexpr int PACKS = COLUMNS * KEYS / 8;
#pragma unroll
        for (int first = 0; first < PACKS; first += THREADS) {  // a count that the compiler knows: a loop would take more than the copies
          const int i = first + thread_x();
          if (first + THREADS <= PACKS || i < PACKS) copy_async_16(to.at(i / (KEYS / 8), i % (KEYS / 8) * 8), from + i * 8, true);
        }
        from += static_cast<int64_t>(padded_values) * KEYS;
      }
    }
    copy_async_commit();
  }
};
static_assert(sizeof(KeyGradientPlan) <= 128);

// sums += rows times a state, of so many pieces, without products that are below the last digits; one piece is exact.
template <int ROWS_PIECES> static inline void add_states(KeySums& sums, const ValueTile& rows, const StateTile& state, int column) {
#pragma unroll
  for (int piece = 0; piece < ROWS_PIECES; ++piece) {
    uint32_t a[4];
    ValueTile{rows.base + piece * ValueTile::BYTES}.load_a(a, 16 * row_slice(), column);
#pragma unroll
    for (int other = 0; other < PIECES && piece + other < 3; ++other)
      add_rows(sums, a, StateTile{state.base + other * StateTile::BYTES}, column);
  }
}

// By a thread: products of both states of some columns, added up by key.
$if narrow  // inverse(k): of the products' units, of 16 columns
template <class Inverse> static inline void add_through(const char* stage, float (&sums)[2], Inverse inverse) {
$else
static inline void add_through(const char* stage, float (&sums)[2]) {
$end
  const int key = thread_x() % (KEYS / 2) * 2, group = thread_x() / (KEYS / 2);
#pragma unroll 2
  for (int row = group; row < COLUMNS && group < GROUPS; row += GROUPS) {
    float x[2] = {}, y[2] = {};
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const int at = piece * StateTile::BYTES + (row * StateTile::PITCH + key) * 2;
      const uint32_t before = *reinterpret_cast<const uint32_t*>(stage + At::BEFORE + at);
      const uint32_t after = *reinterpret_cast<const uint32_t*>(stage + At::AFTER + at);
      x[0] += low_of(before), x[1] += high_of(before), y[0] += low_of(after), y[1] += high_of(after);
    }
$if narrow
    const float factor = inverse(row / 16);
    sums[0] += x[0] * y[0] * factor, sums[1] += x[1] * y[1] * factor;
$else
    sums[0] += x[0] * y[0], sums[1] += x[1] * y[1];
$end
  }
}

static inline float* sums_of(char* memory, int place, int token, int key) {
  return reinterpret_cast<float*>(memory + place) + token * SUM_PITCH + key;
}
static inline void put_sums(char* memory, int place, const KeySums& sums) {
  each_slice<SLICES>([&](int j, int slice) {
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_pack(sums_of(memory, place, 16 * row_slice() + 8 * h + lane() / 4, 16 * slice + 8 * n + lane() % 4 * 2),
                   Pack<float, 2>{sums[j][n][2 * h], sums[j][n][2 * h + 1]});
  });
}

// Products of pairs: those of different parts as elements to `far`, the others, transposed, as floats.
$if narrow
static inline void put_flows(char* far, char* near, const PairSums& pairs, PairUnits& units) {
  each_slice<4>([&](int j, int slice) {
    if (slice > row_slice()) return;
    const Unit unit = common_unit(pairs[j]);
    if (lane() == 0) units.inverses[row_slice()][slice] = unit.inverse;
$else
static inline void put_flows(char* far, char* near, const PairSums& pairs) {
  each_slice<4>([&](int j, int slice) {
    if (slice > row_slice()) return;
$end
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float x = pairs[j][n][2 * h], y = pairs[j][n][2 * h + 1];
        if (slice < row_slice()) {
$if narrow
          const uint32_t word = pack_pair<Element>(x * unit.of, y * unit.of);
          put_word(far, Square::PITCH, 8 * h, 16 * slice + 8 * n, word);
          if (PIECES > 1)
            put_word(far + Square::BYTES, Square::PITCH, 8 * h, 16 * slice + 8 * n, rounding_of(x * unit.of, y * unit.of, word));
$else
          const uint32_t word = pack_pair<Element>(x, y);
          put_word(far, Square::PITCH, 8 * h, 16 * slice + 8 * n, word);
          if (PIECES > 1)
            put_word(far + Square::BYTES, Square::PITCH, 8 * h, 16 * slice + 8 * n, rounding_of(x, y, word));
$end
        } else {
          float* to = reinterpret_cast<float*>(near) + slice * PART * PART + (8 * n + lane() % 4 * 2) * PART + 8 * h + lane() / 4;
          to[0] = x, to[PART] = y;
        }
      }
  });
}

// What keys of the warp's part give to its end, of what flows into the state after the chunk: products with `sums`, added up over tokens.
static inline void put_left(const char* memory, KeyFlows& flows, const KeySums& sums) {
  each_slice<SLICES>([&](int j, int slice) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float left[2] = {};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const char* from = memory + At::KEPT + ((16 * row_slice() + 8 * h + lane() / 4) * KeyTile::PITCH + 16 * slice + 8 * n + lane() % 4 * 2) * 2;
        float k[2] = {};
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
          const uint32_t word = *reinterpret_cast<const uint32_t*>(from + piece * KeyTile::BYTES);
          k[0] += low_of(word), k[1] += high_of(word);
        }
        left[0] += k[0] * sums[j][n][2 * h], left[1] += k[1] * sums[j][n][2 * h + 1];
      }
$if narrow
      left[0] *= flows.row_units.keys, left[1] *= flows.row_units.keys;
$end
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int mask = 4; mask < WARP; mask *= 2) left[i] += shuffle_xor(left[i], mask);
      if (lane() < 4) store_pack(&flows.left[row_slice()][16 * slice + 8 * n + lane() * 2], Pack<float, 2>{left[0], left[1]});
    }
  });
}

// sums *= what a part leaves, by key.
static inline void decay_sums(KeySums& sums, const float* leaves) {
  each_slice<SLICES>([&](int j, int slice) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const auto left = load_pack<2>(leaves + 16 * slice + 8 * n + lane() % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][n][i] *= left.at[i % 2];
    }
  });
}
// sums += pairs rows, of the rows of part `part`; BACK: of the pairs' transpose. Both are PIECES.
$if narrow  // inverse: of both units
template <bool BACK> static inline void add_part(KeySums& sums, SharedPointer pairs, SharedPointer rows, int part, float inverse) {
  uint32_t a[PIECES][4];
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece) {
    const Square square{pairs + piece * Square::BYTES};
    if constexpr (BACK) load_a_transposed(a[piece], square, 16 * part, 16 * row_slice());
    else square.load_a(a[piece], 16 * row_slice(), 16 * part);
  }
  each_slice<SLICES>([&](int j, int slice) {
    sync_warp();  // one slice after another, for the sake of registers
    float own[2][4] = {};
#pragma unroll
    for (int other = PIECES - 1; other >= 0; --other) {
      uint32_t b[4];
      KeyTile{rows + other * KeyTile::BYTES}.load_b_transposed(b, 16 * part, 16 * slice);
#pragma unroll
      for (int piece = PIECES - 1; piece >= 0; --piece) multiply_two(own[0], own[1], a[piece], b);
    }
    add_times(sums[j], own, inverse);
  });
}
$else
template <bool BACK> static inline void add_part(KeySums& sums, SharedPointer pairs, SharedPointer rows, int part) {
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece) {
    const Square square{pairs + piece * Square::BYTES};
    uint32_t a[4];
    if constexpr (BACK) load_a_transposed(a, square, 16 * part, 16 * row_slice());
    else square.load_a(a, 16 * row_slice(), 16 * part);
#pragma unroll
    for (int other = 0; other < PIECES; ++other) add_rows(sums, a, KeyTile{rows + other * KeyTile::BYTES}, 16 * part);
  }
}
$end

static inline void put_piece(char* tile, int row, int key, float x) {
  Element* to = reinterpret_cast<Element*>(tile) + row * KeyTile::PITCH + key;
  *to = from_float<Element>(x);
  if (PIECES > 1) *(to + KeyTile::BYTES / 2) = from_float<Element>(x - to_float(*to));
}
static inline float number_of_row(const char* tile, int row, int key) {
  return to_float(reinterpret_cast<const Element*>(tile)[row * KeyTile::PITCH + key]);
}

constexpr bool KEEPS_RESTS = false;
#include "recurrent/chunk_key_gradient_rows.h"
#include "recurrent/chunk_key_gradient_ends.h"
$if exchanged
#include "recurrent/chunk_value_columns.h"
$end

// Block number: a chunk of a head.
$if exchanged
static inline void add_gradients(const View& q_view, const View& k_view, const View& v_view, const View& dout_view, const View& g_view, const View& g_gamma_view, const View& gk_view,
                                 const int32_t* cum_seqlens, const View& read_view, const View& dk_view, const View& dv_view, const View& dg_view, const View& dgk_view,
                                 const Element* queries_before, const Element* keys_after, const Element* weights, const Element* kept_states, float* gate_sums, float* read_sums,
                                 float* key_sums, float* value_sums, int64_t sequences, int64_t heads, int64_t padded_values, int64_t g_type, int64_t gamma_type, int64_t gk_type,
                                 float softmax_scale, int64_t layer_idx, int64_t num_layers, bool reverse${narrow ? ', const float* state_units, const float* row_units' : ''}) {
$else
KERNEL(THREADS, ${blocks}) gradients(${parameters('gradients')}) {
$end
  const ChunkPlace at(cum_seqlens, sequences, heads, q_view.shape[1]);
  const Tokens& tokens = at.tokens;
  const uint32_t head = at.head;
  const int token = at.token, count = at.count;
  if (token >= count) {
    if (GATED && thread_x() == 0) gate_sums[block_x()] = 0;
    return;
  }
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3]), slices = (values + COLUMNS - 1) / COLUMNS;
  KeyFlows& flows = *reinterpret_cast<KeyFlows*>(memory + At::FLOWS);
  const float scale = softmax_scale;
  ChunkRows<Element, KEYS, THREADS>(q_view, tokens, head, heads, 0, keys, reverse).copy_async({shared}, token, count);
  ChunkRows<Element, KEYS, THREADS>(k_view, tokens, head, heads, 0, keys, reverse).copy_async({shared + At::KEY_ROWS}, token, count);
$if not delta
  copy_dense_async<THREADS>(KeyTile{shared + At::KEYS_AFTER}, reinterpret_cast<const Element*>(keys_after) + block_x() * int64_t{2 * CHUNK * KEYS});
  copy_dense_async<THREADS>(Square{shared + At::WEIGHTS}, reinterpret_cast<const Element*>(weights) + block_x() * int64_t{CHUNK * CHUNK});
$end
$if exchanged
  copy_dense_async<THREADS>(KeyTile{shared + At::QUERIES_BEFORE}, queries_before + block_x() * int64_t{2 * CHUNK * KEYS});
$end
  copy_async_commit();
  KeyGradientPlan& plan = *reinterpret_cast<KeyGradientPlan*>(memory + At::PLAN);
  if (thread_x() == 0)
    plan = {{dout_view, tokens, head, heads, 0, values, reverse},
$if delta
            reinterpret_cast<const Element*>(written_rows) + static_cast<int64_t>(block_x()) * (WRITTEN_PIECES + PIECES) * CHUNK * padded_values,
$else
            {v_view, tokens, head, heads, 0, values, reverse},
$end
            reinterpret_cast<const Element*>(kept_states) + static_cast<int64_t>(block_x()) * 2 * PIECES * padded_values * KEYS,
$if narrow
            state_units + static_cast<int64_t>(block_x()) * (DELTA ? 4 : 2) * (padded_values / 16),
$end
            static_cast<int>(padded_values), token, count, slices};
$if narrow
  if (thread_x() == 0) flows.row_units = reinterpret_cast<const RowUnits*>(row_units)[block_x()];
$end
  if (warp() == 0) {
    float log_gates[2];
    TokenNumbers(g_view, g_type, tokens, head, reverse)
        .load(token, count, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), log_gates);
    flows.token_gates[2 * lane()] = log_gates[0], flows.token_gates[2 * lane() + 1] = log_gates[1];
  }
$if delta
  if (thread_x() < CHUNK) flows.betas[thread_x()] = decays[block_x() * int64_t{DECAY_ROW} + KEYS + thread_x()];
$end
  const Own own;
  OwnFactors factors{own, gk_view, gk_type, static_cast<int64_t>(head), tokens, token, count, reverse, flows.token_gates, {}};
  if (!DELTA) factors.begin();  // early; with the delta rule there are no registers for them
  sync_block();
  plan.copy_async(shared, 0);

  KeySums dq = {}, dk = {};
  PairSums pairs = {};
  float through[2] = {};
$if delta
  KeySums read_by_keys = {};
  PairSums key_pairs = {};
$end
  const GradientRows dv_rows(dv_view, SHARED_HEADS ? value_sums : nullptr, tokens, head, heads, reverse);
$if exchanged
  const GradientRows read_rows(read_view, SHARED_HEADS ? read_sums : nullptr, tokens, head, heads, reverse);
$end
#pragma unroll 1
  for (int x = 0; x < slices; ++x) {
    const int place = At::FIRST_STAGE + x % STAGES * At::STAGE, row = 16 * row_slice();
    if (STAGES == 1 && x > 0) {
      sync_block();
      plan.copy_async(shared, x);
    }
    copy_async_wait<0>();
    sync_block();  // the slice is there for all, and all are done with the one before
    if (STAGES > 1) plan.copy_async(shared, x + 1);
    const ValueTile dout_tile{shared + place}, written_tile{shared + place + At::WRITTEN};
    const StateTile before_tile{shared + place + At::BEFORE}, after_tile{shared + place + At::AFTER};
$if narrow
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k) {
      add_scaled_rows<1, PIECES>(dq, dout_tile, before_tile, 16 * k, plan.unit(0, x, k));
$if delta
      const ValueTile gradient_tile{shared + place + At::WRITTEN_GRADIENTS};
      add_scaled_rows<WRITTEN_PIECES, PIECES>(dk, written_tile, after_tile, 16 * k, plan.unit(1, x, k) * plan.unit(2, x, k));
      add_scaled_pairs<1, WRITTEN_PIECES>(pairs, dout_tile, written_tile, 16 * k, plan.unit(2, x, k));
      add_scaled_rows<PIECES, PIECES>(read_by_keys, gradient_tile, before_tile, 16 * k, plan.unit(0, x, k) * plan.unit(3, x, k));
      add_scaled_pairs<PIECES, WRITTEN_PIECES>(key_pairs, gradient_tile, written_tile, 16 * k, plan.unit(2, x, k) * plan.unit(3, x, k));
$else
      add_scaled_rows<WRITTEN_PIECES, PIECES>(dk, written_tile, after_tile, 16 * k, plan.unit(1, x, k));
$end
    }
$if delta
    store_value_gradients<PIECES>(memory + place + At::WRITTEN_GRADIENTS, dv_rows, token, count, x * COLUMNS, values,
                                  [&](int t, int column) { return flows.betas[t] * plan.unit(3, x, column / 16); });
$else
    add_pairs<ValueTile, COLUMNS>(pairs, dout_tile, written_tile);
$end
    if (GATED) add_through(memory + place, through, [&](int k) { return plan.unit(0, x, k) * plan.unit(1, x, k); });
$else
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k) {
      add_states<1>(dq, dout_tile, before_tile, 16 * k);
      add_states<WRITTEN_PIECES>(dk, written_tile, after_tile, 16 * k);
    }
#pragma unroll
    for (int piece = 0; piece < WRITTEN_PIECES; ++piece)
      add_pairs<ValueTile, COLUMNS>(pairs, dout_tile, ValueTile{written_tile.base + piece * ValueTile::BYTES});
    if (GATED) add_through(memory + place, through);
$end
$if narrow and delta  // all is there
$elif delta
    const ValueTile gradient_tile{shared + place + At::WRITTEN_GRADIENTS};
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; ++k) add_states<PIECES>(read_by_keys, gradient_tile, before_tile, 16 * k);
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece)
#pragma unroll
      for (int other = 0; other < WRITTEN_PIECES && piece + other < WRITTEN_PIECES; ++other)
        add_pairs<ValueTile, COLUMNS>(key_pairs, ValueTile{gradient_tile.base + piece * ValueTile::BYTES},
                                      ValueTile{written_tile.base + other * ValueTile::BYTES});
    store_value_gradients<PIECES>(memory + place + At::WRITTEN_GRADIENTS, dv_rows, token, count, x * COLUMNS, values,
                                  [&](int t) { return flows.betas[t]; });
$elif exchanged
    store_columns(shared, place, x * COLUMNS, token, count, values, dv_rows, read_rows${narrow ? ', plan, flows.row_units, x' : ''});
$else
    float dv[OWN<COLUMNS / 16>][2][4] = {};
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      KeyTile{shared + At::KEYS_AFTER}.load_a(a, row, 16 * k);
      each_slice<COLUMNS / 16>([&](int j, int slice) {
        after_tile.load_b(b, 16 * slice, 16 * k);
        multiply_two(dv[j][0], dv[j][1], a, b);
      });
    }
$if narrow
    each_slice<COLUMNS / 16>([&](int j, int slice) {
      const float inverse = flows.row_units.keys * plan.unit(1, x, slice);
      each_number(dv[j], slice, [&](int, int, float& y) { y *= inverse; });
    });
$end
#pragma unroll 1
    for (int t = row_slice(); t < 4; ++t) {
      uint32_t a[4], b[4];
      load_a_transposed(a, Square{shared + At::WEIGHTS}, 16 * t, row);
      each_slice<COLUMNS / 16>([&](int j, int slice) {
        dout_tile.load_b_transposed(b, 16 * t, 16 * slice);
$if narrow
        float own[2][4] = {};
        multiply_two(own[0], own[1], a, b);
        add_times(dv[j], own, flows.row_units.of_pairs());
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
          if (t < count && value < values) dv_rows.store_two(t, value, dv[j][n][2 * h], dv[j][n][2 * h + 1]);
        }
    });
$end
  }
  sync_block();  // all are done with the last slice, whose place others take
  if (DELTA) factors.begin();

  each_slice<SLICES>([&](int j, int slice) { each_number(dq[j], slice, [&](int, int, float& x) { x *= scale; }); });
$if narrow and delta  // what tokens write is kept over their betas
  each_slice<4>([&](int j, int slice) { each_number(pairs[j], slice, [&](int, int s, float& x) { x *= scale * flows.betas[s]; }); });
  each_slice<SLICES>([&](int j, int slice) { each_number(dk[j], slice, [&](int s, int, float& x) { x *= flows.betas[s]; }); });
$else
  each_slice<4>([&](int j, int slice) { each_number(pairs[j], slice, [&](int, int, float& x) { x *= scale; }); });
$end
  put_flows(memory + At::FLOWS_OF_PAIRS, memory + At::NEAR, pairs${narrow ? ', flows.pair_units' : ''});
$if delta
  each_slice<SLICES>([&](int j, int slice) { each_number(read_by_keys[j], slice, [&](int t, int, float& x) { x *= -flows.betas[t]; }); });
  each_slice<4>([&](int j, int slice) {
    each_number(key_pairs[j], slice, [&](int t, int s, float& x) {
      if (s == t) flows.of_betas[t] = x${narrow ? '' : ' / flows.betas[t]'};
      x = s < t ? -flows.betas[t] * ${narrow ? 'flows.betas[s] * ' : ''}x : 0;
    });
  });
  put_flows(memory + At::FLOWS_OF_KEYS, memory + At::NEAR_KEYS, key_pairs${narrow ? ', flows.key_pair_units' : ''});
$end
  if (GATED && thread_x() / (KEYS / 2) < GROUPS)
    store_pack(&flows.through[thread_x() / (KEYS / 2)][thread_x() % (KEYS / 2) * 2], Pack<float, 2>{through[0], through[1]});
  if (NORMED) {
    put_norms_of_rows(memory, flows.norms.q), put_norms_of_rows(memory + At::KEY_ROWS, flows.norms.k);
    sync_block();
  }
  uint32_t closed = 0;  // a bit of each number whose gate leaves nothing
  if (own.there) weigh_kept(memory, flows, own, factors, closed);
  sync_block();
  if (GATED) put_left(memory, flows, dk);
#pragma unroll 1
  for (int part = 0; part < row_slice(); ++part) {
    decay_sums(dq, flows.leaves[part]);
    add_part<false>(dq, shared + At::FLOWS_OF_PAIRS, shared + At::KEPT, part${narrow ? ', flows.pair_units.inverses[row_slice()][part] * flows.row_units.keys' : ''});
$if delta
    decay_sums(read_by_keys, flows.leaves[part]);
    add_part<false>(read_by_keys, shared + At::FLOWS_OF_KEYS, shared + At::KEPT, part${narrow ? ', flows.key_pair_units.inverses[row_slice()][part] * flows.row_units.keys' : ''});
$end
  }
  sync_block();  // all are done with keys times r: rows times p take their place
  if (own.there) weigh_read(memory, flows, own, factors);
  sync_block();
#pragma unroll 1
  for (int part = PARTS - 1; part > row_slice(); --part) {
    decay_sums(dk, flows.leaves[part]);
    add_part<true>(dk, shared + At::FLOWS_OF_PAIRS, shared + At::READ, part${narrow ? ', flows.pair_units.inverses[part][row_slice()] * flows.row_units.queries' : ''});
$if delta
    add_part<true>(dk, shared + At::FLOWS_OF_KEYS, shared + At::READ_KEYS, part${narrow ? ', flows.key_pair_units.inverses[part][row_slice()] * flows.row_units.keys' : ''});
$end
  }
  sync_block();  // all are done with the rows: sums take their place
  put_sums(memory, At::QUERY_SUMS, dq);
  put_sums(memory, At::KEY_SUMS, dk);
$if delta
  put_sums(memory, At::READ_SUMS, read_by_keys);
$end
  sync_block();
  finish_chunk(memory, flows, own, factors, closed,
$if exchanged
               {at, {dk_view, SHARED_HEADS ? key_sums : nullptr, tokens, head, heads, reverse},
$else
               {at, {dq_view, SHARED_HEADS ? query_sums : nullptr, tokens, head, heads, reverse}, {dk_view, SHARED_HEADS ? key_sums : nullptr, tokens, head, heads, reverse},
$end
                dgk_view, dg_view, gk_type, g_type,
$if delta
                dbeta_view, beta_type,
$end
                keys, reverse, gate_sums});
}
