// recurrent, forward, for few tokens a sequence: blocks that stay carry COLUMNS features of one head's state after another, in registers.
//
// An item is a slice of a head of a sequence; a block has every grid-th one and walks over their tokens. A row of the state lies over GROUPS
// neighbouring threads of VEC features, 16 bytes; PARTS threads share a column, each with KEYS keys on end. While a token is computed, the rows
// of the next one, and the states of the next AHEAD items, are on their way from memory. Sums over the keys go over the lanes of a warp that
// share a column, then over the warps through shared memory; what a query reads is added up and written a token later, to wait for the block
// once less.
#include "device/gpu.h"
#include "device/number/roots.h"
#include "recurrent/recurrent_step.h"

using Element = ${ctype(E)};
using Stored = ${half_state ? 'bfloat16' : 'float'};  // a state's number in memory
constexpr int WARPS = ${warps}, THREADS = 32 * WARPS, VEC = 16 / sizeof(Stored), COLUMNS = ${columns}, GROUPS = COLUMNS / VEC, PARTS = THREADS / GROUPS;
constexpr int KEYS = ${keys_a_thread}, ROW = ${keys}, LANE_KEYS = ROW / 32;  // of a thread; of a prepared row; of a lane that prepares it
constexpr int AHEAD = ${ahead};
constexpr uint32_t NONE = ~0u;
constexpr bool DELTA = ${delta}, KEY_GATES = ${key_gates}, VALUE_GATES = ${value_gates};
constexpr bool WHOLE = ${whole};  // a thread's features are all there or none, and lie aligned
$if in_place
constexpr bool IN_PLACE = true;
$else
constexpr bool IN_PLACE = false;
$end

// The prepared rows of one token: q times the scale, k, and what a gate leaves of each key's row of the state.
struct alignas(16) Rows {
  float q[ROW], k[ROW], base[KEY_GATES ? ROW : 1], rest[KEY_GATES ? ROW : 1];
};
constexpr int Q = 0, GATES = 2;  // the warps that prepare q and the gates; that between them has k

// Sums of the warps.
struct alignas(4 * VEC) Parts {
  float seen[WARPS][COLUMNS];     // by the key
  float read[2][WARPS][COLUMNS];  // by the query, of this token and the one before
};

typedef Pack<Stored, VEC> StateAhead[KEYS][THREADS];  // a thread reads what it has copied
struct alignas(128) Memory {
  StateAhead ahead[AHEAD];  // the next items' states
  Rows rows[2];
  Parts parts;
};

// What a thread has of a token: its part of the row that its warp prepares (gates as floats, else as it lies in memory), and what it reads for
// itself.
struct Token {
  uint32_t row[LANE_KEYS], v[VEC];
  float gv[VALUE_GATES ? VEC : 1], g, gamma, beta;
  float gate() const { return g + gamma; }
};

// Where a thread reads of one item, features from its first column on; and what the item is.
struct Item {
  Numbers<Element> row, v;
  AnyNumbers gk, gv, g, beta;
  float gamma;
  int64_t count;
  int columns;          // of the thread's VEC, those that there are
  Stored *before, *after;  // the thread's first row of the state; null: 0, none
  int64_t before_stride, after_stride;
  Element* out;
};

static inline Token token_of(const Item& item, int64_t place, int keys) {
  Token x = {};
  if (KEY_GATES && warp() == GATES) {
    float gates[LANE_KEYS] = {};
    item.gk.row(place, lane(), 32, keys, gates);
#pragma unroll
    for (int j = 0; j < LANE_KEYS; ++j) x.row[j] = raw_of(&gates[j]);
  } else if (warp() < GATES) {
    load_raw(item.row.data + place * item.row.stride + lane(), lane(), 32, keys, x.row);
  }
  load_raw(item.v.data + place * item.v.stride, 0, 1, item.columns, x.v);
  if constexpr (VALUE_GATES) item.gv.row(place, 0, 1, item.columns, x.gv);
  x.g = item.g.at(place, 0), x.gamma = item.gamma;
  if constexpr (DELTA) x.beta = item.beta.at(place, 0);
  return x;
}

static inline void prepare(const Token& x, float scale, bool l2_norm, Rows& rows) {
  if (KEY_GATES && warp() == GATES) {
#pragma unroll
    for (int j = 0; j < LANE_KEYS; ++j) {
      const SplitExp factor = split_exp(x.gate() + number_of<float>(x.row[j]));
      rows.base[j * 32 + lane()] = factor.base, rows.rest[j * 32 + lane()] = factor.rest;
    }
  } else if (warp() < GATES) {
    float factor = warp() == Q ? scale : 1, row[LANE_KEYS];
#pragma unroll
    for (int j = 0; j < LANE_KEYS; ++j) row[j] = number_of<Element>(x.row[j]);
    if (l2_norm) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < LANE_KEYS; ++j) squares += row[j] * row[j];
#pragma unroll
      for (int mask = 1; mask < 32; mask *= 2) squares += shuffle_xor(squares, mask);
      factor *= rsqrt_of(squares + 1e-6f);
    }
    float* to = warp() == Q ? rows.q : rows.k;
#pragma unroll
    for (int j = 0; j < LANE_KEYS; ++j) to[j * 32 + lane()] = row[j] * factor;
  }
}

// A thread's sums over its keys become those of its warp, in `to`; all of them are added up after sync_block.
static inline void give(const float (&sums)[VEC], float (&to)[WARPS][COLUMNS]) {
  Pack<float, VEC> part;
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    part.at[c] = sums[c];
#pragma unroll
    for (int mask = GROUPS; mask < 32; mask *= 2) part.at[c] += shuffle_xor(part.at[c], mask);
  }
  if (lane() < GROUPS) store_pack(&to[warp()][lane() * VEC], part);
}
static inline Pack<float, VEC> add_up(const float (&parts)[WARPS][COLUMNS]) {
  Pack<float, VEC> sums = {};
#pragma unroll 4
  for (int w = 0; w < WARPS; ++w) {
    const auto part = load_pack<VEC>(&parts[w][thread_x() % GROUPS * VEC]);
#pragma unroll
    for (int c = 0; c < VEC; ++c) sums.at[c] += part.at[c];
  }
  return sums;
}

// `keys`: the thread's keys that there are, KEYS at most.
static inline void send_ahead(const Item& item, int keys, StateAhead& ahead) {
  const Stored* row = item.before;
#pragma unroll
  for (int j = 0; j < KEYS; ++j, row += item.before_stride) {
    const bool there = row && j < keys && item.columns > 0;
    copy_async_16(shared_pointer(&ahead[j][thread_x()]), there ? row : nullptr, there);
  }
  copy_async_commit();
}
static inline void take_ahead(const StateAhead& ahead, float (&state)[KEYS][VEC]) {
  copy_async_wait<AHEAD - 1>();
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    const auto row = ahead[j][thread_x()];
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] = to_float(row.at[c]);
  }
}
static inline void load_state(const Item& item, int keys, float (&state)[KEYS][VEC]) {
  const Stored* row = item.before;
#pragma unroll
  for (int j = 0; j < KEYS; ++j, row += item.before_stride)
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] = item.before && j < keys && c < item.columns ? to_float(row[c]) : 0;
}
static inline void store_state(Stored* row, int64_t stride, int keys, int columns, const float (&state)[KEYS][VEC]) {
#pragma unroll
  for (int j = 0; j < KEYS; ++j, row += stride) {
    if constexpr (WHOLE) {
      Pack<Stored, VEC> x;
#pragma unroll
      for (int c = 0; c < VEC; ++c) x.at[c] = from_float<Stored>(state[j][c]);
      if (j < keys && columns > 0) store_pack(row, x);
    } else {
#pragma unroll
      for (int c = 0; c < VEC; ++c)
        if (j < keys && c < columns) row[c] = from_float<Stored>(state[j][c]);
    }
  }
}

// Of an item without a token.
static inline void copy_state(const Item& item, int keys) {
  for (int j = 0; j < KEYS && j < keys; ++j)
    for (int c = 0; c < item.columns; ++c)
      item.after[j * item.after_stride + c] = item.before ? item.before[j * item.before_stride + c] : from_float<Stored>(0.0f);
}

// Key j of the thread in a prepared row; 0 past its end.
static inline float key_of(const float* row, int first, int j) { return KEYS > 1 || first < ROW ? row[first + j] : 0; }

static inline void decay(float (&state)[KEYS][VEC], const Token& x, const Rows& rows, int first) {
  SplitExp all = {1, 0};
  if constexpr (!KEY_GATES) all = split_exp(x.gate());
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    if constexpr (KEY_GATES) all = {key_of(rows.base, first, j), key_of(rows.rest, first, j)};
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] = all.of(state[j][c]);
  }
  if constexpr (VALUE_GATES) {
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      const SplitExp factor = split_exp(x.gv[c]);
#pragma unroll
      for (int j = 0; j < KEYS; ++j) state[j][c] = factor.of(state[j][c]);
    }
  }
}

static inline void write_row(Element* out, const float (&parts)[WARPS][COLUMNS], int columns) {
  const auto row = add_up(parts);
#pragma unroll
  for (int c = 0; c < VEC; ++c)
    if (c < columns) out[c] = from_float<Element>(row.at[c]);
}

KERNEL(THREADS, ${blocks}) recurrent(${parameters('recurrent')}) {
  Memory& memory = *reinterpret_cast<Memory*>(dynamic_shared());
  const int group = thread_x() % GROUPS, part = thread_x() / GROUPS, first = part * KEYS;
  const int all_keys = static_cast<int>(q_view.shape[3]), keys = all_keys - first;
  const auto place = [&](const Item& item, int64_t t) { return reverse ? item.count - 1 - t : t; };

  // Divisions are of 32 bits: those of 64 would be half of the work.
  const auto item_of = [&](uint32_t number) {
    const uint32_t row = number / static_cast<uint32_t>(slices), slice = number - row * static_cast<uint32_t>(slices);
    const int64_t sequence = row / static_cast<uint32_t>(heads), head = row - static_cast<uint32_t>(sequence) * static_cast<uint32_t>(heads);
    const int64_t column = static_cast<int64_t>(slice) * COLUMNS + group * VEC, left = v_view.shape[3] - column;
    const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
$if in_place
    const StateColumns<Stored> before(state_view, sequence, head, column), after = before;
$else
    const StateColumns<Stored> before(initial_state_view, sequence, head, column), after(final_state_view, sequence, head, column);
$end
    const bool is_there = sequence < sequences;
    return Item{{warp() == Q ? q_view : k_view, tokens, head, heads, 0}, {v_view, tokens, head, heads, column},
                {gk_view, gk_type, tokens, head, 0}, {gv_view, gv_type, tokens, head, column}, {g_view, g_type, tokens, head, 0},
                {beta_view, beta_type, tokens, head, 0}, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers),
                tokens.end - tokens.first, left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC,
                is_there && before.data ? before.data + first * before.stride : nullptr, is_there ? after.data + first * after.stride : nullptr,
                before.stride, after.stride,
                static_cast<Element*>(out_view.data) + tokens.row * out_view.strides[0] + tokens.first * out_view.strides[1] +
                    head * out_view.strides[2] + column};
  };
  // From `number` on, the block's next item with a token. Sequences without one keep their state; behind the last sequence there are zeros.
  const auto find = [&](uint32_t& number, Item& item) {
    for (; number < item_count; number += grid_x()) {
      item = item_of(number);
      if (item.after && item.count > 0) return true;
      if (item.after && !IN_PLACE) copy_state(item, keys);
      if (!item.after)
        for (int64_t t = part; t < item.count; t += PARTS)
          for (int c = 0; c < item.columns; ++c) item.out[t * out_view.strides[1] + c] = from_float<Element>(0.0f);
    }
    return false;
  };

  uint32_t looked_at = block_x(), numbers[AHEAD];  // where to look for the next item; the current one and those after it
  const auto send_next = [&](StateAhead& to) {
    Item next;
    const bool more = find(looked_at, next);
    if constexpr (WHOLE) {
      if (more) send_ahead(next, keys, to);
      else copy_async_commit();
    }
    const uint32_t number = more ? looked_at : NONE;
    looked_at += more ? grid_x() : 0;
    return number;
  };
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) numbers[i] = send_next(memory.ahead[i]);
  if (numbers[0] == NONE) return;
  Item item = item_of(numbers[0]);
  int stage = 0;
  Token next = token_of(item, place(item, 0), all_keys);
  float state[KEYS][VEC];
  Element* written = nullptr;  // where the row of the token before goes
  int columns_written = 0, turn = 0;
  int64_t t = 0;
#pragma unroll 1
  for (bool more = true; more; turn ^= 1) {
    const Token x = next;
    const Rows& rows = memory.rows[turn];
    prepare(x, static_cast<float>(softmax_scale), l2_norm != 0, memory.rows[turn]);
    if (t == 0) {
      if constexpr (WHOLE) {
        take_ahead(memory.ahead[stage], state);
      } else {
        load_state(item, keys, state);
      }
    }
    Element* const out = item.out + place(item, t) * out_view.strides[1];
    Stored* const after = item.after;
    const int64_t after_stride = item.after_stride;
    const int columns = item.columns;
    const bool is_last = ++t == item.count;
    if (is_last) {
      t = 0;
#pragma unroll
      for (int i = 0; i + 1 < AHEAD; ++i) numbers[i] = numbers[i + 1];
      numbers[AHEAD - 1] = send_next(memory.ahead[stage]);
      stage = stage + 1 < AHEAD ? stage + 1 : 0;
      more = numbers[0] != NONE;
      if (more) item = item_of(numbers[0]);
    }
    if (more) next = token_of(item, place(item, t), all_keys);
    sync_block();

    if (written && part == 0) write_row(written, memory.parts.read[turn ^ 1], columns_written);
    decay(state, x, rows, first);
    float sums[VEC] = {}, v[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) v[c] = number_of<Element>(x.v[c]);
    if constexpr (DELTA) {
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        const float k = key_of(rows.k, first, j);
#pragma unroll
        for (int c = 0; c < VEC; ++c) sums[c] += k * state[j][c];
      }
      give(sums, memory.parts.seen);
      sync_block();
      const auto seen = add_up(memory.parts.seen);
#pragma unroll
      for (int c = 0; c < VEC; ++c) v[c] = x.beta * (v[c] - seen.at[c]), sums[c] = 0;
    }
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const float q = key_of(rows.q, first, j), k = key_of(rows.k, first, j);
#pragma unroll
      for (int c = 0; c < VEC; ++c) {
        state[j][c] += k * v[c];
        sums[c] += q * state[j][c];
      }
    }
    give(sums, memory.parts.read[turn]);
    if (is_last) store_state(after, after_stride, keys, columns, state);
    written = out, columns_written = columns;
  }
  sync_block();
  if (part == 0) write_row(written, memory.parts.read[turn ^ 1], columns_written);
}
