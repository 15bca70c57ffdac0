// GPU vocabulary of the chunked recurrence with gates of keys: gates of a part of a chunk, sums over a warp. Part of a template, which has
// defined PARTS of a chunk, of PART tokens each, before.
#pragma once

// A factor's rest, with its base, 0 or 1, in place of its last bit: a register instead of two.
static inline float in_one_word(const SplitExp& factor) {
  return __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, factor.rest) & ~1u) | (factor.base > 0 ? 1u : 0u));
}
static inline float base_of(float word) { return __builtin_bit_cast(uint32_t, word) & 1 ? 1.0f : 0.0f; }

// A thread's gates: of two keys at the tokens of a part.
typedef float PartGates[PART][2];

// Raw logs. `at`: of the part's first token and the first of COUNT keys, of which there are `keys` from there on.
template <int COUNT, class T>
static inline void load_key_gates(float (&x)[PART][COUNT], const T* at, int64_t stride, int tokens, int keys) {
#pragma unroll
$if backward  // one address after another: all of them would take registers that there are not
  for (int t = 0; t < PART; ++t) {
#pragma unroll
    for (int j = 0; j < COUNT; ++j) x[t][j] = t < tokens && j < keys ? to_float(at[j]) : 0;
    at += stride;
  }
$else
  for (int t = 0; t < PART; ++t)
#pragma unroll
    for (int j = 0; j < COUNT; ++j) x[t][j] = t < tokens && j < keys ? to_float(at[t * stride + j]) : 0;
$end
}
template <int COUNT>
static inline void load_key_gates(float (&x)[PART][COUNT], const View& view, int64_t type, const Tokens& tokens, int64_t head, int token,
                                  int count, int key, bool reverse) {
  const int64_t first = reverse ? tokens.end - 1 - token : tokens.first + token, stride = reverse ? -view.strides[1] : view.strides[1];
  const int64_t at = tokens.row * view.strides[0] + first * view.strides[1] + head * view.strides[2] + key;
  const int keys = static_cast<int>(view.shape[3]) - key;
  if (type == 0) load_key_gates(x, static_cast<const float*>(view.data) + at, stride, count - token, keys);
  else if (type == 1) load_key_gates(x, static_cast<const half*>(view.data) + at, stride, count - token, keys);
  else load_key_gates(x, static_cast<const bfloat16*>(view.data) + at, stride, count - token, keys);
}

// Sums over a warp of 16 numbers a lane: number j to lanes 2 j and 2 j + 1.
template <int HALF> static inline void add_halves(float (&x)[PART]) {
  const bool upper = lane() & 2 * HALF;
#pragma unroll
  for (int j = 0; j < HALF; ++j) {
    const float kept = upper ? x[j + HALF] : x[j], other = upper ? x[j] : x[j + HALF];
    x[j] = kept + shuffle_xor(other, 2 * HALF);
  }
}
static inline float sum_of_each(float (&x)[PART]) {
  add_halves<8>(x), add_halves<4>(x), add_halves<2>(x), add_halves<1>(x);
  return x[0] + shuffle_xor(x[0], 1);
}
