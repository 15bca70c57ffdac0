// CPU vocabulary: AMX, eight tile registers of 16 rows of 64 bytes. Compiled for a processor without AMX it is a plain model of the same
// operations, so that kernels can be tested anywhere.
#pragma once
#include "device/cpu.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
// Every tile 16 x 64 bytes; call before the first use in a work item, amx_release() at its end.
static inline void amx_configure() {
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config = {};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) config.row_bytes[tile] = 64, config.rows[tile] = 16;
  __asm__ volatile("ldtilecfg %0" : : "m"(config));
}
static inline void amx_release() { __asm__ volatile("tilerelease"); }
template <int TILE> static inline void amx_zero() { __asm__ volatile("tilezero %%tmm%c0" : : "i"(TILE)); }
template <int TILE> static inline void amx_load(const void* from, int64_t row_bytes) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(TILE) : "memory");
}
template <int TILE> static inline void amx_store(void* to, int64_t row_bytes) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(TILE) : "memory");
}
// f32 C[16][16] += bf16 A[16][32] * B[32][16], where B's rows come in pairs: row p of the tile holds (B[2 p][n], B[2 p + 1][n]) for each n.
template <int C, int A, int B> static inline void amx_multiply() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}
#else
static thread_local uint8_t amx_model[8][16][64];
static inline void amx_configure() { __builtin_memset(amx_model, 0, sizeof amx_model); }
static inline void amx_release() {}
template <int TILE> static inline void amx_zero() { __builtin_memset(amx_model[TILE], 0, 1024); }
template <int TILE> static inline void amx_load(const void* from, int64_t row_bytes) {
  for (int row = 0; row < 16; ++row) __builtin_memcpy(amx_model[TILE][row], static_cast<const char*>(from) + row * row_bytes, 64);
}
template <int TILE> static inline void amx_store(void* to, int64_t row_bytes) {
  for (int row = 0; row < 16; ++row) __builtin_memcpy(static_cast<char*>(to) + row * row_bytes, amx_model[TILE][row], 64);
}
template <int C, int A, int B> static inline void amx_multiply() {
  for (int m = 0; m < 16; ++m) {
    float sum[16];
    bfloat16 a[32], b[32];
    __builtin_memcpy(sum, amx_model[C][m], 64);
    __builtin_memcpy(a, amx_model[A][m], 64);
    for (int k = 0; k < 16; ++k) {
      __builtin_memcpy(b, amx_model[B][k], 64);
      for (int n = 0; n < 16; ++n) {
        sum[n] += to_float(a[2 * k]) * to_float(b[2 * n]);
        sum[n] += to_float(a[2 * k + 1]) * to_float(b[2 * n + 1]);
      }
    }
    __builtin_memcpy(amx_model[C][m], sum, 64);
  }
}
#endif
