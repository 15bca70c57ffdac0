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

  // An operand: its tiles' address, or an object that has load<REGISTER>(number of the tile).
  template <class Left, class Right> static inline void multiply(const Left& left, const Right& right) {
    if constexpr (LEFT < RIGHT)
      load_staying(left), turn(right);
    else
      load_staying(right), turn(left);
  }

 private:
  template <int TILE> static inline void load_operand(const float* from, int i) { amx_load<TILE>(from + i * TILE_WORDS, LINE); }
  template <int TILE, class Operand> static inline void load_operand(const Operand& from, int i) { from.template load<TILE>(i); }
  template <int I = 0, class Operand> static inline void load_staying(const Operand& from) {
    if constexpr (I < STAYING) load_operand<staying_at(I)>(from, I), load_staying<I + 1>(from);
  }
  template <int I = 0, class Operand> static inline void turn(const Operand& from) {
    if constexpr (I < SUMS / STAYING) {
      load_operand<turning_at(I)>(from, I);
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
