// What the templates of recurrences do with a token: its numbers as a lane has them, and its gates. They use the template's constants: Element,
// PARTS (of a warp's lanes; each has every PARTS-th key), GROUPS = WARP / PARTS, KEYS and VEC (columns) of a lane, DELTA, KEY_GATES, VALUE_GATES.
#pragma once
#include "device/number/roots.h"
#include "recurrent/recurrent_step.h"
$if dual  // ssd
#include "ssd/dual_step.h"
$end

// One token's numbers, as a lane has them.
struct Token {
  float q[KEYS], k[KEYS], gk[KEY_GATES ? KEYS : 1], v[VEC], gv[VALUE_GATES ? VEC : 1], gate, beta;
};

static inline float sum_over_parts(float x) {
#pragma unroll
  for (int mask = GROUPS; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
  return x;
}

// What a warp reads. Rows are of the sequence's first token, features of the lane's first one.
struct Stream {
  Numbers<Element> q, k, v;
  AnyNumbers gk, gv, g, beta;
  float gamma;
  int keys, columns, part;  // columns: of the lane's VEC, those that there are
$if dual
  Steps steps;  // in place of g; and factors of k
$end

  Token load(int64_t token) const {
    Token x;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) {
      const int i = j * PARTS + part;
      x.q[j] = i < keys ? q.at(token, i) : 0;
      x.k[j] = i < keys ? k.at(token, i) : 0;
      if constexpr (KEY_GATES) x.gk[j] = i < keys ? gk.at(token, i) : 0;
    }
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      x.v[c] = c < columns ? v.at(token, c) : 0;
      if constexpr (VALUE_GATES) x.gv[c] = c < columns ? gv.at(token, c) : 0;
    }
$if dual
    const float step = steps.at(token);
#pragma unroll
    for (int j = 0; j < KEYS; ++j) x.k[j] *= step;
    x.gate = step * steps.rate;
$else
    x.gate = g.at(token, 0) + gamma;
$end
    x.beta = DELTA ? beta.at(token, 0) : 1;
    return x;
  }
};

static inline void scale_row(float (&x)[KEYS], float scale, bool l2_norm) {
  float factor = scale;
  if (l2_norm) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < KEYS; ++j) squares += x[j] * x[j];
    factor *= rsqrt_of(sum_over_parts(squares) + 1e-6f);
  }
#pragma unroll
  for (int j = 0; j < KEYS; ++j) x[j] *= factor;
}

static inline void decay(float (&state)[KEYS][VEC], const Token& x) {
  SplitExp all = split_exp(x.gate);
#pragma unroll
  for (int j = 0; j < KEYS; ++j) {
    if constexpr (KEY_GATES) all = split_exp(x.gate + x.gk[j]);
#pragma unroll
    for (int c = 0; c < VEC; ++c) state[j][c] = all.of(state[j][c]);
  }
  if constexpr (VALUE_GATES) {
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      const SplitExp own = split_exp(x.gv[c]);
#pragma unroll
      for (int j = 0; j < KEYS; ++j) state[j][c] = own.of(state[j][c]);
    }
  }
}
