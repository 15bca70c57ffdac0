// Hopper vocabulary of the attention kernels: the softmax of the two rows whose scores, of a warpgroup's product, a lane holds a quarter of.
#pragma once
#include "device/attention/attention_rows.h"
#include "device/sm90.h"

// Weights may grow to 2^HEADROOM before a row's reference follows the largest score: so outputs are seldom scaled.
constexpr float HEADROOM = 8;

// x, but what is made of it is made here: the compiler does not join two branches that have much in common.
static inline float made_here(float x) {
  asm volatile("" : "+f"(x));
  return x;
}

// tanh to 2^-11 of it. (tanh.approx)
static inline float rough_tanh_of(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Scores become tanh(s * unit), as exact as T's elements ask.
template <class T, int N> static inline void cap_scores(float (&s)[N], float unit) {
#pragma unroll
  for (int j = 0; j < N; ++j) s[j] = IS_HALF<T> ? far_tanh_of(s[j] * unit) : rough_tanh_of(s[j] * unit);
}

// unit * tanh(s * cap_unit) of scores near 0, for half: s times a polynomial of s^2, to 4.3e-6 of it where |s * cap_unit| < 0.375.
struct NearCap {
  float cap_unit;
  float by_power[3];  // 1, 3, 5

  NearCap(float to_tanh, float unit) : cap_unit(to_tanh) {
    asm volatile("" : "+f"(cap_unit));  // what follows is made here, and not kept in registers from before
    const float square = cap_unit * cap_unit, a = cap_unit * unit, b = a * square;
    by_power[0] = a * 0.999995708f, by_power[1] = b * -0.332780667f, by_power[2] = b * square * 0.122647586f;
    if (square < 1e-8f) by_power[0] = 1e30f;  // others are too small for floats: no score but 0 is near
  }
  // Whether a score of that size may be far, or its result may be above `limit`.
  bool is_far(float size, float limit) const { return size * fabsf(cap_unit) > 0.375f || size * fabsf(by_power[0]) > limit; }
  // The result less `reference`.
  float less(float s, float reference) const {
    const float square = s * s;
    return ((by_power[2] * square + by_power[1]) * square + by_power[0]) * s - reference;
  }
};

// Row h of a lane: row 16 w + lane / 4 + 8 h of warp w's warpgroup; element j: column j / 4 * 8 + lane % 4 * 2 + j % 2, of row j / 2 % 2.
struct LaneRows {
  float reference[2];  // in units of log 2
  float sum[2];        // of the lane's own weights

  // Of a lane's elements of a row, how many are before that many keys after the first of them.
  static int elements(int keys) { return keys <= 0 ? 0 : keys / 8 * 2 + (keys % 8 < 2 ? keys % 8 : 2); }
  static uint32_t first_bits(int count) { return count <= 0 ? 0 : count < 32 ? (1u << count) - 1 : ~0u; }

  // Scores that row h does not see become -inf; it sees keys of range[h]. `key`: that of element 0.
  template <int N> static void hide(float (&s)[N], const RowRange (&range)[2], int key) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int first = elements(range[h].first - key), end = elements(range[h].end - key);
#pragma unroll
      for (int word = 0; word < N / 2; word += 32) {
        const uint32_t seen = first_bits(end - word) & ~first_bits(first - word);  // bits go to predicates by eights
#pragma unroll
        for (int i = 0; i < 32 && word + i < N / 2; ++i)
          if (!(seen >> i & 1)) s[(word + i) / 2 * 4 + 2 * h + i % 2] = -INFINITE;
      }
    }
  }

  // Scores become weights. `unit` takes scores to log 2. Returns whether some row of the warp has a new reference: then outputs are to be
  // multiplied by `factor`.
  template <int N> bool weigh(float (&s)[N], float unit, float (&factor)[2]) {
    float largest[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = s[2 * h];
#pragma unroll
      for (int j = 2 * h; j < N; j += 4) largest[h] = larger_of(largest[h], larger_of(s[j], s[j + 1]));
    }
    const bool follows = any_in_warp(largest[0] * unit > reference[0] + HEADROOM || largest[1] * unit > reference[1] + HEADROOM);
    if (follows) follow(largest, unit, factor);
    add_weights(s, [&](float x, float from) { return x * unit - from; });
    return follows;
  }

  // The same of unit * tanh(s * cap_unit), for bfloat16, where the rows see all keys: tanh on the way from a score to its weight.
  template <int N> bool weigh_capped(float (&s)[N], float cap_unit, float unit, float (&factor)[2]) {
    float largest[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float even = -INFINITE, odd = -INFINITE;
#pragma unroll
      for (int j = 2 * h; j < N; j += 4) {
        s[j] *= cap_unit, s[j + 1] *= cap_unit;
        even = larger_of(even, s[j]), odd = larger_of(odd, s[j + 1]);
      }
      largest[h] = rough_tanh_of(larger_of(even, odd));
    }
    const bool follows = any_in_warp(largest[0] * unit > reference[0] + HEADROOM || largest[1] * unit > reference[1] + HEADROOM);
    if (follows) follow(largest, unit, factor);
    add_weights(s, [&](float x, float from) { return rough_tanh_of(x) * unit - from; });
    return follows;
  }

  // The same of unit * tanh(s * cap_unit) where all references are 0: nothing is searched.
  template <int N> void weigh_narrow(float (&s)[N], float cap_unit, float unit) {
    add_weights(s, [&](float x, float) { return rough_tanh_of(x * cap_unit) * unit; });
  }
  // The same where tanh has been taken and scores have been hidden since.
  template <int N> void weigh_hidden(float (&s)[N], float unit) {
    add_weights(s, [&](float x, float) { return x * unit; });
    sum[0] = made_here(sum[0]);  // where this ends, too
  }
  // The sums of whole rows, from reference 0, and what is before their keys. Returns what a weight counts now.
  float join(float before, float sum_before) {
    const float from = larger_of(before, 0), factor = exp2_of(-from), added = sum_before * exp2_of(before - from);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      reference[h] = sum[h] == 0 ? before : from;
      sum[h] = sum[h] == 0 ? sum_before : sum[h] * factor + added;
    }
    return factor;
  }

  // The same for half, where all scores of the warp are near 0 and no row has a new reference; false: nothing was done.
  template <int N> bool weigh_near(float (&s)[N], const NearCap& cap) {
    bool far = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float even = 0, odd = 0;
#pragma unroll
      for (int j = 2 * h; j < N; j += 4) even = larger_of(even, fabsf(s[j])), odd = larger_of(odd, fabsf(s[j + 1]));
      far = far || cap.is_far(larger_of(even, odd), reference[h] + HEADROOM);
    }
    if (any_in_warp(far)) return false;
    add_weights(s, [&](float x, float from) { return cap.less(x, from); });
    return true;
  }

  // Scores become weights, 2^exponent(score, the row's reference), and their sums grow.
  template <int N, class Exponent> void add_weights(float (&s)[N], Exponent exponent) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sums[2] = {};
#pragma unroll
      for (int j = 2 * h; j < N; j += 4)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          s[j + i] = exp2_of(exponent(s[j + i], reference[h]));
          sums[i] += s[j + i];
        }
      sum[h] += sums[0] + sums[1];
    }
  }

  // References of rows whose largest score has run ahead; what others have must not depend on those.
  void follow(float (&largest)[2], float unit, float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = larger_of(largest[h], shuffle_xor(largest[h], 1));
      largest[h] = larger_of(largest[h], shuffle_xor(largest[h], 2)) * unit;
      const float next = largest[h] > reference[h] + HEADROOM ? largest[h] : reference[h];
      factor[h] = exp2_of(reference[h] - next);
      reference[h] = next;
      sum[h] *= factor[h];
    }
  }

  // The compiler makes all weights before this line and not behind it: sums are not negative, but it does not know.
  void made() {
    while (sum[0] + sum[1] < 0) asm volatile("nanosleep.u32 1;" : "+f"(sum[0]));
  }

  // The sums of whole rows, in all their lanes.
  void add_up() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += shuffle_xor(sum[h], 1);
      sum[h] += shuffle_xor(sum[h], 2);
    }
  }
};

template <int N> static inline void scale_rows(float (&o)[N], const float (&factor)[2]) {
#pragma unroll
  for (int j = 0; j < N; ++j) o[j] *= factor[j / 2 % 2];
}

// Weights as operands A of a product with values: 16 keys each.
template <class T, int KEYS> static inline void pack_weights(uint32_t (&p)[KEYS / 16][4], const float (&s)[KEYS / 2]) {
#pragma unroll
  for (int n = 0; n < KEYS / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[n][i] = pack_pair<T>(s[8 * n + 2 * i], s[8 * n + 2 * i + 1]);
}

// w[i] of lane t of four becomes w[t] of lane i of them.
static inline void transpose_in_four(uint32_t (&w)[4], int of_lane = lane()) {
  const bool odd = of_lane % 2, upper = of_lane / 2 % 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = shuffle_xor(odd ? w[i] : w[i + 1], 1);
    (odd ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = shuffle_xor(upper ? w[i] : w[i + 2], 2);
    (upper ? w[i] : w[i + 2]) = got;
  }
}

// Row h of a lane's outputs times `factor`, to `to`: 16 bytes a lane where four groups of 8 columns come together. All lanes call it.
template <class T, int N> static inline void store_row(const float (&o)[N], int h, float factor, T* to, bool wanted) {
  constexpr int GROUPS = N / 4;
  const int quarter = lane() % 4;
#pragma unroll
  for (int g = 0; g < GROUPS; g += 4) {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4 && g + i < GROUPS; ++i) w[i] = pack_pair<T>(o[4 * (g + i) + 2 * h] * factor, o[4 * (g + i) + 2 * h + 1] * factor);
    if (g + 4 <= GROUPS) {
      transpose_in_four(w);
      if (wanted) store_pack(reinterpret_cast<uint32_t*>(to + 8 * (g + quarter)), Pack<uint32_t, 4>{{w[0], w[1], w[2], w[3]}});
    } else {
#pragma unroll
      for (int i = 0; g + i < GROUPS; ++i)
        if (wanted) *reinterpret_cast<uint32_t*>(to + 8 * (g + i) + 2 * quarter) = w[i];
    }
  }
}
