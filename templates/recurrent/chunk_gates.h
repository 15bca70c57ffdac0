// GPU vocabulary of the chunked recurrence: what gates leave from one token of a chunk to another.
#pragma once
#include "recurrent/chunk_rows.h"

// A sum and what rounding took from it, so that differences of large sums keep their digits.
struct LongSum {
  float high, low;
};
static inline LongSum operator+(const LongSum& a, const LongSum& b) {
  const float high = a.high + b.high, part = high - a.high;
  return {high, (a.high - (high - part)) + (b.high - part) + (a.low + b.low)};
}
static inline LongSum from_lane(const LongSum& x, int from) { return {shuffle(x.high, from), shuffle(x.low, from)}; }

// A log gate in units of log 2. Below -126 nothing is left in f32; finite, so that differences are numbers.
static inline float bounded_gate(float log) {
  const float x = log * LOG2_E;
  return x < -130 ? -130 : x;
}

// Of a chunk, in shared memory.
struct Gates {
  float high[CHUNK], low[CHUNK];  // sums of log gates, from the chunk's first token to each, in units of log 2
  float before[CHUNK];            // what is left at a token of the state before the chunk
  float after[CHUNK];             // what is left of a token's write after the chunk
  float beta[CHUNK];
  float base, rest;               // what the chunk leaves of a state

  // What is left at token t of what token s <= t wrote.
  float left(int t, int s) const { return exp2_of((high[t] - high[s]) + (low[t] - low[s])); }
};

// A head's numbers, one a token, in the order in which tokens are met.
struct TokenNumbers {
  const void* data;
  int type, stride;  // type: as number_at() has it; elements

  TokenNumbers(const View& view, int64_t type, const Tokens& tokens, int64_t head, bool reverse)
      : data(is_given(view) ? view.data : nullptr), type(static_cast<int>(type)), stride(0) {
    if (!data) return;
    const int64_t first = reverse ? tokens.end - 1 : tokens.first;
    data = static_cast<const char*>(data) + (tokens.row * view.strides[0] + first * view.strides[1] + head) * (type == 0 ? 4 : 2);
    stride = static_cast<int>(reverse ? -view.strides[1] : view.strides[1]);
  }

  // Those of a warp's tokens: lane l has tokens 2 l and 2 l + 1 of the 64 from `token` on; as they lie in memory, so that nothing waits for
  // them until they are used.
  void load_raw(int token, int count, uint32_t (&raw)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = token + 2 * lane() + i;
      const bool there = data && t < count;
      raw[i] = 0;
      if (there && type == 0) raw[i] = static_cast<const uint32_t*>(data)[static_cast<int64_t>(t) * stride];
      if (there && type != 0) raw[i] = static_cast<const uint16_t*>(data)[static_cast<int64_t>(t) * stride];
    }
  }
  // The same as floats; 0 past the last. Besides, each of them takes `more`.
  void read(const uint32_t (&raw)[2], int token, int count, float more, float (&to)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x = type == 0 ? number_of<float>(raw[i]) : type == 1 ? number_of<half>(raw[i]) : number_of<bfloat16>(raw[i]);
      to[i] = token + 2 * lane() + i < count ? x + more : 0;
    }
  }
  void load(int token, int count, float more, float (&to)[2]) const {
    uint32_t raw[2];
    load_raw(token, count, raw);
    read(raw, token, count, more, to);
  }
};

$if chunk_tokens < 64
static inline void put_betas(Gates& to, const float (&betas)[2]) {
  if (2 * lane() < CHUNK) to.beta[2 * lane()] = betas[0], to.beta[2 * lane() + 1] = betas[1];
}
$else
static inline void put_betas(Gates& to, const float (&betas)[2]) { to.beta[2 * lane()] = betas[0], to.beta[2 * lane() + 1] = betas[1]; }
$end

// Of a chunk, by a warp: what a lane's two tokens have of its Gates.
struct GateSums {
  LongSum sums[2];
  float before[2], after[2];
  SplitExp all;

  explicit GateSums(const float (&gates)[2]) {
    const LongSum own[2] = {{bounded_gate(gates[0]), 0}, {bounded_gate(gates[1]), 0}};
    LongSum sum = own[0] + own[1];
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const LongSum earlier = from_lane(sum, lane() - by < 0 ? 0 : lane() - by);
      if (lane() >= by) sum = sum + earlier;
    }
    LongSum first = from_lane(sum, lane() > 0 ? lane() - 1 : 0);
    first = lane() > 0 ? first + own[0] : own[0];
    const LongSum last = from_lane(sum, WARP - 1);
    sums[0] = first, sums[1] = sum;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      before[i] = exp2_of(sums[i].high + sums[i].low);
      after[i] = exp2_of((last.high - sums[i].high) + (last.low - sums[i].low));
    }
    all = split_exp((last.high + last.low) * LN_2);
  }
  void put(Gates& to) const {
$if chunk_tokens < 64  // lanes behind the chunk's tokens, which leave all there is
    if (2 * lane() >= CHUNK) return;
$end
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane() + i;
      to.high[t] = sums[i].high, to.low[t] = sums[i].low;
      to.before[t] = before[i];
      to.after[t] = after[i];
    }
    if (lane() == 0) to.base = all.base, to.rest = all.rest;
  }
};
static inline void put_gates(Gates& to, const float (&gates)[2]) { GateSums(gates).put(to); }
