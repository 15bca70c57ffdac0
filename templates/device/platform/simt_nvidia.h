// Emulator vocabulary: the words that an NVIDIA warp has instructions for. Needs the rest of device/platform/simt.h before it.
#pragma once
constexpr int WARP = 32;
static inline int lane() { return simt_thread().lane; }
static inline int warp() { return simt_thread().warp; }

static inline bool any_in_block(bool x) { return simt_host->any_in_block(x); }
static inline bool any_in_warp(bool x) { return simt_host->any_in_warp(x); }
template <class T> static inline T simt_shuffle(SimtShuffle how, T x, int operand) {
  return bits_as<T>(simt_host->shuffle(how, bits_as<uint32_t>(x), operand));
}
template <class T> static inline T shuffle_xor(T x, int mask) { return simt_shuffle(SimtShuffle::exclusive_or, x, mask); }
template <class T> static inline T shuffle_down(T x, int by) { return simt_shuffle(SimtShuffle::down, x, by); }
template <class T> static inline T shuffle(T x, int from) { return simt_shuffle(SimtShuffle::index, x, from); }

// The bytes arrive when the thread waits for their group; until then they are NaN.
static inline void copy_async_16(SharedPointer to, const void* from, bool wanted) { simt_host->copy_async_16(to, from, wanted); }
static inline void copy_async_commit() { simt_host->copy_async_commit(); }
template <int PENDING> static inline void copy_async_wait() { simt_host->copy_async_wait(PENDING); }

template <> inline bfloat16 from_float<bfloat16>(float x) {
  if (x != x) return {0x7fff};
  const uint32_t bits = bits_as<uint32_t>(x);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
template <class T> static inline uint32_t pack_pair(float low, float high) {
  return static_cast<uint32_t>(from_float<T>(high).bits) << 16 | from_float<T>(low).bits;
}

template <class T> constexpr SimtElement simt_element = SimtElement::half;
template <> constexpr SimtElement simt_element<bfloat16> = SimtElement::bfloat16;
template <class T> static inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  static_assert(sizeof(T) == 2);
  simt_host->mma_16x8x16(simt_element<T>, c, a, b0, b1);
}
static inline void load_matrices(uint32_t (&r)[4], SharedPointer row) { simt_host->load_matrices(r, row, false); }
static inline void load_matrices_transposed(uint32_t (&r)[4], SharedPointer row) { simt_host->load_matrices(r, row, true); }
