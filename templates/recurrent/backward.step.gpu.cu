// recurrent_bwd, token by token: a block goes through one sequence and head, each warp for VEC columns of the state. First forward, to keep
// the state before every CHUNK-th token; then chunk by chunk from the last: forward again with the state before each token kept, and backward
// through them. backward.cpu.cpp has the formulas. A lane has every 32nd key, and its warp's columns of each.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int PARTS = WARP, GROUPS = 1, VEC = ${vec}, KEYS = ${keys_a_lane};
constexpr int WARPS = ${warps}, THREADS = 32 * WARPS, CHUNK = ${chunk};
constexpr bool DELTA = ${delta}, KEY_GATES = ${key_gates}, VALUE_GATES = ${value_gates};
#include "recurrent/gradient_rows.h"
#include "recurrent/recurrent_token.h"

// A lane's part of a state, in the workspace: lanes lie side by side.
static inline void keep_state(float* to, const float (&state)[KEYS][VEC]) {
#pragma unroll
  for (int j = 0; j < KEYS; ++j)
#pragma unroll
    for (int c = 0; c < VEC; ++c) to[(j * VEC + c) * WARP] = state[j][c];
}
static inline void load_kept(const float* from, float (&state)[KEYS][VEC]) {
#pragma unroll
  for (int j = 0; j < KEYS; ++j)
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] = from[(j * VEC + c) * WARP];
}

// What the token writes, from the decayed state: w, and v - u.
static inline void written(const float (&decayed)[KEYS][VEC], const Token& x, float (&w)[VEC], float (&missing)[VEC]) {
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    missing[c] = x.v[c];
    if constexpr (DELTA) {
      float seen = 0;
#pragma unroll
      for (int j = 0; j < KEYS; ++j) seen += x.k[j] * decayed[j][c];
      missing[c] -= sum_over_parts(seen);
    }
    w[c] = x.beta * missing[c];
  }
}

static inline void step(float (&state)[KEYS][VEC], const Token& x) {
  float w[VEC], missing[VEC];
  decay(state, x);
  written(state, x, w, missing);
#pragma unroll
  for (int j = 0; j < KEYS; ++j)
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] += x.k[j] * w[c];
}

// Of one token and a warp's columns: gradients of the lane's keys, of the gate and beta (the latter alike in every lane), and of the columns.
struct Gradients {
  float q[KEYS], k[KEYS], gk[KEYS], gate, beta, v[VEC], gv[VEC];
};

// `state`: before the token. `after`: the gradient of the state after the token, which becomes that of the state before it.
static inline Gradients step_back(float (&state)[KEYS][VEC], float (&after)[KEYS][VEC], const Token& x, const float (&dout)[VEC]) {
  Gradients d;
  float w[VEC], missing[VEC], w_on_dout = 0;
  decay(state, x);
  written(state, x, w, missing);
#pragma unroll
  for (int c = 0; c < VEC; ++c) w_on_dout += w[c] * dout[c];
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    d.q[j] = x.k[j] * w_on_dout;
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      d.q[j] += state[j][c] * dout[c];
      after[j][c] += x.q[j] * dout[c];
    }
  }
  d.beta = 0, d.gate = 0;
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    float dw = 0;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) dw += x.k[j] * after[j][c];
    dw = sum_over_parts(dw);
    d.beta += dw * missing[c];
    d.v[c] = x.beta * dw, d.gv[c] = 0;
  }
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    d.k[j] = 0, d.gk[j] = 0;
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      d.k[j] += after[j][c] * w[c];
      if constexpr (DELTA) d.k[j] -= state[j][c] * d.v[c], after[j][c] -= x.k[j] * d.v[c];
      const float log = after[j][c] * state[j][c];
      d.gk[j] += log;
      if constexpr (VALUE_GATES) d.gv[c] += log;
    }
    d.gate += d.gk[j];
  }
  d.gate = sum_over_parts(d.gate);
  if constexpr (VALUE_GATES) {
#pragma unroll
    for (int c = 0; c < VEC; ++c) d.gv[c] = sum_over_parts(d.gv[c]);
  }
  decay(after, x);
  return d;
}

// The warps' sums over the keys, and those of the gate and beta, become the block's, in `to`: [3 keys + 2].
static inline void add_up(const Gradients& d, int keys, float* to) {
  float* shared = reinterpret_cast<float*>(dynamic_shared());
  const int width = 3 * keys + 2;
  float* mine = shared + warp() * width;
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    const int i = j * PARTS + lane();
    if (i < keys) mine[i] = d.q[j], mine[keys + i] = d.k[j], mine[2 * keys + i] = d.gk[j];
  }
  if (lane() == 0) mine[3 * keys] = d.gate, mine[3 * keys + 1] = d.beta;
  sync_block();
  for (int i = thread_x(); i < width; i += THREADS) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += shared[w * width + i];
    to[i] = sum;
  }
  sync_block();
}

// Block x: slice x % slices (WARPS * VEC columns) of a head of a sequence.
KERNEL(THREADS, 1) sweep(${parameters('sweep')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view;
  constexpr bool reverse = false, l2_norm = false;
  constexpr float softmax_scale = 1;
$end
  const int64_t number = block_x(), slice = number % slices, head = number / slices % heads, sequence = number / slices / heads;
  const int64_t length = q_view.shape[1], values = v_view.shape[3], column = (slice * WARPS + warp()) * VEC, left = values - column;
  const int columns = left < 0 ? 0 : left < VEC ? static_cast<int>(left) : VEC, keys = static_cast<int>(q_view.shape[3]);
  const Tokens tokens(cum_seqlens, sequences, sequence, length);
  const int64_t count = tokens.end - tokens.first;
$if dual
  const Stream stream{{q_view, tokens, head, heads, 0}, {k_view, tokens, head, heads, 0}, {v_view, tokens, head, heads, column},
                      {}, {}, {}, {}, 0, keys, columns, lane(),
                      {{dt_view, dt_type, tokens, head, 0}, number_of_head(dt_bias_view, bias_type, head), number_at(A_view.data, a_type, head), dt_softplus}};
$else
  const Stream stream{{q_view, tokens, head, heads, 0}, {k_view, tokens, head, heads, 0}, {v_view, tokens, head, heads, column},
                      {gk_view, gk_type, tokens, head, 0}, {gv_view, gv_type, tokens, head, column}, {g_view, g_type, tokens, head, 0},
                      {beta_view, beta_type, tokens, head, 0},
                      gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), keys, columns, lane()};
$end
  const Numbers<Element> dout_rows(dout_view, tokens, head, heads, column);
  const float scale = softmax_scale;
  const auto place = [&](int64_t t) { return reverse ? count - 1 - t : t; };
  const auto token_at = [&](int64_t t) {
    Token x = stream.load(place(t));
    scale_row(x.q, 1, l2_norm);
    scale_row(x.k, 1, l2_norm);
    return x;
  };

  constexpr int64_t PART = KEYS * VEC * WARP;  // floats of a warp's state
  const int64_t chunks = (count + CHUNK - 1) / CHUNK;
  const int64_t chunks_before = cum_seqlens ? tokens.first / CHUNK + sequence : sequence * ((length + CHUNK - 1) / CHUNK);
  const int64_t kept_stride = heads * slices * WARPS * PART;
  float* kept = saved + chunks_before * kept_stride + ((head * slices + slice) * WARPS + warp()) * PART + lane();
  float* recent = states + (number * WARPS + warp()) * CHUNK * PART + lane();
  const int64_t first_token = tokens.row * length + tokens.first;
  float* sums = key_sums + ((slice * all_tokens + first_token) * heads + head) * (3 * keys + 2);
  const int64_t values_at = (first_token * heads + head) * values + column;

  float state[KEYS][VEC], after[KEYS][VEC];
  ${dual ? 'DualColumns' : 'StateColumns'}<float>(initial_state_view, sequence, head, column).load<PARTS>(state, keys, lane(), columns, false);
#pragma unroll 1
  for (int64_t t = 0; t < count; ++t) {
    if (t % CHUNK == 0) keep_state(kept + t / CHUNK * kept_stride, state);
    step(state, token_at(t));
  }
  ${dual ? 'DualColumns' : 'StateColumns'}<float>(dfinal_state_view, sequence, head, column).load<PARTS>(after, keys, lane(), columns, false);
#pragma unroll 1
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const int64_t start = chunk * CHUNK, tokens_here = count - start < CHUNK ? count - start : CHUNK;
    load_kept(kept + chunk * kept_stride, state);
#pragma unroll 1
    for (int64_t t = 0; t < tokens_here; ++t) {
      keep_state(recent + t * PART, state);
      step(state, token_at(start + t));
    }
#pragma unroll 1
    for (int64_t t = tokens_here - 1; t >= 0; --t) {
      const int64_t at = place(start + t);
      float dout[VEC];
#pragma unroll
      for (int c = 0; c < VEC; ++c) dout[c] = c < columns ? scale * dout_rows.at(at, c) : 0;
      load_kept(recent + t * PART, state);
      const Gradients d = step_back(state, after, token_at(start + t), dout);
      if (lane() == 0) {
#pragma unroll
        for (int c = 0; c < VEC; ++c) {
          if (c >= columns) continue;
          value_sums[values_at + at * heads * values + c] = d.v[c];
$if not dual
          if constexpr (VALUE_GATES) value_gate_sums[values_at + at * heads * values + c] = d.gv[c];
$end
        }
      }
      add_up(d, keys, sums + at * heads * (3 * keys + 2));
    }
  }
  if (is_given(dinitial_state_view)) ${dual ? 'DualColumns' : 'StateColumns'}<float>(dinitial_state_view, sequence, head, column).store<PARTS>(after, keys, lane(), columns, false);
}

// Rows of sums, added over slices and over the `count` heads from `first` on that share a row.
struct SharedRow {
  const float* data;
  int64_t slices, slice_stride, head_stride, first, count;
  float at(int64_t i) const {
    float sum = 0;
    for (int64_t slice = 0; slice < slices; ++slice)
      for (int64_t head = first; head < first + count; ++head) sum += data[slice * slice_stride + head * head_stride + i];
    return sum;
  }
};

$if dual
#include "ssd/finish_gpu.h"
$else
// The gradient of a row of q or k, by a warp: through its norm, if it was divided by that.
static inline void store_key_row(const SharedRow& sums, const GradientRow& to, const Numbers<Element>& from, int64_t token, int keys,
                                 bool l2_norm) {
  float squares = 0, dot = 0;
  for (int i = lane(); l2_norm && i < keys; i += WARP) {
    const float x = from.at(token, i);
    squares += x * x, dot += x * sums.at(i);
  }
  const float inverse = l2_norm ? rsqrt_of(sum_over_parts(squares) + 1e-6f) : 1;
  const float along = l2_norm ? sum_over_parts(dot) * inverse * inverse : 0;
  for (int i = lane(); i < keys; i += WARP) to.store(i, inverse * (sums.at(i) - (l2_norm ? from.at(token, i) * along : 0)));
}

// Block x: token x of all rows of the batch. A warp has every fourth row of the token.
KERNEL(128, 1) finish(${parameters('finish')}) {
  const int64_t length = q_view.shape[1], row = block_x() / length, token = block_x() % length, values = v_view.shape[3];
  const int keys = static_cast<int>(q_view.shape[3]), width = 3 * keys + 2;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];
  const int64_t in_use = used ? slices : 0, one = used ? 1 : 0, slice_stride = all_tokens * heads * width;  // nothing was written for others
  const float* of_keys = key_sums + block_x() * heads * width;
  const Tokens place(nullptr, 0, row, length);
  for (int which = 0; which < 2; ++which) {
    const View& from = which ? k_view : q_view;
    const int64_t readers = heads / from.shape[2];
    for (int64_t head = warp(); head < from.shape[2]; head += 4)
      store_key_row({of_keys + which * keys, in_use, slice_stride, width, head * readers, readers},
                    GradientRow(which ? dk_view : dq_view, data_type, row, token, head),
                    Numbers<Element>(from, place, head * readers, heads, 0), token, keys, l2_norm && used);
  }
  const int64_t readers = heads / v_view.shape[2];
  for (int64_t head = warp(); head < v_view.shape[2]; head += 4) {
    const SharedRow sums{value_sums + block_x() * heads * values, one, 0, values, head * readers, readers};
    const GradientRow to(dv_view, data_type, row, token, head);
    for (int64_t x = lane(); x < values; x += WARP) to.store(x, sums.at(x));
  }
  for (int64_t head = warp(); head < heads; head += 4) {
    const SharedRow sums{of_keys, in_use, slice_stride, width, head, 1};
    if (lane() == 0 && is_given(dg_view)) GradientRow(dg_view, g_type, row, token, head).store(0, sums.at(3 * keys));
    if (lane() == 0 && is_given(dbeta_view)) GradientRow(dbeta_view, beta_type, row, token, head).store(0, sums.at(3 * keys + 1));
    for (int64_t i = lane(); is_given(dgk_view) && i < keys; i += WARP)
      GradientRow(dgk_view, gk_type, row, token, head).store(i, sums.at(2 * keys + i));
    const SharedRow logs{value_gate_sums + block_x() * heads * values, one, 0, values, head, 1};
    for (int64_t x = lane(); VALUE_GATES && is_given(dgv_view) && x < values; x += WARP)
      GradientRow(dgv_view, gv_type, row, token, head).store(x, logs.at(x));
  }
}

// Block x: the gradient of head x's g_gamma, over all tokens in use.
KERNEL(256, 1) sum_gamma(${parameters('sum_gamma')}) {
  const int64_t used = cum_seqlens ? cum_seqlens[sequences] : all_tokens;
  double sum = 0;
  for (int64_t slice = 0; slice < slices; ++slice)
    for (int64_t token = thread_x(); token < used; token += 256)
      sum += key_sums[((slice * all_tokens + token) * heads + block_x()) * (3 * keys + 2) + 3 * keys];
  __shared__ double sums[256];
  sums[thread_x()] = sum;
  for (int half = 128; half > 0; half /= 2) {
    sync_block();
    if (thread_x() < half) sums[thread_x()] += sums[thread_x() + half];
  }
  if (thread_x() == 0) GradientRow(dg_gamma_view, gamma_type, 0, 0, 0).store(block_x(), static_cast<float>(sums[0]));
}
$end
