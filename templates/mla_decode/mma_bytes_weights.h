// The softmax of mla_decode on bytes in registers. A part of decode_mma_bytes.gpu.cu, whose constants it uses.
#pragma once

// LANES lanes share a head; each has every LANES-th pair of keys of a tile. Weights relative to the head's reference are 2^(score - reference); those that meet block i's values are
// times the scale of these and times unit[i], which is NONE, so that every other weight is too large, until one is not 0. Units are in shared memory: registers are few.
struct Weights {
  static constexpr int LANES = THREADS / HEADS, PAIRS = KEYS / 2 / LANES;
  static_assert(BLOCKS == 4);
  typedef float Scored[PAIRS][2];
  const Places& at;
  const float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of
  float reference = LOWEST, sum = 0;
  static constexpr float NONE = 0x1p64f;

  Weights(const Places& places, float log_unit, float tanh_unit) : at(places), to_log(log_unit), to_tanh(tanh_unit) {
    if (first_lane()) store_pack(at.units(head()), Pack<float, BLOCKS>{{NONE, NONE, NONE, NONE}});
    sync_warp();
  }
  static int head() { return thread_x() / LANES; }
  static bool first_lane() { return thread_x() % LANES == 0; }
  static int key_of(int pair) { return (pair * LANES + thread_x() % LANES) * 2; }
  template <class Combine> static float of_head(float x, Combine combine) {
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2) x = combine(x, shuffle_xor(x, mask));
    return x;
  }
  static float largest_of_head(float x) { return of_head(x, [](float a, float b) { return larger_of(a, b); }); }

  // Reference and units of the warp's heads follow the largest weights of a tile, and say what outputs so far are multiplied by. A block of features after the other: registers are few.
  void follow(const Scored& s, int tile) {
    float next = reference;
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) next = larger_of(next, larger_of(s[pair][0], s[pair][1]));
    next = largest_of_head(next);
    const float change = exp2_of(reference - next);
    reference = next, sum *= change;
#pragma unroll 1
    for (int i = 0; i < BLOCKS; ++i) {
      const float unit = at.units(head())[i];
      float largest = unit == NONE ? 0 : change / unit;  // as large was one before
#pragma unroll
      for (int pair = 0; pair < PAIRS; ++pair)
#pragma unroll
        for (int k = 0; k < 2; ++k) largest = larger_of(largest, exp2_of(s[pair][k] - reference) * size_of(at.scales(tile, key_of(pair) + k)[i]));
      largest = largest_of_head(largest);
      const float now = largest == 0 ? unit : power_of_two(-exponent_of(largest, 60));
      sync_warp();  // the unit has been read
      if (first_lane()) at.units(head())[i] = now, at.factors(tile, head())[i] = change * (now / unit);
    }
    sync_warp();
  }

  void load_scores(Scored& s, int tile) const {
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
      const int key = key_of(pair);
      s[pair][0] = s[pair][1] = 0;
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) {
        const Pack<float, 2> some = load_pack<2>(static_cast<const float*>(at.scores(i, head())) + key);
        s[pair][0] += some.at[0], s[pair][1] += some.at[1];
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) s[pair][k] = at.seen(tile)[key + k] ? (CAPPED ? tanh_of(s[pair][k] * to_tanh) : s[pair][k]) * to_log : -INFINITE;
    }
  }
  // Returns the sum of the lane's weights; too_large: whether one is above MOST.
  float store(const Scored& s, int tile, bool& too_large) const {
    const Pack<float, BLOCKS> units = load_pack<BLOCKS>(static_cast<const float*>(at.units(head())));
    float all = 0;
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
      const int key = key_of(pair);
      const float weight[2] = {exp2_of(s[pair][0] - reference), exp2_of(s[pair][1] - reference)};
      const Pack<float, BLOCKS> first = load_pack<BLOCKS>(at.scales(tile, key)), second = load_pack<BLOCKS>(at.scales(tile, key + 1));
      all += weight[0] + weight[1];
      float largest = larger_of(weight[0], weight[1]);
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) {
        const float x = weight[0] * (first.at[i] * units.at[i]), y = weight[1] * (second.at[i] * units.at[i]);
        largest = larger_of(largest, larger_of(size_of(x), size_of(y)));
        *reinterpret_cast<uint32_t*>(at.weights(tile, i) + head() * Places::WEIGHT_ROW + key * 2) = pack_pair<::half>(x, y);
      }
      too_large = too_large || largest > MOST;
    }
    return all;
  }

  void make(int tile) {
    Scored s;
    load_scores(s, tile);
    if (first_lane()) store_pack(at.factors(tile, head()), Pack<float, BLOCKS>{{1, 1, 1, 1}});
    float all = 0;
#pragma unroll 1
    for (int pass = 0; pass < 2; ++pass) {
      bool too_large = false;
      all = store(s, tile, too_large);
      if (pass > 0 || !any_in_warp(too_large)) break;
      follow(s, tile);
    }
    sum += all;
  }

  // Says what outputs are to be multiplied by: `whole` ones also by the inverse of the sum.
  void finish(bool whole) {
    sum = of_head(sum, [](float a, float b) { return a + b; });
    const float last = !whole ? 1 : sum == 0 ? 0 : reciprocal(sum);
    sync_block();  // factors of the last tiles have been read
    if (first_lane())
#pragma unroll
      for (int i = 0; i < BLOCKS; ++i) at.factors(0, head())[i] = last / at.units(head())[i];
  }
  float lse() const { return sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum); }
  Softmax softmax() const { return {reference, sum}; }
};
