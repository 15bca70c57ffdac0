// recurrent_bwd: a work item goes through one sequence and head for WIDTH features of v, twice. First forward, to keep the state before every
// CHUNK-th token; then chunk by chunk from the last: forward again with the state before each token kept, and backward through them.
//
// At a token, with S' the decayed state, w what it writes, u = S'^T k, and dS the gradient of the state after it, its own read included
// (dS += scale q dout^T):
//   dq = scale (S' dout + k (w . dout))      dw = dS^T k      dk = dS w - [S' (beta dw)]       dv = beta dw      dbeta = dw . (v - u)
//   dS' = dS - [k (beta dw)^T]               d log gate of (i, x) = dS'[i][x] S'[i][x]         dS before = gates dS'
// [ ]: with beta, else beta is 1. Sums over features of v are of WIDTH of them: `finish` adds those up, and over heads that share a row.
#include "device/cpu.h"
#include "device/number/math.h"
#include "device/number/narrow.h"
#include "recurrent/recurrent_decay.h"
#include "recurrent/recurrent_rows.h"
$if dual  // ssd_bwd
#include "ssd/dual_rows.h"
$end

constexpr int VECTORS = ${vectors};
constexpr int64_t WIDTH = VECTORS * LANES, CHUNK = ${chunk};
constexpr bool DELTA = ${delta}, VALUE_GATES = ${value_gates};

typedef Floats Wide[VECTORS];

static float sum_of(const Wide& x) {
  Floats sum = x[0];
  for (int i = 1; i < VECTORS; ++i) sum += x[i];
  return sum_of(sum);
}
static void load_wide(Wide& to, const float* from) {
#pragma GCC unroll 8
  for (int x = 0; x < VECTORS; ++x) to[x] = load_floats(from + x * LANES);
}
static void store_wide(float* to, const Wide& from) {
#pragma GCC unroll 8
  for (int x = 0; x < VECTORS; ++x) store_floats(to + x * LANES, from[x]);
}

// The scratch of a work item, in floats; rows over the keys have `keys` of them, whole vectors.
struct Scratch {
  int64_t keys;
  float *states, *gradient;                      // [CHUNK + 1][K][WIDTH]: before each token; [K][WIDTH]
  float *q, *k, *decay, *decay_rest;             // [keys] of a token; gates in two parts (split_exp)
  float *v_decay, *v_decay_rest;                 // [WIDTH]
  float *dq, *dk, *dgk;                          // [keys]
  Scratch(const Group& group, int64_t count) : keys((count + LANES - 1) / LANES * LANES) {
    float* next = static_cast<float*>(group.shared);
    const auto take = [&next](int64_t floats) { return (next += floats) - floats; };
    states = take((CHUNK + 1) * count * WIDTH), gradient = take(count * WIDTH);
    q = take(keys), k = take(keys), decay = take(keys), decay_rest = take(keys);
    dq = take(keys), dk = take(keys), dgk = take(keys);
    v_decay = take(WIDTH), v_decay_rest = take(WIDTH);
  }
};

// One sequence and head.
struct Stream {
  Rows q, k, v, gk, gv, dout;
  Numbers g, beta;
  float gamma, scale;
  int64_t tokens;
  bool reverse, l2_norm;
$if dual
  Steps steps;  // in place of g; and factors of k
$end

  int64_t place(int64_t t) const { return reverse ? tokens - 1 - t : t; }

  void load(const Scratch& s, int64_t t) const {
    const int64_t at = place(t);
    load_scaled(q.row(at), s.q, 1, l2_norm);
$if dual
    const float step = steps.at(at), gate = step * steps.rate;
    load_scaled(k.row(at), s.k, step, false);
$else
    load_scaled(k.row(at), s.k, 1, l2_norm);
    const float gate = g.at(at) + gamma;
$end
    for (int64_t i = 0; i < s.keys; i += LANES) {
      const SplitExp decay = split_exp(gk.row(at).load(i) + gate);
      store_floats(s.decay + i, decay.base);
      store_floats(s.decay_rest + i, decay.rest);
    }
    for (int64_t x = 0; VALUE_GATES && x < WIDTH; x += LANES) {
      const SplitExp decay = split_exp(gv.row(at).load(x));
      store_floats(s.v_decay + x, decay.base);
      store_floats(s.v_decay_rest + x, decay.rest);
    }
  }
  void load_values(const Rows& rows, int64_t t, Wide& to) const {
    for (int x = 0; x < VECTORS; ++x) to[x] = rows.row(place(t)).load(x * LANES);
  }
};

// Row i of a state, decayed by the token in the scratch.
static inline __attribute__((always_inline)) void decay_row(const Scratch& s, int64_t i, Wide& row) {
#pragma GCC unroll 8
  for (int x = 0; x < VECTORS; ++x) {
    row[x] = row[x] * s.decay[i] + row[x] * s.decay_rest[i];
    if (VALUE_GATES) row[x] = row[x] * load_floats(s.v_decay + x * LANES) + row[x] * load_floats(s.v_decay_rest + x * LANES);
  }
}

// What the token writes, from the state before it: w, and v - u.
static void written(const Stream& stream, const Scratch& s, int64_t t, const float* before, Wide& w, Wide& missing) {
  Wide v, seen = {};
  stream.load_values(stream.v, t, v);
  for (int64_t i = 0; DELTA && i < stream.k.count; ++i) {
    Wide row;
    load_wide(row, before + i * WIDTH);
    decay_row(s, i, row);
    for (int x = 0; x < VECTORS; ++x) seen[x] += s.k[i] * row[x];
  }
  const float beta = DELTA ? stream.beta.at(stream.place(t)) : 1;
  for (int x = 0; x < VECTORS; ++x) missing[x] = v[x] - seen[x], w[x] = beta * missing[x];
}

static void step(const Stream& stream, const Scratch& s, int64_t t, const float* before, float* after) {
  Wide w, missing;
  stream.load(s, t);
  written(stream, s, t, before, w, missing);
  for (int64_t i = 0; i < stream.k.count; ++i) {
    Wide row;
    load_wide(row, before + i * WIDTH);
    decay_row(s, i, row);
    for (int x = 0; x < VECTORS; ++x) row[x] += s.k[i] * w[x];
    store_wide(after + i * WIDTH, row);
  }
}

// Sums over WIDTH features of v, of one token.
struct TokenSums {
  float *dq, *dk, *dgk, *dg, *dbeta;
};

static void step_back(const Stream& stream, const Scratch& s, int64_t t, const float* before, const TokenSums& sums, Wide& dv, Wide& dgv) {
  Wide w, missing, dout, dw = {};
  stream.load(s, t);
  written(stream, s, t, before, w, missing);
  stream.load_values(stream.dout, t, dout);
  for (int x = 0; x < VECTORS; ++x) dout[x] *= stream.scale;
  Wide both;
  for (int x = 0; x < VECTORS; ++x) both[x] = w[x] * dout[x];
  const float w_on_dout = sum_of(both);
  const int64_t keys = stream.k.count;
  for (int64_t i = 0; i < keys; ++i) {
    Wide row, gradient, read;
    load_wide(row, before + i * WIDTH);
    load_wide(gradient, s.gradient + i * WIDTH);
    decay_row(s, i, row);
    for (int x = 0; x < VECTORS; ++x) {
      read[x] = row[x] * dout[x];
      gradient[x] += s.q[i] * dout[x];
      dw[x] += s.k[i] * gradient[x];
    }
    store_wide(s.gradient + i * WIDTH, gradient);
    sums.dq[i] = sum_of(read) + s.k[i] * w_on_dout;
  }
  const float beta = DELTA ? stream.beta.at(stream.place(t)) : 1;
  for (int x = 0; x < VECTORS; ++x) both[x] = dw[x] * missing[x], dv[x] = beta * dw[x], dgv[x] = Floats{};
  *sums.dbeta = sum_of(both);
  float gates = 0;
  for (int64_t i = 0; i < keys; ++i) {
    Wide row, gradient, on_k, logs;
    load_wide(row, before + i * WIDTH);
    load_wide(gradient, s.gradient + i * WIDTH);
    decay_row(s, i, row);
    for (int x = 0; x < VECTORS; ++x) {
      on_k[x] = gradient[x] * w[x];
      if (DELTA) on_k[x] -= row[x] * dv[x], gradient[x] -= s.k[i] * dv[x];
      logs[x] = gradient[x] * row[x];
      if (VALUE_GATES) dgv[x] += logs[x];
    }
    decay_row(s, i, gradient);
    store_wide(s.gradient + i * WIDTH, gradient);
    sums.dk[i] = sum_of(on_k);
    sums.dgk[i] = sum_of(logs);
    gates += sums.dgk[i];
  }
  *sums.dg = gates;
}

// A work item's rows of sums: [slices][tokens of the call][heads][3 keys + 2].
struct SumRows {
  float* data;
  int64_t token_stride, keys;
  TokenSums token(int64_t at) const {
    float* row = data + at * token_stride;
    return {row, row + keys, row + 2 * keys, row + 3 * keys, row + 3 * keys + 1};
  }
};

// Rows over the values: of v's and gv's gradients, each head's own, in f32.
struct ValueRows {
  float* data;
  int64_t token_stride, count;
  void store(int64_t at, const Wide& x) const {
    for (int i = 0; data && i < VECTORS; ++i) store_some(data + at * token_stride + i * LANES, x[i], count - i * LANES);
  }
};

// Item (x, y, z): WIDTH features of head y of sequence z. `saved` has room for the states of chunks_before(z).. of each head and slice.
static void sweep(${parameters('sweep')}, const Group& group) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view, none{nullptr, -1};
$end
  const int64_t head = group.y, sequence = group.z, first = group.x * WIDTH, heads = group.grid_y, keys = q_view.shape[3];
  const int64_t all_values = v_view.shape[3], length = q_view.shape[1], columns = all_values - first < WIDTH ? all_values - first : WIDTH;
  const Tokens tokens{cum_seqlens, sequences, sequence, length};
$if dual
  const Stream stream{{q_view, data_type, tokens, head, heads, 0, keys}, {k_view, data_type, tokens, head, heads, 0, keys},
                      {v_view, data_type, tokens, head, heads, first, columns}, {none, 0, tokens, head, heads, 0, keys},
                      {none, 0, tokens, head, heads, first, columns}, {dout_view, data_type, tokens, head, heads, first, columns},
                      {none, 0, tokens, head}, {none, 0, tokens, head}, 0, 1, tokens.count(), false, false,
                      {{dt_view, dt_type, tokens, head}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus}};
$else
  const Stream stream{{q_view, data_type, tokens, head, heads, 0, keys}, {k_view, data_type, tokens, head, heads, 0, keys},
                      {v_view, data_type, tokens, head, heads, first, columns}, {gk_view, gk_type, tokens, head, heads, 0, keys},
                      {gv_view, gv_type, tokens, head, heads, first, columns}, {dout_view, data_type, tokens, head, heads, first, columns},
                      {g_view, g_type, tokens, head}, {beta_view, beta_type, tokens, head},
                      gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), static_cast<float>(softmax_scale),
                      tokens.count(), reverse, l2_norm};
$end
  const Scratch s(group, keys);
  const int64_t size = keys * WIDTH, chunks = (stream.tokens + CHUNK - 1) / CHUNK;
  const int64_t chunks_before = cum_seqlens ? tokens.first / CHUNK + sequence : sequence * ((length + CHUNK - 1) / CHUNK);
  float* kept = saved + ((chunks_before * heads + head) * group.grid_x + group.x) * size;
  const int64_t kept_stride = heads * group.grid_x * size, first_token = tokens.row * length + tokens.first;
  const SumRows sums{key_sums + ((group.x * all_tokens + first_token) * heads + head) * (3 * keys + 2), heads * (3 * keys + 2), keys};
  const int64_t values_at = (first_token * heads + head) * all_values + first;
  const ValueRows dv_rows{value_sums + values_at, heads * all_values, columns};
  const ValueRows dgv_rows{${dual ? 'nullptr' : 'VALUE_GATES ? value_gate_sums + values_at : nullptr'}, heads * all_values, columns};

  ${dual ? 'DualState' : 'State'}<float>(initial_state_view, sequence, head, first, columns).load<WIDTH, WIDTH>(s.states, keys);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    __builtin_memcpy(kept + chunk * kept_stride, s.states, size * sizeof(float));
    for (int64_t t = chunk * CHUNK; t < (chunk + 1) * CHUNK && t < stream.tokens; ++t) step(stream, s, t, s.states, s.states);
  }
  ${dual ? 'DualState' : 'State'}<float>(dfinal_state_view, sequence, head, first, columns).load<WIDTH, WIDTH>(s.gradient, keys);
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const int64_t start = chunk * CHUNK, count = stream.tokens - start < CHUNK ? stream.tokens - start : CHUNK;
    __builtin_memcpy(s.states, kept + chunk * kept_stride, size * sizeof(float));
    for (int64_t t = 0; t + 1 < count; ++t) step(stream, s, start + t, s.states + t * size, s.states + (t + 1) * size);
    for (int64_t t = count - 1; t >= 0; --t) {
      Wide dv, dgv;
      const int64_t at = stream.place(start + t);
      step_back(stream, s, start + t, s.states + t * size, sums.token(at), dv, dgv);
      dv_rows.store(at, dv);
      dgv_rows.store(at, dgv);
    }
  }
  if (is_given(dinitial_state_view)) ${dual ? 'DualState' : 'State'}<float>(dinitial_state_view, sequence, head, first, columns).store<WIDTH, WIDTH>(s.gradient, keys);
}

$if dual
#include "recurrent/cpu_gradient_rows.h"
#include "ssd/finish_cpu.h"
$else
#include "recurrent/cpu_finish.h"
$end
