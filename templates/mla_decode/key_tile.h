// CPU vocabulary of mla_decode: a tile of keys as f32. Part of a template, which has defined before: Cached, R, ROPE, BLOCK; and KeyPlaces.
#pragma once
#include "device/number/narrow.h"
#include "device/number/vector.h"
#include "device/number/widen_bytes.h"

constexpr int64_t PITCH = R + (ROPE + LANES - 1) / LANES * LANES;  // floats of a key, zeros at its end

// LANES features from feature d on.
template <class T> static inline Floats latents_of(const T* latent, int64_t d) { return load_floats(latent + d); }
static inline Floats latents_of(const uint8_t* latent, int64_t d) {
  float scale;
  __builtin_memcpy(&scale, latent + R + d / 128 * 4, sizeof scale);
  return load_floats(reinterpret_cast<const float8_e4m3*>(latent + d)) * scale;
}
template <class T> static inline Floats ropes_of(const T* rope, int64_t d) { return load_some(rope + d, ROPE - d); }
static inline Floats ropes_of(const uint8_t* rope, int64_t d) {
  bfloat16 some[LANES];
  const int64_t count = ROPE - d < LANES ? ROPE - d : LANES;
  __builtin_memcpy(some, rope + 2 * d, count * sizeof(bfloat16));
  return load_some(some, count);
}

struct alignas(64) KeyTile {
  float at[BLOCK][PITCH];

  void load(const KeyPlaces& places, const KeyPlaces&) {
    for (int64_t k = 0; k < places.count; ++k) {
      const LatentRow row = places.at[k];
      for (int64_t d = 0; d < R; d += LANES) store_floats(at[k] + d, latents_of(row.latent, d));
      for (int64_t d = 0; d < ROPE; d += LANES) store_floats(at[k] + R + d, ropes_of(row.rope, d));
    }
  }
};
