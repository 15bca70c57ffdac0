// recurrent, forward, for few tokens a sequence: a block carries COLUMNS features of one head's state, in registers, read and written once.
//
// A row of the state lies over GROUPS neighbouring threads of VEC features; PARTS threads share a column, each with every PARTS-th key. The
// state is on its way from memory while the block prepares the tokens' rows in shared memory, some tokens at a time. Sums over the keys go over
// the lanes of a warp that share a column, then over the warps through shared memory.
#include "device/gpu.h"
#include "device/number/roots.h"
#include "recurrent/recurrent_step.h"

using Element = ${ctype(E)};
constexpr int WARPS = ${warps}, THREADS = 32 * WARPS, VEC = 4, COLUMNS = ${columns}, GROUPS = COLUMNS / VEC, PARTS = THREADS / GROUPS;
constexpr int KEYS = ${keys_a_thread}, ROW = ${keys};  // of a thread; of a prepared row
constexpr bool DELTA = ${delta}, KEY_GATES = ${key_gates}, VALUE_GATES = ${value_gates};

// The prepared rows of one token: q times the scale, k, and what a gate leaves of each key's row of the state.
struct alignas(16) Rows {
  float q[ROW], k[ROW], base[KEY_GATES ? ROW : 1], rest[KEY_GATES ? ROW : 1];
};

// What the block reads of one sequence and head; features of v and gv from the thread's first column on.
struct Stream {
  Numbers<Element> q, k, v;
  AnyNumbers gk, gv, g, beta;
  float gamma, scale;
  int keys;
  bool l2_norm;

  // A warp makes q's or k's row.
  void prepare(const Numbers<Element>& from, int64_t token, float factor, float* to) const {
    float x[ROW / 32 ? ROW / 32 : 1], squares = 0;
#pragma unroll
    for (int j = 0; j * 32 < ROW; ++j) {
      const int i = j * 32 + lane();
      x[j] = i < keys ? from.at(token, i) : 0;
      squares += x[j] * x[j];
    }
    if (l2_norm) {
#pragma unroll
      for (int mask = 1; mask < 32; mask *= 2) squares += shuffle_xor(squares, mask);
      factor *= rsqrt_of(squares + 1e-6f);
    }
#pragma unroll
    for (int j = 0; j * 32 < ROW; ++j)
      if (j * 32 + lane() < ROW) to[j * 32 + lane()] = x[j] * factor;
  }

  void prepare_gates(int64_t token, Rows& to) const {
    const float all = g.at(token, 0) + gamma;
    for (int i = lane(); i < keys; i += 32) {
      const SplitExp factor = split_exp(all + gk.at(token, i));
      to.base[i] = factor.base, to.rest[i] = factor.rest;
    }
  }

  // Rows of `count` tokens from token `first` of the walk on, by all warps.
  template <class Place> void prepare(int64_t first, int count, const Place& place, Rows* rows) const {
    constexpr int KINDS = KEY_GATES ? 3 : 2;
    for (int i = warp(); i < KINDS * count; i += WARPS) {
      const int64_t token = place(first + i / KINDS);
      Rows& to = rows[i / KINDS];
      if (i % KINDS == 0) prepare(q, token, scale, to.q);
      if (i % KINDS == 1) prepare(k, token, 1, to.k);
      if (i % KINDS == 2) prepare_gates(token, to);
    }
  }
};

// A thread's sums over its keys become the column's: [COLUMNS] of each warp in `parts`, all of them added up after sync_block.
static inline void give_part(const float (&sums)[VEC], float* parts) {
  Pack<float, VEC> part;
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    part.at[c] = sums[c];
#pragma unroll
    for (int mask = GROUPS; mask < 32; mask *= 2) part.at[c] += shuffle_xor(part.at[c], mask);
  }
  if (lane() < GROUPS) store_pack(parts + warp() * COLUMNS + lane() * VEC, part);
}
static inline void add_parts(const float* parts, float (&sums)[VEC]) {
#pragma unroll
  for (int c = 0; c < VEC; ++c) sums[c] = 0;
#pragma unroll 4
  for (int w = 0; w < WARPS; ++w) {
    const auto part = load_pack<VEC>(parts + w * COLUMNS + thread_x() % GROUPS * VEC);
#pragma unroll
    for (int c = 0; c < VEC; ++c) sums[c] += part.at[c];
  }
}

// Key j of the thread in a prepared row; 0 past its end.
static inline float key_of(const float* row, int j, int part) { return j * PARTS + part < ROW ? row[j * PARTS + part] : 0; }

static inline void decay(float (&state)[KEYS][VEC], const Stream& stream, int64_t token, const Rows& rows, int keys, int part, int columns) {
  SplitExp all = {1, 0};
  if constexpr (!KEY_GATES) all = split_exp(stream.g.at(token, 0) + stream.gamma);
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    const int i = j * PARTS + part;
    if constexpr (KEY_GATES) all = i < keys ? SplitExp{rows.base[i], rows.rest[i]} : SplitExp{0, 0};
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] = all.of(state[j][c]);
  }
  if constexpr (VALUE_GATES) {
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      const SplitExp own = split_exp(c < columns ? stream.gv.at(token, c) : 0);
#pragma unroll
      for (int j = 0; j < KEYS; ++j) state[j][c] = own.of(state[j][c]);
    }
  }
}

// Block x: slice x % slices of a head of a sequence. Packed: those of the sequence after the last write zeros behind it.
KERNEL(THREADS, THREADS > 256 || KEYS > 8 ? 1 : 2) recurrent(${parameters('recurrent')}) {
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int group = thread_x() % GROUPS, part = thread_x() / GROUPS;
  const int64_t column = slice * COLUMNS + group * VEC, left = v_view.shape[3] - column;
  const int columns = left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC;
  const Tokens tokens(cum_seqlens, sequences, sequence, q_view.shape[1]);
  const int64_t count = tokens.end - tokens.first;
  Element* out = static_cast<Element*>(out_view.data) + tokens.row * out_view.strides[0] + tokens.first * out_view.strides[1] +
                 head * out_view.strides[2] + column;
  if (sequence == sequences) {
    for (int64_t t = part; t < count; t += PARTS)
      for (int c = 0; c < columns; ++c) out[t * out_view.strides[1] + c] = from_float<Element>(0.0f);
    return;
  }

  const int keys = static_cast<int>(q_view.shape[3]);
  float state[KEYS][VEC];
$if in_place
  const StateColumns before(state_view, sequence, head, column), after = before;
$else
  const StateColumns before(initial_state_view, sequence, head, column), after(final_state_view, sequence, head, column);
$end
  before.load<PARTS>(state, keys, part, columns, whole_packs);

  const Stream stream{{q_view, tokens, head, heads, 0}, {k_view, tokens, head, heads, 0}, {v_view, tokens, head, heads, column},
                      {gk_view, gk_type, tokens, head, 0}, {gv_view, gv_type, tokens, head, column}, {g_view, g_type, tokens, head, 0},
                      {beta_view, beta_type, tokens, head, 0},
                      gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), static_cast<float>(softmax_scale), keys, l2_norm != 0};
  const auto place = [&](int64_t t) { return reverse ? count - 1 - t : t; };
  Rows* rows = reinterpret_cast<Rows*>(dynamic_shared());
  float* parts = reinterpret_cast<float*>(rows + tokens_at_once);  // [3][WARPS][COLUMNS]: of what keys read, and in turn of what queries read
#pragma unroll 1
  for (int64_t t = 0; t < count; ++t) {
    const int at = static_cast<int>(t % tokens_at_once);
    const int64_t token = place(t);
    if (at == 0) {  // who is here has waited for all that used the rows before
      const int64_t ahead = count - t;
      stream.prepare(t, static_cast<int>(ahead < tokens_at_once ? ahead : tokens_at_once), place, rows);
    }
    float v[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) v[c] = c < columns ? stream.v.at(token, c) : 0;
    if (at == 0) sync_block();

    float sums[VEC] = {};
    decay(state, stream, token, rows[at], keys, part, columns);
    if constexpr (DELTA) {
#pragma unroll
      for (int j = 0; j < KEYS; ++j) {
        const float k = key_of(rows[at].k, j, part);
#pragma unroll
        for (int c = 0; c < VEC; ++c) sums[c] += k * state[j][c];
      }
      give_part(sums, parts);
      sync_block();
      add_parts(parts, sums);
      const float beta = stream.beta.at(token, 0);
#pragma unroll
      for (int c = 0; c < VEC; ++c) v[c] = beta * (v[c] - sums[c]), sums[c] = 0;
    }
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const float q = key_of(rows[at].q, j, part), k = key_of(rows[at].k, j, part);
#pragma unroll
      for (int c = 0; c < VEC; ++c) {
        state[j][c] += k * v[c];
        sums[c] += q * state[j][c];
      }
    }
    float* read = parts + (1 + t % 2) * (WARPS * COLUMNS);
    give_part(sums, read);
    if (t + 1 == count) after.store<PARTS>(state, keys, part, columns, whole_packs);  // before the wait: it needs nothing of the others
    sync_block();
    if (part == 0) {
      add_parts(read, sums);
#pragma unroll
      for (int c = 0; c < VEC; ++c)
        if (c < columns) out[token * out_view.strides[1] + c] = from_float<Element>(sums[c]);
    }
  }
  if (count <= 0) after.store<PARTS>(state, keys, part, columns, whole_packs);
}
