// GPU vocabulary: rows of 16-bit elements as operands of device/matrix/amd_matrix.h: rows that a wave keeps to itself, straight from global
// memory, and rows of a step, transposed, in shared memory.
#pragma once
#include "device/gpu.h"
#include "device/matrix/amd_matrix.h"

// One row a lane, 16 of them a wave: operand b whose columns are rows, `FEATURES` summed over. KEPT: in registers; else it is read again
// each time.
template <class T, int FEATURES, bool KEPT> struct OwnRow {
  static constexpr int SLICES = (FEATURES + 15) / 16;
  const T* row;  // aligned to 16 bytes
  Operand kept[KEPT ? SLICES : 1];

  OwnRow() = default;
  explicit OwnRow(const T* from) : row(from) {
#pragma unroll
    for (int slice = 0; KEPT && slice < SLICES; ++slice) kept[slice] = load(row, slice);
  }
  // Features [16 slice, 16 slice + 16), zeros past the last.
  static Operand load(const T* row, int slice) {
    Operand x = {};
#pragma unroll
    for (int i = 0; i < OPERAND_WORDS; i += 2) {
      const int column = 16 * slice + first_k() + 2 * i;
      if (FEATURES % 16 != 0 && column >= FEATURES) continue;
      const Pack<uint32_t, 2> two = load_pack<2>(reinterpret_cast<const uint32_t*>(row + column));
      x.words[i] = two.at[0], x.words[i + 1] = two.at[1];
    }
    return x;
  }
  Operand of(int slice) const { return KEPT ? kept[slice] : load(keep(row), slice); }
};

// A tile of ROWS rows, [feature][row]: bytes from feature to feature, of FEATURES of them.
template <int ROWS> constexpr int TRANSPOSED_PITCH = (ROWS + 8) * 2;

// Copies ROWS rows of FEATURES elements, `stride` elements apart; what is past the first `left` rows, or `across` features, a multiple of
// 8, becomes zeros. Neighbouring threads take neighbouring rows, whose features are neighbours in shared memory.
template <int ROWS, int FEATURES, int THREADS, class T>
static inline void copy_transposed(SharedPointer to, const T* from, int64_t stride, int64_t left, int64_t across = FEATURES) {
  static_assert(sizeof(T) == 2 && FEATURES % 8 == 0);
#pragma unroll 1
  for (int i = thread_x(); i < ROWS * ((FEATURES + 15) / 16 * 2); i += THREADS) {
    const int row = i % ROWS, feature = i / ROWS * 8;
    Pack<uint32_t, 4> words = {};
    if (row < left && feature < across) words = load_pack<4>(reinterpret_cast<const uint32_t*>(from + row * stride + feature));
#pragma unroll
    for (int j = 0; j < 8; ++j)
      *shared_at<uint16_t>(to + (feature + j) * TRANSPOSED_PITCH<ROWS> + row * 2) = static_cast<uint16_t>(words.at[j / 2] >> (j % 2 * 16));
  }
}

// Dot products of the rows of a tile in shared memory, `pitch` bytes apart, and own rows.
template <class T, class Own> static inline Sums multiply_rows(SharedPointer tile, int pitch, const Own& own) {
  Sums dots = {};
#pragma unroll
  for (int slice = 0; slice < Own::SLICES; ++slice) {
    if (slice % 2 == 0) part();
    multiply<T>(dots, load_operand(tile + 32 * slice, pitch), own.of(slice));
  }
  return dots;
}
// sums [16 N features][16 own rows] += 16 rows of a transposed tile of ROWS times x [16 rows][16 own rows].
template <class T, int ROWS, int N> static inline void add_products(Sums (&sums)[N], SharedPointer transposed, const Sums& x) {
  const Operand b = operand_of<T>(x);
#pragma unroll
  for (int f = 0; f < N; ++f) {
    if (f % 4 == 0) part();
    multiply<T>(sums[f], load_operand(transposed + 16 * f * TRANSPOSED_PITCH<ROWS>, TRANSPOSED_PITCH<ROWS>), b);
  }
}
// A lane's share of the sums of its own row, to the row.
template <int FEATURES, class T, int N> static inline void store_row(T* to, const Sums (&sums)[N], float factor) {
#pragma unroll
  for (int f = 0; f < N; ++f)
#pragma unroll
    for (int i = 0; i < SUMS; ++i)
      if (FEATURES % 16 == 0 || 16 * f + matrix_row(i) < FEATURES) to[16 * f + matrix_row(i)] = from_float<T>(sums[f].at[i] * factor);
}

// Whether none of a lane's sums is infinite or NaN.
template <int N> static inline bool finite(const Sums (&sums)[N]) {
  float zero = 0;
#pragma unroll
  for (int f = 0; f < N; ++f)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) zero += sums[f].at[i] * 0;
  return zero == 0;
}
