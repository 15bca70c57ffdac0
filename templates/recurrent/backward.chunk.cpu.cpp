// recurrent_bwd on CPUs in chunks of CHUNK tokens: a work item goes through one sequence and head, forwards to keep the state before every
// chunk, then chunk by chunk from the last.
//
// With the words of forward.chunk.cpu.cpp, dS the gradient of the state after the chunk, do_t that of out_t times the scale, and X_t what
// w_t is beta_t times:
//   dw_t = sum over j >= t of on_q[j][t] do_j + dS^T (e[t, end] k_t) - [sum over j > t of on_k[j][t] y_j]     y_t = beta_t dw_t, else dw_t
//   dv_t = y_t     dbeta_t = dw_t . X_t     d on_q[t][j] = do_t . w_j     d on_k[t][j] = -y_t . w_j
//   dS before = e[-1, end] dS + sum over t of (e[-1, t] q_t) do_t^T - [(e[-1, t] k_t) y_t^T]
// A row of q or k reads (S, and keys before it) or is kept (in S, and for tokens after it). A log gate of token s has what readers from s
// on bring times their rows, less what keeping does, and what the state after the chunk brings: sums that end with the chunk.
#include "device/cpu.h"
#include "device/number/no_denormals.h"

constexpr int64_t CHUNK = ${chunk};
constexpr bool DELTA = ${delta}, VALUE_GATES = false;
#include "recurrent/cpu_gradients.h"
#include "recurrent/cpu_pairs.h"

// The scratch of a work item besides Scratch. Rows over the values have `values` floats, zeros from the last value on; those over keys
// `s.row`.
struct Gradients {
  int64_t values;
  float *state, *next, *gradient;               // [state_rows][values]: before the chunk, after it; of the state after it
  float *w, *missing, *dout, *dw, *y;           // [CHUNK][values]; missing: X; y with the other sign
  float *w_columns, *dout_columns, *y_columns;  // [values][COLUMNS]: transposed
  float *q, *k, *from_start, *to_end;           // [CHUNK][row]: as they are; factors e[-1, t] and e[t, end]
  float *q_read, *k_read;                       // [state_rows][COLUMNS]: with the factors from the chunk's begin, transposed
  float *read_gradient, *kept_gradient;         // [state_rows][COLUMNS]: of rows as they meet the state, transposed
  float *dq, *dk_read, *dk_kept;                // [CHUNK][row]
  float *moved, *met;                           // [CHUNK][row]
  float *weights, *across;                      // [CHUNK][COLUMNS]: gradients of weights of pairs, and transposed
  float *on_q, *on_k;                           // [CHUNK][COLUMNS]: weights, transposed

  Gradients(const Scratch& s, float* next_free, int64_t columns) : values(up_to(columns, 32) + 16) {
    const auto take = [&next_free](int64_t floats) { return (next_free += floats) - floats; };
    const int64_t size = s.state_rows * values, rows = CHUNK * values, keys = CHUNK * s.row, pairs = CHUNK * COLUMNS,
                  turned = up_to(s.keys, 48) * COLUMNS;
    float* const first = next_free;
    state = take(size), next = take(size), gradient = take(size);
    w = take(rows), missing = take(rows), dout = take(rows), dw = take(rows), y = take(rows);
    w_columns = take(values * COLUMNS), dout_columns = take(values * COLUMNS), y_columns = take(values * COLUMNS);
    q = take(keys), k = take(keys), from_start = take(keys), to_end = take(keys), dq = take(keys), dk_read = take(keys),
    dk_kept = take(keys);
    moved = take(keys), met = take(keys);
    q_read = take(turned), k_read = take(turned), read_gradient = take(turned), kept_gradient = take(turned);
    weights = take(pairs), across = take(pairs), on_q = take(pairs), on_k = take(pairs);
    __builtin_memset(first, 0, (next_free - first) * sizeof(float));
  }
};

struct Chunk {
  const Stream& stream;
  const Rows& dout;
  const Scratch& s;
  const Gradients& g;
  float scale;
  int64_t start, tokens, rows, columns;  // rows: whole tiles of tokens
  int64_t after;                         // where the chunk starts that comes after this one, below 0: none

  // Asks for part `part` of four of that chunk's rows.
  inline __attribute__((always_inline)) void prefetch(int64_t part) const {
    if (after < 0) return;
    const int64_t first = after + CHUNK * part / 4, end = after + CHUNK * (part + 1) / 4;
    stream.prefetch(first, end);
    for (int64_t t = first; t < end && t < stream.tokens; ++t) {
      const char* from = dout.data + stream.place(t) * dout.stride;
      for (int64_t byte = 0; byte < dout.count * bytes_of(dout.type); byte += 64) __builtin_prefetch(from + byte, 0, 2);
    }
  }
};

static void load_rows(const Chunk& c, const Rows& from, float* to, float scale) {
  for (int64_t t = 0; t < c.tokens; ++t) load_row(from.row(c.stream.place(c.start + t)), to + t * c.g.values, scale);
  __builtin_memset(to + c.tokens * c.g.values, 0, (c.rows - c.tokens) * c.g.values * sizeof(float));
}

// Rows of q and k, weights of pairs, factors of gates; then w and what it is beta times, from the state before the chunk.
static void prepare_chunk(const Chunk& c) {
  const Scratch& s = c.s;
  const Gradients& g = c.g;
  load_keys(c.stream, s, c.start, c.tokens, c.rows);
  c.prefetch(0);
  __builtin_memcpy(g.q, s.q, CHUNK * s.row * sizeof(float));
  __builtin_memcpy(g.k, s.k, CHUNK * s.row * sizeof(float));
  prepare(c.stream, s, c.start, c.tokens, c.rows);
  c.prefetch(1);
  find_factors(c.stream, s, c.start, c.tokens, c.rows, g.from_start, g.to_end);
  for (int64_t t = 0; t < c.rows; ++t)
    for (int64_t j = t + (DELTA ? 0 : 1); j < c.rows; ++j) {
      if (j > t) s.on_q[t * COLUMNS + j] = 0;
      if (DELTA) s.on_k[t * COLUMNS + j] = 0;
    }
  load_rows(c, c.stream.v, g.missing, 1);
  c.prefetch(2);
  if (DELTA) {
    multiply<false>(s.k, s.row, g.state, g.values, g.w, g.values, c.rows, c.columns, s.keys);
    for (int64_t t = 0; t < c.rows; ++t) {
      const float beta = t < c.tokens ? c.stream.beta.at(c.stream.place(c.start + t)) : 0;
      float *w = g.w + t * g.values, *missing = g.missing + t * g.values;
      if (t % ROWS == 0 && t > 0) multiply<true>(s.on_k + t * COLUMNS, COLUMNS, g.w, g.values, w, g.values, ROWS, c.columns, t);
      for (int64_t x = 0; x < c.columns; x += LANES) {
        Floats seen = load_floats(w + x);
        for (int64_t j = t / ROWS * ROWS; j < t; ++j) seen += s.on_k[t * COLUMNS + j] * load_floats(g.w + j * g.values + x);
        const Floats difference = load_floats(missing + x) - seen;
        store_floats(missing + x, difference);
        store_floats(w + x, beta * difference);
      }
    }
  } else {
    __builtin_memcpy(g.w, g.missing, CHUNK * g.values * sizeof(float));
  }
  c.prefetch(3);
}

static void update_state(const Chunk& c, const float* from, float* to) {
  for (int64_t i = 0; i < c.s.keys; ++i)
    for (int64_t x = 0; x < c.columns; x += LANES) {
      const Floats was = load_floats(from + i * c.g.values + x);
      store_floats(to + i * c.g.values + x, was * c.s.decay[i] + was * c.s.decay_rest[i]);
    }
  multiply<true>(c.s.kept, COLUMNS, c.g.w, c.g.values, to, c.g.values, c.s.state_rows, c.columns, c.rows);
}

// dw, and y with the other sign; returns in `dbeta` what beta gets.
static void solve_back(const Chunk& c, float* dbeta) {
  const Scratch& s = c.s;
  const Gradients& g = c.g;
  turn(s.on_q, COLUMNS, g.on_q, COLUMNS, c.rows, c.rows);
  if (DELTA) turn(s.on_k, COLUMNS, g.on_k, COLUMNS, c.rows, c.rows);
  for (int64_t t = 0; t < c.rows; ++t)
    for (int64_t i = 0; i < s.keys; i += LANES)
      store_floats(g.met + t * s.row + i, load_floats(g.k + t * s.row + i) * load_floats(g.to_end + t * s.row + i));
  multiply<false>(g.met, s.row, g.gradient, g.values, g.dw, g.values, c.rows, c.columns, s.keys);
  multiply<true>(g.on_q, COLUMNS, g.dout, g.values, g.dw, g.values, c.rows, c.columns, c.rows);
  for (int64_t t = c.rows - 1; t >= 0; --t) {
    const float beta = DELTA && t < c.tokens ? c.stream.beta.at(c.stream.place(c.start + t)) : DELTA ? 0.0f : 1.0f;
    const int64_t first = t / ROWS * ROWS, end = first + ROWS;
    float *dw = g.dw + t * g.values, *y = g.y + t * g.values;
    if (DELTA && t + 1 == end && end < c.rows)
      multiply<true>(g.on_k + first * COLUMNS + end, COLUMNS, g.y + end * g.values, g.values, g.dw + first * g.values, g.values, ROWS,
                     c.columns, c.rows - end);
    Floats of_beta = {};
    for (int64_t x = 0; x < c.columns; x += LANES) {
      Floats sum = load_floats(dw + x);
      for (int64_t j = t + 1; DELTA && j < end; ++j) sum += s.on_k[j * COLUMNS + t] * load_floats(g.y + j * g.values + x);
      of_beta += sum * load_floats(g.missing + t * g.values + x);
      store_floats(dw + x, sum);
      store_floats(y + x, -beta * sum);
    }
    dbeta[t] = sum_of(of_beta);
  }
}

// Gradients of the rows of q and k by the state, and by pairs of different tokens.
static void find_rows(const Chunk& c, float* own) {
  const Scratch& s = c.s;
  const Gradients& g = c.g;
  turn(g.w, g.values, g.w_columns, COLUMNS, c.rows, c.columns);
  turn(g.dout, g.values, g.dout_columns, COLUMNS, c.rows, c.columns);
  const auto by_state = [&](const float* state, const float* columns, const float* factor, float* turned, float* to) {
    multiply<false>(state, g.values, columns, COLUMNS, turned, COLUMNS, s.state_rows, c.rows, c.columns);
    turn(turned, COLUMNS, to, s.row, s.keys, c.rows);
    for (int64_t t = 0; t < c.rows; ++t)
      for (int64_t i = 0; i < s.keys; i += LANES)
        store_floats(to + t * s.row + i, load_floats(to + t * s.row + i) * load_floats(factor + t * s.row + i));
  };
  by_state(g.state, g.dout_columns, g.from_start, g.read_gradient, g.dq);
  by_state(g.gradient, g.w_columns, g.to_end, g.kept_gradient, g.dk_kept);
  multiply<false>(g.dout, g.values, g.w_columns, COLUMNS, g.weights, COLUMNS, c.rows, c.rows, c.columns);
  for (int64_t t = 0; t < c.rows; ++t) own[t] = g.weights[t * COLUMNS + t];
  const PairWork work{g.weights, g.across, g.moved, g.met};
  pair_gradients(c.stream, s, c.start, c.tokens, c.rows, work, g.q, g.k, g.dq, g.dk_kept);
  if (!DELTA) return;
  turn(g.y, g.values, g.y_columns, COLUMNS, c.rows, c.columns);
  by_state(g.state, g.y_columns, g.from_start, g.read_gradient, g.dk_read);
  multiply<false>(g.y, g.values, g.w_columns, COLUMNS, g.weights, COLUMNS, c.rows, c.rows, c.columns);
  pair_gradients(c.stream, s, c.start, c.tokens, c.rows, work, g.k, g.k, g.dk_read, g.dk_kept);
}

// The gradient of the state before the chunk.
static void pass_gradient(const Chunk& c) {
  const Scratch& s = c.s;
  const Gradients& g = c.g;
  turn(s.q, s.row, g.q_read, COLUMNS, c.rows, s.keys);
  if (DELTA) turn(s.k, s.row, g.k_read, COLUMNS, c.rows, s.keys);
  for (int64_t i = 0; i < s.keys; ++i)
    for (int64_t x = 0; x < c.columns; x += LANES) {
      float* at = g.gradient + i * g.values + x;
      const Floats was = load_floats(at);
      store_floats(at, was * s.decay[i] + was * s.decay_rest[i]);
    }
  multiply<true>(g.q_read, COLUMNS, g.dout, g.values, g.gradient, g.values, s.state_rows, c.columns, c.rows);
  if (DELTA) multiply<true>(g.k_read, COLUMNS, g.y, g.values, g.gradient, g.values, s.state_rows, c.columns, c.rows);
}

// A work item's rows of sums: [tokens of the call][heads][3 keys + 2], and [tokens][heads][values].
struct SumRows {
  float *keys_data, *values_data;
  int64_t stride, value_stride, keys;
  float* token(int64_t at) const { return keys_data + at * stride; }
};

static void store_sums(const Chunk& c, const SumRows& sums, const float* own, const float* dbeta) {
  const Scratch& s = c.s;
  const Gradients& g = c.g;
  double gates[CHUNK] = {};
  Floats factors[CHUNK];
  for (int64_t t = 0; t < c.tokens; ++t)
    factors[t] = exp2_of(splat((c.stream.g.at(c.stream.place(c.start + t)) + c.stream.gamma) * LOG2_E));
  for (int64_t i = 0; i < s.keys; i += LANES) {
    float by_key[LANES] = {};
    for (int64_t lane = 0; lane < LANES && i + lane < s.keys; ++lane) {
      Floats sum = {};
      for (int64_t x = 0; x < c.columns; x += LANES)
        sum += load_floats(g.next + (i + lane) * g.values + x) * load_floats(g.gradient + (i + lane) * g.values + x);
      by_key[lane] = sum_of(sum);
    }
    Floats gate = load_floats(by_key);
    for (int64_t t = c.rows - 1; t >= 0; --t) {
      const Floats q = load_floats(g.q + t * s.row + i), k = load_floats(g.k + t * s.row + i);
      Floats dq = load_floats(g.dq + t * s.row + i), kept = load_floats(g.dk_kept + t * s.row + i);
      Floats dk = DELTA ? load_floats(g.dk_read + t * s.row + i) : Floats{};
      gate += q * dq + k * dk - k * kept;
      if (t >= c.tokens) continue;
      float* to = sums.token(c.stream.place(c.start + t));
      store_some(to + i, dq + own[t] * k, sums.keys - i);
      store_some(to + sums.keys + i, dk + kept + own[t] * q, sums.keys - i);
      // Where nothing is left the gradient is 0, and the sums' terms cancel but for their rounding.
      const Floats left = c.stream.gk.data ? load_floats(s.factor + t * s.row + i) : factors[t];
      const Floats of_gate = left == Floats{} ? Floats{} : gate;
      store_some(to + 2 * sums.keys + i, of_gate, sums.keys - i);
      for (int64_t lane = 0; lane < LANES && i + lane < sums.keys; ++lane) gates[t] += of_gate[lane];
    }
  }
  for (int64_t t = 0; t < c.tokens; ++t) {
    const int64_t at = c.stream.place(c.start + t);
    float* to = sums.token(at);
    to[3 * sums.keys] = static_cast<float>(gates[t]);
    to[3 * sums.keys + 1] = dbeta[t];
    for (int64_t x = 0; x < c.columns; x += LANES)
      store_some(sums.values_data + at * sums.value_stride + x, -load_floats(g.y + t * g.values + x), c.columns - x);
  }
}

static void load_state(const State<float>& from, const Scratch& s, const Gradients& g, float* to, int64_t columns) {
  for (int64_t i = 0; i < s.keys; ++i)
    for (int64_t x = 0; x < columns; x += LANES)
      store_floats(to + i * g.values + x, from.data ? load_some(from.data + i * from.stride + x, columns - x) : Floats{});
}

// Item (x, y): head x of sequence y. `saved` has room for the states of chunks_before(y).. of each head.
static void chunks(${parameters('chunks')}, const Group& group) {
  const NoDenormals no_denormals;
  const int64_t head = group.x, sequence = group.y, heads = group.grid_x, keys = q_view.shape[3], values = v_view.shape[3],
                length = q_view.shape[1];
  const Tokens tokens{cum_seqlens, sequences, sequence, length};
  const Stream stream{{q_view, data_type, tokens, head, heads, 0, keys},
                      {k_view, data_type, tokens, head, heads, 0, keys},
                      {v_view, data_type, tokens, head, heads, 0, values},
                      {gk_view, gk_type, tokens, head, heads, 0, keys},
                      {View{}, 0, tokens, head, heads, 0, values},
                      {g_view, g_type, tokens, head},
                      {beta_view, beta_type, tokens, head},
                      gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers),
                      1,
                      tokens.count(),
                      reverse,
                      l2_norm};
  const Rows dout(dout_view, data_type, tokens, head, heads, 0, values);
  float* const scratch = static_cast<float*>(group.shared);
  const Scratch s(scratch, keys, 0);
  const Gradients g(s, scratch + first_floats, values);
  const int64_t size = keys * g.values, count = (stream.tokens + CHUNK - 1) / CHUNK;
  const int64_t chunks_before = cum_seqlens ? tokens.first / CHUNK + sequence : sequence * ((length + CHUNK - 1) / CHUNK);
  float* kept = saved + (chunks_before * heads + head) * size;
  const int64_t first_token = tokens.row * length + tokens.first;
  const SumRows sums{key_sums + (first_token * heads + head) * (3 * keys + 2), value_sums + (first_token * heads + head) * values,
                     heads * (3 * keys + 2), heads * values, keys};
  const auto chunk_at = [&](int64_t number, int64_t step) {
    const int64_t start = number * CHUNK, in_use = stream.tokens - start < CHUNK ? stream.tokens - start : CHUNK;
    return Chunk{stream, dout, s, g, static_cast<float>(softmax_scale), start, in_use, up_to(in_use, ROWS), values, start + step * CHUNK};
  };
  load_state({initial_state_view, sequence, head, 0, values}, s, g, g.state, values);
  for (int64_t number = 0; number < count; ++number) {
    __builtin_memcpy(kept + number * heads * size, g.state, size * sizeof(float));
    const Chunk c = chunk_at(number, 1);
    prepare_chunk(c);
    update_state(c, g.state, g.state);
  }
  __builtin_memcpy(g.next, g.state, size * sizeof(float));
  load_state({dfinal_state_view, sequence, head, 0, values}, s, g, g.gradient, values);
  for (int64_t number = count - 1; number >= 0; --number) {
    const Chunk c = chunk_at(number, -1);
    float dbeta[CHUNK], own[CHUNK];
    __builtin_memcpy(g.state, kept + number * heads * size, size * sizeof(float));
    prepare_chunk(c);
    load_rows(c, dout, g.dout, c.scale);
    solve_back(c, dbeta);
    find_rows(c, own);
    store_sums(c, sums, own, dbeta);
    pass_gradient(c);
    __builtin_memcpy(g.next, g.state, size * sizeof(float));
  }
  if (!is_given(dinitial_state_view)) return;
  const State<float> to(dinitial_state_view, sequence, head, 0, values);
  for (int64_t i = 0; i < keys; ++i)
    for (int64_t x = 0; x < values; x += LANES)
      store_some(to.data + i * to.stride + x, load_floats(g.gradient + i * g.values + x), values - x);
}

#include "recurrent/cpu_finish.h"
