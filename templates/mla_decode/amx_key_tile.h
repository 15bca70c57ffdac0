// CPU vocabulary of mla_decode on AMX: a tile of keys in bf16, laid out as both products take it. Numbers of bytes are bf16 without their
// scales, which scores and weights are multiplied by. Part of a template, which has defined before: Cached, R, ROPE, BLOCK; and KeyPlaces.
#pragma once
#include "device/matrix/amx_block.h"
#include "device/number/bytes_to_bf16.h"

constexpr bool BYTES = sizeof(Cached) == 1;
constexpr int64_t PITCH = R + (ROPE + 31) / 32 * 32;  // features of a key, zeros at its end
constexpr int64_t STEP = 32;                          // features, or keys, of a multiplication
constexpr int64_t SCALED = BYTES ? 128 : R;           // features that share a scale
constexpr int64_t SCALES = R / SCALED;

// The bits of features [d, d + STEP).
static inline Floats latent_line(const bfloat16* latent, int64_t d) { return load_line(latent + d, STEP); }
static inline Floats latent_line(const uint8_t* latent, int64_t d) {
  bfloat16 line[STEP];
  widen_32(reinterpret_cast<const float8_e4m3*>(latent + d), line);
  return load_line(line, STEP);
}
static inline Floats rope_line(const bfloat16* rope, int64_t d) { return load_line(rope + d, ROPE - d); }
static inline Floats rope_line(const uint8_t* rope, int64_t d) { return load_line(reinterpret_cast<const bfloat16*>(rope) + d, ROPE - d); }

struct alignas(64) KeyTile {
  float lines[PITCH / STEP][BLOCK / 16][TILE_WORDS];  // left operands: keys are lines
  float pairs[BLOCK / STEP][R / STEP][2]
             [TILE_WORDS];     // right operands: pairs of keys are lines; columns are even features of STEP, then odd ones
  float scale[BLOCK][SCALES];  // of bytes

  // Keys past the last are zeros up to a multiple of STEP.
  void load(const KeyPlaces& places) {
    for (int64_t k = 0; k < places.count; k += STEP)
      for (int64_t i = k; i < k + STEP; i += 2)
        load_pair(i, i < places.count ? places.at[i] : LatentRow{}, i + 1 < places.count ? places.at[i + 1] : LatentRow{});
  }

  // Are `count` keys' values and scales free of NaN and infinity?
  bool finite(int64_t count) const {
    NarrowBits largest = {};
    float none = 0;
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t d = 0; d < R; d += STEP) {
        const NarrowBits magnitude = reinterpret_cast<NarrowBits>(load_floats(line(k, d))) & 0x7fff;
        largest = magnitude > largest ? magnitude : largest;
      }
      for (int64_t i = 0; BYTES && i < SCALES; ++i) none += scale[k][i] - scale[k][i];
    }
    bool is = none == 0;
    for (int i = 0; i < STEP; ++i) is &= largest[i] < 0x7f80;
    return is;
  }

  // Feature d of a key.
  float value(int64_t k, int64_t d) const {
    const float v = to_float(reinterpret_cast<const bfloat16*>(line(k, d / STEP * STEP))[d % STEP]);
    return BYTES ? v * scale[k][d / SCALED] : v;
  }

 private:
  const float* line(int64_t k, int64_t d) const { return lines[d / STEP][k / 16] + k % 16 * LANES; }
  float* line(int64_t k, int64_t d) { return lines[d / STEP][k / 16] + k % 16 * LANES; }

  // Keys k and k + 1; null: zeros.
  void load_pair(int64_t k, LatentRow even, LatentRow odd) {
    for (int64_t d = 0; d < R; d += STEP) {
      const Floats first = even.latent ? latent_line(even.latent, d) : Floats{},
                   second = odd.latent ? latent_line(odd.latent, d) : Floats{};
      store_floats(line(k, d), first), store_floats(line(k + 1, d), second);
      const Words low = reinterpret_cast<Words>(first), high = reinterpret_cast<Words>(second);
      float* to = pairs[k / STEP][d / STEP][0] + k % STEP / 2 * LANES;
      store_floats(to, reinterpret_cast<Floats>((low & 0xffff) | high << 16));
      store_floats(to + TILE_WORDS, reinterpret_cast<Floats>(low >> 16 | (high & 0xffff0000)));
    }
    for (int64_t d = 0; d < PITCH - R; d += STEP) {
      store_floats(line(k, R + d), even.rope ? rope_line(even.rope, d) : Floats{});
      store_floats(line(k + 1, R + d), odd.rope ? rope_line(odd.rope, d) : Floats{});
    }
    load_scales(k, even.latent), load_scales(k + 1, odd.latent);
  }
  void load_scales(int64_t k, const Cached* latent) {
    if constexpr (BYTES) {
      if (latent)
        __builtin_memcpy(scale[k], latent + R, sizeof scale[k]);
      else
        __builtin_memset(scale[k], 0, sizeof scale[k]);
    }
  }
};
