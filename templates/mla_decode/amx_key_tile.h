// CPU vocabulary of mla_decode on AMX: a tile of keys in bf16, laid out as both products take it; scores take keys from the cache itself
// where those lie evenly. Numbers of bytes are bf16 without their scales, which scores and weights are multiplied by. Part of a template,
// which has defined before: Cached, R, ROPE, BLOCK; and KeyPlaces.
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

// Where 16 keys' lines are: in the tile's copies, or, evenly apart, where the cache has them. Strides in bytes: of keys, and of steps.
struct KeyLines {
  const char *latent, *rope;
  int64_t key_stride, step_stride, rope_key_stride, rope_step_stride;

  const char* line(int64_t key, int64_t d) const {
    return d < R ? latent + key * key_stride + d / STEP * step_stride : rope + key * rope_key_stride + (d - R) / STEP * rope_step_stride;
  }
  int64_t stride(int64_t d) const { return d < R ? key_stride : rope_key_stride; }
};

struct alignas(64) KeyTile {
  float pairs[BLOCK / STEP][R / STEP][2][TILE_WORDS];  // right operands: pairs of keys are lines; columns are even features of STEP, then odd ones
  float copies[PITCH / STEP][BLOCK / 16][TILE_WORDS];  // left operands: keys are lines
  float scale[BLOCK][SCALES];                          // of bytes
  KeyLines lines[BLOCK / 16];

  // Keys past the last are zeros up to a multiple of STEP.
  void load(const KeyPlaces& places, const KeyPlaces& next) {
    for (int64_t k = 0; k < BLOCK; k += 16) find_lines(places, k);
    for (int64_t k = 0; k < (places.count + STEP - 1) / STEP * STEP; k += 2) {
      ask_for(places, next, k + AHEAD), ask_for(places, next, k + AHEAD + 1);
      load_pair(k, k < places.count ? places.at[k] : LatentRow{}, k + 1 < places.count ? places.at[k + 1] : LatentRow{});
    }
  }

  // Are `count` keys' values and scales free of NaN and infinity?
  bool finite(int64_t count) const {
    NarrowBits largest = {};
    float none = 0;
    for (int64_t k = 0; k < count; ++k) {
      for (int64_t d = 0; d < R; d += STEP) {
        NarrowBits bits;
        __builtin_memcpy(&bits, lines[k / 16].line(k % 16, d), sizeof bits);
        const NarrowBits magnitude = bits & 0x7fff;
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
    bfloat16 v;
    __builtin_memcpy(&v, lines[k / 16].line(k % 16, d) + 2 * (d % STEP), sizeof v);
    return BYTES ? to_float(v) * scale[k][d / SCALED] : to_float(v);
  }

 private:
  static constexpr int64_t AHEAD = 16;  // keys

  // Asks for the rows of key k of two tiles.
  static inline __attribute__((always_inline)) void ask_for(const KeyPlaces& places, const KeyPlaces& next, int64_t k) {
    const bool other = k >= BLOCK;
    if (k - (other ? BLOCK : 0) >= (other ? next : places).count) return;
    const LatentRow& row = other ? next.at[k - BLOCK] : places.at[k];
    const char *latent = reinterpret_cast<const char*>(row.latent), *rope = reinterpret_cast<const char*>(row.rope);
#pragma GCC unroll 32
    for (int64_t byte = 0; byte < R * static_cast<int64_t>(sizeof(Cached)); byte += 64) __builtin_prefetch(latent + byte, 0, 3);
#pragma GCC unroll 32
    for (int64_t byte = 0; byte < 2 * ROPE; byte += 64) __builtin_prefetch(rope + byte, 0, 3);
  }
  float* copy(int64_t k, int64_t d) { return copies[d / STEP][k / 16] + k % 16 * LANES; }
  bool copied(int64_t k) const { return lines[k / 16].latent == reinterpret_cast<const char*>(copies[0][k / 16]); }

  void find_lines(const KeyPlaces& places, int64_t k) {
    constexpr int64_t STEP_STRIDE = sizeof copies[0];
    const auto copy_of = [&](int64_t d) { return reinterpret_cast<const char*>(copies[d / STEP][k / 16]); };
    lines[k / 16] = {copy_of(0), copy_of(R), 64, STEP_STRIDE, 64, STEP_STRIDE};
    if (BYTES || ROPE % STEP != 0 || k + 16 > places.count) return;
    const LatentRow first = places.at[k], second = places.at[k + 1];
    const int64_t latent_stride = second.latent - first.latent, rope_stride = second.rope - first.rope;
    bool even = true;
    for (int64_t i = 2; i < 16; ++i)
      even &= places.at[k + i].latent - places.at[k + i - 1].latent == latent_stride && places.at[k + i].rope - places.at[k + i - 1].rope == rope_stride;
    if (even)
      lines[k / 16] = {reinterpret_cast<const char*>(first.latent), reinterpret_cast<const char*>(first.rope), latent_stride * 2, 64, rope_stride * 2, 64};
  }

  // Keys k and k + 1; null: zeros.
  void load_pair(int64_t k, LatentRow even, LatentRow odd) {
    const bool copying = copied(k);
    for (int64_t d = 0; d < R; d += STEP) {
      const Floats first = even.latent ? latent_line(even.latent, d) : Floats{}, second = odd.latent ? latent_line(odd.latent, d) : Floats{};
      if (copying) store_floats(copy(k, d), first), store_floats(copy(k + 1, d), second);
      const Words low = reinterpret_cast<Words>(first), high = reinterpret_cast<Words>(second);
      float* to = pairs[k / STEP][d / STEP][0] + k % STEP / 2 * LANES;
      store_floats(to, reinterpret_cast<Floats>((low & 0xffff) | high << 16));
      store_floats(to + TILE_WORDS, reinterpret_cast<Floats>(low >> 16 | (high & 0xffff0000)));
    }
    for (int64_t d = 0; copying && d < PITCH - R; d += STEP) {
      store_floats(copy(k, R + d), even.rope ? rope_line(even.rope, d) : Floats{});
      store_floats(copy(k + 1, R + d), odd.rope ? rope_line(odd.rope, d) : Floats{});
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
