// GPU vocabulary of tokens that have a wave: values as an operand of device/matrix/amd_matrix.h, whose rows are features, transposed in shared memory.
#pragma once
#include "device/matrix/wave_rows.h"

// Every lane of the wave must call.
static inline bool any_in_wave(bool x) { return ballot_wave(x) != 0; }

// [feature][key], of KEYS keys.
template <class T, int KEYS, int FEATURES> struct TransposedTile {
  static constexpr int PITCH = TRANSPOSED_PITCH<KEYS>, BYTES = FEATURES * PITCH;
  SharedPointer base;

  // 16 keys to number `first` on, by a warp; `count` of them are there, the others become zeros. Neighbouring lanes take neighbouring keys.
  void copy(int first, const T* from, int64_t stride, int count) const {
    static_assert(sizeof(T) == 2);
    const int key = lane() % 16;
#pragma unroll 2
    for (int feature = lane() / 16 * 8; feature < FEATURES; feature += WARP / 16 * 8) {
      Pack<uint32_t, 4> words = {};
      if (key < count) words = load_pack<4>(reinterpret_cast<const uint32_t*>(from + key * stride + feature));
#pragma unroll
      for (int j = 0; j < 8; ++j)
        *shared_at<uint16_t>(base + (feature + j) * PITCH + (first + key) * 2) = static_cast<uint16_t>(words.at[j / 2] >> (j % 2 * 16));
    }
  }
  // Operand a: features [feature, feature + 16), keys [first, first + 16).
  Operand load(int feature, int first) const { return load_operand(base + feature * PITCH + first * 2, PITCH); }
};
