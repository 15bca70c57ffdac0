// AMD's GPUs, on hardware and in the emulator: device/gpu.h's words made of permute_wave(), ballot_wave() and shared_at(), which
// device/platform/hip.h and device/platform/simt_amd.h have.
//
// A warp is 32 threads here as elsewhere; a wave of 64 threads is two of them. What a warp's lanes do together they do within their half of
// the wave, so the halves may part: a permutation reads only lanes of the reader's half, and of a ballot each half looks at its own bits.
#pragma once
constexpr int WARP = 32;
static inline int lane() { return thread_x() % WARP; }
static inline int warp() { return thread_x() / WARP; }

// The lane of the wave that is this warp's lane 0.
static inline int first_of_warp() { return thread_x() % WAVE - lane(); }

template <class T> static inline T shuffle(T x, int from) {
  static_assert(sizeof(T) == 4);
  return __builtin_bit_cast(T, permute_wave(__builtin_bit_cast(uint32_t, x), first_of_warp() + (from & (WARP - 1))));
}
template <class T> static inline T shuffle_xor(T x, int mask) { return shuffle(x, lane() ^ mask); }
template <class T> static inline T shuffle_down(T x, int by) { return shuffle(x, lane() + by < WARP ? lane() + by : lane()); }
static inline bool any_in_warp(bool x) { return static_cast<uint32_t>(ballot_wave(x) >> first_of_warp()) != 0; }

// No instruction does it: a word of shared memory. The first barrier is for those that still read the one before.
static inline bool any_in_block(bool x) {
  __shared__ uint32_t found;
  sync_block();
  if (thread_x() == 0) found = 0;
  sync_block();
  if (x) found = 1;
  sync_block();
  return found != 0;
}

// Through registers: there is no asynchronous copy. It has arrived for this thread when it returns.
static inline void copy_async_16(SharedPointer to, const void* from, bool wanted) {
  Pack<uint32_t, 4> words = {};
  if (wanted) words = load_pack<4>(static_cast<const uint32_t*>(from));
  store_pack(shared_at<uint32_t>(to), words);
}
static inline void copy_async_commit() {}
template <int PENDING> static inline void copy_async_wait() {}

// To nearest even; a NaN stays one.
template <> inline bfloat16 from_float<bfloat16>(float x) {
  if (x != x) return {0x7fff};
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
// Two elements in one word, `low` at the lower address.
template <class T> static inline uint32_t pack_pair(float low, float high) {
  return static_cast<uint32_t>(from_float<T>(high).bits) << 16 | from_float<T>(low).bits;
}

// Tiles as NVIDIA's matrix instructions lay them out over a warp: no variant that needs them is for these archs.
template <class T> static inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) = delete;
static inline void load_matrices(uint32_t (&r)[4], SharedPointer row) = delete;
static inline void load_matrices_transposed(uint32_t (&r)[4], SharedPointer row) = delete;
