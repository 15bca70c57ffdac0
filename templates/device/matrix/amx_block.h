// CPU vocabulary: a block of LEFT x RIGHT sums on AMX tiles, of LEFT tiles of left operands times RIGHT tiles of right ones a step; four
// sums at most. Tiles lie one after another, TILE_WORDS each (product_amx.h).
#pragma once
#include "device/matrix/product_amx.h"

template <int LEFT, int RIGHT>
struct AmxBlock {
  static_assert(LEFT * RIGHT <= 4, "eight tiles, of which operands have four");
  static constexpr int64_t LINE = 64;  // bytes
  // Registers: sums first, then those of the side that has fewer tiles, which stay for a step; the other side's take turns.
  static constexpr int SUMS = LEFT * RIGHT, STAYING = LEFT < RIGHT ? LEFT : RIGHT, TURNS = 8 - SUMS - STAYING;
  static constexpr int sum_at(int left, int right) { return left * RIGHT + right; }
  static constexpr int staying_at(int i) { return SUMS + i; }
  static constexpr int turning_at(int i) { return SUMS + STAYING + i % TURNS; }

  template <int I = 0>
  static inline void zero() {
    if constexpr (I < SUMS) amx_zero<I>(), zero<I + 1>();
  }
  // Sums lie as tiles: of the first left tile and all right ones, then of the second left tile.
  template <int I = 0>
  static inline void load(const float* from) {
    if constexpr (I < SUMS) amx_load<I>(from + I * TILE_WORDS, LINE), load<I + 1>(from);
  }
  template <int I = 0>
  static inline void store(float* to) {
    if constexpr (I < SUMS) amx_store<I>(to + I * TILE_WORDS, LINE), store<I + 1>(to);
  }
  // As a matrix whose rows lie `row` floats apart.
  template <int I = 0>
  static inline void load_rows(const float* from, int64_t row) {
    if constexpr (I < SUMS) amx_load<I>(from + I / RIGHT * 16 * row + I % RIGHT * 16, 4 * row), load_rows<I + 1>(from, row);
  }
  template <int I = 0>
  static inline void store_rows(float* to, int64_t row) {
    if constexpr (I < SUMS) amx_store<I>(to + I / RIGHT * 16 * row + I % RIGHT * 16, 4 * row), store_rows<I + 1>(to, row);
  }

  static inline void multiply(const float* left, const float* right) {
    load_staying(LEFT < RIGHT ? left : right);
    turn(LEFT < RIGHT ? right : left);
  }

 private:
  template <int I = 0>
  static inline void load_staying(const float* from) {
    if constexpr (I < STAYING) amx_load<staying_at(I)>(from + I * TILE_WORDS, LINE), load_staying<I + 1>(from);
  }
  template <int I = 0>
  static inline void turn(const float* from) {
    if constexpr (I < SUMS / STAYING) {
      amx_load<turning_at(I)>(from + I * TILE_WORDS, LINE);
      meet<I>();
      turn<I + 1>(from);
    }
  }
  template <int I, int WITH = 0>
  static inline void meet() {
    if constexpr (WITH < STAYING) {
      if constexpr (LEFT < RIGHT)
        amx_multiply<sum_at(WITH, I), staying_at(WITH), turning_at(I)>();
      else
        amx_multiply<sum_at(I, WITH), turning_at(I), staying_at(WITH)>();
      meet<I, WITH + 1>();
    }
  }
};
