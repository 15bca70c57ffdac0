// CPU vocabulary of mla_decode: the softmax of GROUP query rows, which lie across the lanes of vectors, so that a row's softmax is a
// lane's; and what the parts of their keys give together. Scores are in units of log 2. Part of a template, which has defined before: R,
// VECTORS, BLOCK; and KeyPlaces.
#pragma once
#include "device/attention/decode_rows.h"

constexpr int GROUP = VECTORS * LANES;

typedef float ScoreRows[BLOCK][GROUP];  // of a group's rows for a tile's keys; then weights

struct GroupSoftmax {
  float maximum[GROUP], sum[GROUP];
  int32_t limit[GROUP];  // keys from this number on are hidden from the row

  void start() {
    for (int r = 0; r < GROUP; ++r) maximum[r] = -INFINITE, sum[r] = 0, limit[r] = 0;
  }
  int64_t last_limit() const { return limit[GROUP - 1]; }  // limits do not fall from row to row

  // Is some key of the tile hidden from some row?
  bool hides(const KeyPlaces& places) const {
    const int64_t last = places.key[places.count - 1];
    bool hidden = false;
    for (int r = 0; r < GROUP; ++r) hidden |= limit[r] <= last;
    return hidden;
  }

  // Scores become weights relative to the rows' maxima, which follow; returns what outputs are to be multiplied by.
  template <bool MASKED>
  inline Floats weigh(int v, ScoreRows& scores, const KeyPlaces& places, const Scoring& scoring) {
    const float* at = scores[0] + v * LANES;
    Integers limits;
    __builtin_memcpy(&limits, limit + v * LANES, sizeof limits);
    const Floats before = load_floats(maximum + v * LANES);
    Floats now = before;
    for (int64_t k = 0; k < places.count; ++k) {
      Floats s = scoring(load_floats(at + k * GROUP));
      if (MASKED) s = splat_integer(static_cast<int32_t>(places.key[k])) < limits ? s : splat(-INFINITE);
      store_floats(scores[k] + v * LANES, s);
      now = larger_of(s, now);
    }
    const Floats base = now == splat(-INFINITE) ? Floats{} : now, factor = exp2_of(before - base);
    Floats all = load_floats(sum + v * LANES) * factor;
    for (int64_t k = 0; k < places.count; ++k) {
      const Floats weight = exp2_of(load_floats(at + k * GROUP) - base);
      store_floats(scores[k] + v * LANES, weight);
      all += weight;
    }
    store_floats(maximum + v * LANES, now);
    store_floats(sum + v * LANES, all);
    return factor;
  }

  // A part of the rows: their maxima, their sums of weights, their weighted values [R][GROUP], which are left out where no row saw a key.
  // Returns where those go, or null.
  static constexpr int64_t PART = (R + 2) * GROUP;
  float* store_part(float* to) const {
    __builtin_memcpy(to, maximum, sizeof maximum);
    __builtin_memcpy(to + GROUP, sum, sizeof sum);
    bool some = false;
    for (int r = 0; r < GROUP; ++r) some |= sum[r] != 0;
    return some ? to + 2 * GROUP : nullptr;
  }
};

// The parts of a group's rows, one after another, put together: features [first, first + count), FEATURES at most.
struct WholeGroup {
  static constexpr int64_t FEATURES = 64;
  alignas(64) float output[FEATURES][GROUP] = {};
  alignas(64) float maximum[GROUP], sum[GROUP] = {};

  WholeGroup(const float* from, int64_t parts, int64_t first, int64_t count) {
    for (int v = 0; v < VECTORS; ++v) {
      Floats most = splat(-INFINITE), all = {};
      for (int64_t part = 0; part < parts; ++part) most = larger_of(load_floats(from + part * GroupSoftmax::PART + v * LANES), most);
      const Floats base = most == splat(-INFINITE) ? Floats{} : most;
      for (int64_t part = 0; part < parts; ++part) {
        const float* at = from + part * GroupSoftmax::PART;
        const Floats part_sum = load_floats(at + GROUP + v * LANES), factor = exp2_of(load_floats(at + v * LANES) - base);
        if (!any_row(at + GROUP)) continue;  // saw nothing, and wrote no values
        all += part_sum * factor;
        for (int64_t c = 0; c < count; ++c) {
          float* to = output[c] + v * LANES;
          store_floats(to, load_floats(to) + load_floats(at + (2 + first + c) * GROUP + v * LANES) * factor);
        }
      }
      store_floats(maximum + v * LANES, most);
      store_floats(sum + v * LANES, all);
    }
  }

 private:
  static bool any_row(const float* sums) {
    bool some = false;
    for (int r = 0; r < GROUP; ++r) some |= sums[r] != 0;
    return some;
  }
};
