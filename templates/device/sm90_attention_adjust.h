// Hopper vocabulary of the attention kernels: what a call gives for each score, a bias or a mask. Tile copies bring those of a step, ROWS x KEYS,
// into shared memory; warps of a warpgroup that multiplies read those of their 16 rows.
#pragma once
#include "device/sm90_attention_rows.h"
#include "device/sm90_attention_tiles.h"
#include "device/sm90_uniform.h"

struct NoBias {};

// 16 bytes of shared memory.
static inline void load_words(uint32_t (&w)[4], uint32_t from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(from) : "memory");
}
static inline void load_floats(float& low, float& high, uint32_t from) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(low), "=f"(high) : "r"(from) : "memory");
}

// Two neighbouring elements of 16 bits.
static inline void unpack_pair(uint32_t pair, float& low, float& high, bfloat16) {
  low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
}
static inline void unpack_pair(uint32_t pair, float& low, float& high, half) {
  low = to_float(half{static_cast<uint16_t>(pair)}), high = to_float(half{static_cast<uint16_t>(pair >> 16)});
}

// A bias: boxes of rows of 128 bytes, swizzled by them.
template <class T, int ROWS, int KEYS> struct BiasTile {
  static constexpr int BOX_KEYS = 128 / sizeof(T), BOXES = KEYS / BOX_KEYS;
  static constexpr uint32_t BOX = ROWS * 128, BYTES = BOXES * BOX;

  // The bias of the warp's scores, times `factor`, is added to them. `row`: the warp's first, a multiple of 16.
  static void add(float (&s)[KEYS / 2], uint32_t memory, int row, float factor) {
    const uint32_t me = keep_here(lane());
    if constexpr (sizeof(T) == 2) {  // as operand A of a product: 16 keys at once
      const uint32_t from = memory + (row + me % 16) * 128 + (me / 16 ^ me % 8) * 16;
#pragma unroll
      for (int n = 0; n < KEYS / 16; ++n) {
        uint32_t w[4];
        load_matrices(w, (from ^ n % 4 * 32) + n / 4 * BOX);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float low, high;
          unpack_pair(w[i], low, high, T{});
          s[8 * n + 2 * i] += low * factor, s[8 * n + 2 * i + 1] += high * factor;
        }
      }
    } else {
      const uint32_t from = memory + (row + me / 4) * 128 + (me % 4 / 2 ^ me / 4) * 16 + me % 2 * 8;
#pragma unroll
      for (int n = 0; n < KEYS / 4; ++n) {
        float low, high;
        load_floats(low, high, (from ^ n / 2 % 4 * 32) + n % 2 * 8 * 128 + n / 8 * BOX);
        s[2 * n] += low * factor, s[2 * n + 1] += high * factor;
      }
    }
  }
};

// A mask, a byte a score, 0 or 1: boxes of rows of 64 bytes, swizzled by them.
template <int ROWS, int KEYS> struct MaskTile {
  static constexpr int BOX_KEYS = 64, BOXES = KEYS / BOX_KEYS;
  static constexpr uint32_t BOX = ROWS * 64, BYTES = BOXES * BOX;

  // Scores that the mask hides become -inf.
  static void hide(float (&s)[KEYS / 2], uint32_t memory, int row) {
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      const uint32_t me = keep_here(lane()), word = of_half_a_row(memory + box * BOX + row * 64, me);
      if (!any_in_warp(word != ~0u)) continue;
      const uint32_t from = me / 4 * 2 + me % 4 / 2, by = me % 2 * 16;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t seen = shuffle(word, from + 16 * h) >> by;
#pragma unroll
        for (int i = 0; i < 16; ++i)
          if (!(seen >> i & 1)) s[32 * box + i % 8 * 4 + 2 * h + i / 8] = -INFINITE;
      }
    }
  }

  // Of lane `me`: of row me / 2 of 16 and of each 8 of its 64 keys the first four (even lanes) or last four (odd ones): bit i of byte b is of key 8 i + b.
  static uint32_t of_half_a_row(uint32_t memory, uint32_t me) {
    const uint32_t half = me % 2, from = memory + me / 2 * 64 + (2 * half ^ me / 4 % 4) * 16;
    uint32_t a[4], b[4];
    load_words(a, from);
    load_words(b, from ^ 16);
    const uint32_t first = (a[0] + a[2] * 2 + b[0] * 4 + b[2] * 8) << 4 * half, last = (a[1] + a[3] * 2 + b[1] * 4 + b[3] * 8) << 4 * half;
    return (half ? last : first) | shuffle_xor(half ? first : last, 1);
  }
};

// What is given for the scores of one row, for one score at a time.
template <class Bias> struct RowAdjustments {
  const Bias* bias;
  const bool* mask;
  float operator()(float score, int key) const {
    if constexpr (sizeof(Bias) > 1) score += to_float(bias[key]) * LOG2_E;
    return mask && !mask[key] ? -INFINITE : score;
  }
};

// Bias: the type of its elements, or NoBias.
template <class Bias, bool MASKED, int ROWS, int KEYS> struct Adjustments {
  using Biases = BiasTile<Bias, ROWS, KEYS>;
  using Masks = MaskTile<ROWS, KEYS>;
  static constexpr bool BIASED = sizeof(Bias) > 1;
  static constexpr uint32_t MASK_AT = BIASED ? Biases::BYTES : 0, BYTES = MASK_AT + (MASKED ? Masks::BYTES : 0);
  const TensorMap &bias_map, &mask_map;
  const View &bias, &mask;

  // Those of a step, by one thread.
  void copy(uint32_t to, uint32_t full, const AttentionTile& tile, int key) const {
    if constexpr (BIASED) copy_boxes<Biases>(to, full, bias_map, bias, tile, key);
    if constexpr (MASKED) copy_boxes<Masks>(to + MASK_AT, full, mask_map, mask, tile, key);
  }
  template <class T> static void copy_boxes(uint32_t to, uint32_t full, const TensorMap& map, const View& view, const AttentionTile& tile, int key) {
    const int head = view.shape[1] == 1 ? 0 : tile.head, batch = view.shape[0] == 1 ? 0 : tile.batch;
#pragma unroll
    for (int i = 0; i < T::BOXES; ++i) load_tile(to + i * T::BOX, map, full, {key + i * T::BOX_KEYS, tile.first_row, head, batch});
  }

  static void apply(float (&s)[KEYS / 2], uint32_t memory, int row, float factor) {
    if constexpr (BIASED) Biases::add(s, memory, row, factor);
    if constexpr (MASKED) Masks::hide(s, memory + MASK_AT, row);
  }

  RowAdjustments<Bias> row(const AttentionTile& tile, int row) const {
    RowAdjustments<Bias> of_row{nullptr, nullptr};
    const int query = tile.first_row + row;
    if constexpr (BIASED) of_row.bias = static_cast<const Bias*>(bias.data) + row_offset(bias, tile.batch, tile.head, query);
    if constexpr (MASKED) of_row.mask = static_cast<const bool*>(mask.data) + row_offset(mask, tile.batch, tile.head, query);
    return of_row;
  }
};

// Nothing is given.
template <int ROWS, int KEYS> struct Adjustments<NoBias, false, ROWS, KEYS> {
  static constexpr bool BIASED = false;
  static constexpr uint32_t BYTES = 0;
  void copy(uint32_t, uint32_t, const AttentionTile&, int) const {}
  static void apply(float (&)[KEYS / 2], uint32_t, int, float) {}
  auto row(const AttentionTile&, int) const {
    return [](float score, int) { return score; };
  }
};
