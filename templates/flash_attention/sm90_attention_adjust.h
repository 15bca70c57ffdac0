// Hopper vocabulary of the attention kernels: what a call gives for each score, a bias or a mask. Tile copies bring those of a step, ROWS x KEYS,
// into shared memory; warps of a warpgroup that multiplies read those of their 16 rows.
#pragma once
#include "device/sm90/sm90_attention_rows.h"
$if biased == 'bf16' or biased == 'f32'
#include "device/attention/limited_bias.h"
$end
#include "device/sm90/sm90_attention_tiles.h"
#include "device/sm90/sm90_uniform.h"

struct NoBias {};

template <bool FIRST, class A, class B> struct ChooseType { using Type = A; };
template <class A, class B> struct ChooseType<false, A, B> { using Type = B; };
template <bool FIRST, class A, class B> using Choose = typename ChooseType<FIRST, A, B>::Type;

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

$if biased == 'bf16'
// limited_bias() of a pair: b * 2^-100 + LEAST_BIAS is LEAST_BIAS of what is finite, and minus infinity stays.
static inline uint32_t limited_pair(uint32_t pair) {
  uint32_t least, limited;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(least) : "r"(pair), "r"(0x0d800d80u), "r"(0xd380d380u));
  asm("max.bf16x2 %0, %1, %2;" : "=r"(limited) : "r"(pair), "r"(least));
  return limited;
}
static_assert(LEAST_BIAS == -0x1p40f);  // 0xd380
$elif biased == 'f32'
// The same as limited_bias(), in two instructions: what is finite is too small by then to move LEAST_BIAS, and minus infinity stays.
static inline float limited_float(float bias) { return larger_of(bias, bias * 0x1p-120f + LEAST_BIAS); }
static_assert(-0x1.fffffep127f * 0x1p-120f + LEAST_BIAS == LEAST_BIAS);
$end

// A bias: boxes of rows of 128 bytes, swizzled by them; the last box of a step may have keys of the next one. A lane holds those of its
// scores of a step, two a word where they have 16 bits; LATE: they are read where they are added, for there are no registers to hold them.
template <class T, int ROWS, int KEYS, bool LATE> struct BiasTile {
  static constexpr int BOX_KEYS = 128 / sizeof(T), BOXES = (KEYS + BOX_KEYS - 1) / BOX_KEYS;
  static constexpr uint32_t BOX = ROWS * 128, BYTES = BOXES * BOX;
  static constexpr bool WIDE = sizeof(T) == 4, STAYS = WIDE || LATE;
  uint32_t words[STAYS ? 1 : KEYS / 4];

  // `row`: the warp's first, a multiple of 16.
  void read(uint32_t memory, int row) {
    const uint32_t me = keep_here(lane());
    if constexpr (WIDE) {
      words[0] = memory + (row + me / 4) * 128 + (me % 4 / 2 ^ me / 4) * 16 + me % 2 * 8;
    } else {  // as operands A of a product: 16 keys at once
      const uint32_t from = memory + (row + me % 16) * 128 + (me / 16 ^ me % 8) * 16;
      if constexpr (LATE) {
        words[0] = from;
      } else {
#pragma unroll
        for (int n = 0; n < KEYS / 16; ++n) {
          uint32_t w[4];
          load_matrices(w, (from ^ n % 4 * 32) + n / 4 * BOX);
#pragma unroll
          for (int i = 0; i < 4; ++i) words[4 * n + i] = w[i];
        }
      }
    }
  }

  // They, times `factor`, are added to the scores.
  void add(float (&s)[KEYS / 2], float factor) const {
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < KEYS / 4; ++i) {
      float low, high;
      if constexpr (LATE && !WIDE)
        if (i % 4 == 0) load_matrices(w, (words[0] ^ i / 4 % 4 * 32) + i / 16 * BOX);
      if constexpr (WIDE)
        load_floats(low, high, (words[0] ^ i / 2 % 4 * 32) + i % 2 * 8 * 128 + i / 8 * BOX);
      else
$if biased == 'bf16'
        unpack_pair(limited_pair(LATE ? w[i % 4] : words[i]), low, high, T{});
$else
        unpack_pair(LATE ? w[i % 4] : words[i], low, high, T{});
$end
$if biased == 'f32'
      if constexpr (WIDE) low = limited_float(low), high = limited_float(high);
$end
      s[2 * i] += low * factor, s[2 * i + 1] += high * factor;
    }
  }
};
template <int ROWS, int KEYS, bool LATE> struct BiasTile<NoBias, ROWS, KEYS, LATE> {
  static constexpr uint32_t BYTES = 0;
  static constexpr bool STAYS = false;
  void read(uint32_t, int) {}
  void add(float (&)[KEYS / 2], float) const {}
};

// A mask, a byte a score, 0 or 1: boxes of rows of 64 bytes, swizzled by them, the last as a bias's. A lane holds a bit for each of its scores.
template <int ROWS, int KEYS> struct MaskTile {
  static constexpr int BOX_KEYS = 64, BOXES = (KEYS + BOX_KEYS - 1) / BOX_KEYS;
  static constexpr uint32_t BOX = ROWS * 64, BYTES = BOXES * BOX;
  uint32_t words[BOXES];  // of row me / 2 of the warp's 16
  bool hides[BOXES];      // the same in all lanes

  void read(uint32_t memory, int row) {
    const uint32_t me = keep_here(lane());
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      words[box] = of_half_a_row(memory + box * BOX + row * 64, me);
      hides[box] = any_in_warp(words[box] != ~0u);
    }
  }

  // Scores that the mask hides become -inf.
  void hide(float (&s)[KEYS / 2]) const {
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      if (!hides[box]) continue;
      const uint32_t me = keep_here(lane()), from = me / 4 * 2 + me % 4 / 2, by = me % 2 * 16;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t seen = shuffle(words[box], from + 16 * h) >> by;
#pragma unroll
        for (int i = 0; i < 16; ++i)
          if (64 * box + i % 8 * 8 < KEYS && !(seen >> i & 1)) s[32 * box + i % 8 * 4 + 2 * h + i / 8] = -INFINITE;
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
struct NoMask {
  static constexpr uint32_t BYTES = 0;
  void read(uint32_t, int) {}
  template <int N> void hide(float (&)[N]) const {}
};

// What is given for the scores of one row, for one score at a time.
template <class Bias> struct RowAdjustments {
  const Bias* bias;
  const bool* mask;
  float operator()(float score, int key) const {
$if biased == 'bf16' or biased == 'f32'  // no half is as low
    if constexpr (sizeof(Bias) > 1) score += limited_bias(to_float(bias[key])) * LOG2_E;
$else
    if constexpr (sizeof(Bias) > 1) score += to_float(bias[key]) * LOG2_E;
$end
    return mask && !mask[key] ? -INFINITE : score;
  }
};

// Bias: the type of its elements, or NoBias; LATE: as of its tile.
template <class Bias, bool MASKED, int ROWS, int KEYS, bool LATE = false> struct Adjustments {
  using Biases = BiasTile<Bias, ROWS, KEYS, LATE>;
  using Masks = Choose<MASKED, MaskTile<ROWS, KEYS>, NoMask>;
  static constexpr bool BIASED = sizeof(Bias) > 1;
  static constexpr uint32_t MASK_AT = Biases::BYTES, BYTES = MASK_AT + Masks::BYTES;
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

  // What a lane holds of a step.
  struct Step {
    Biases bias;
    Masks mask;
    static constexpr bool STAYS = Biases::STAYS;  // in shared memory until it is applied
    void read(uint32_t memory, int row) { bias.read(memory, row), mask.read(memory + MASK_AT, row); }
    void apply(float (&s)[KEYS / 2], float factor) const { bias.add(s, factor), mask.hide(s); }
  };

  RowAdjustments<Bias> row(const AttentionTile& tile, int row) const {
    RowAdjustments<Bias> of_row{nullptr, nullptr};
    const int query = tile.first_row + row;
    if constexpr (BIASED) of_row.bias = static_cast<const Bias*>(bias.data) + row_offset(bias, tile.batch, tile.head, query);
    if constexpr (MASKED) of_row.mask = static_cast<const bool*>(mask.data) + row_offset(mask, tile.batch, tile.head, query);
    return of_row;
  }
};

// Nothing is given.
template <int ROWS, int KEYS, bool LATE> struct Adjustments<NoBias, false, ROWS, KEYS, LATE> {
  static constexpr bool BIASED = false;
  static constexpr uint32_t BYTES = 0;
  struct Step {
    static constexpr bool STAYS = false;
    void read(uint32_t, int) {}
    void apply(float (&)[KEYS / 2], float) const {}
  };
  void copy(uint32_t, uint32_t, const AttentionTile&, int) const {}
  auto row(const AttentionTile&, int) const {
    return [](float score, int) { return score; };
  }
};
