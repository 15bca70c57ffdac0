// The queries of Hopper's mla_decode of bytes in registers. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once
#include "mla_decode/byte_powers.h"

typedef Pack<uint32_t, 8> SixteenFeatures;
static inline float feature_of(const SixteenFeatures& x, int k) { return __uint_as_float(k % 2 == 0 ? x.at[k / 2] << 16 : x.at[k / 2] & 0xffff0000); }
// The largest size of those and `largest`. What is not finite does not count: it would take the other heads' range.
static inline float largest_of(const SixteenFeatures& x, float largest) {
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    const float size = size_of(feature_of(x, k));
    largest = larger_of(largest, size < INFINITE ? size : 0);
  }
  return largest;
}

// The power of two that queries are multiplied by, and its inverse, as of what the warps that load them have left.
struct QueryUnit {
  float unit, inverse;

  explicit QueryUnit(const Places& at) {
    float largest = 0;
#pragma unroll
    for (int w = 0; w < ADDERS / WARP; ++w) largest = larger_of(largest, __uint_as_float(load_shared_4(at.largest(0) + w * 4)));
    const int exponent = 14 - exponent_of(largest, 112);
    unit = power_of_two(exponent), inverse = power_of_two(-exponent);
  }
};

// The queries of all heads, in shared memory; zeros for those that there are not. All who add values call both functions: a thread copies sixteen features of each of its heads to
// where they stay, and then makes of them what they are to be. Loops are short and not unrolled, since the first instructions of a block come from memory, too.
//
// Of 16 latent features, lane t of four has features 4 t to 4 t + 3 of a key, where wgmma has 2 t, 2 t + 1, 2 t + 8 and 2 t + 9: they lie in the order that makes these the same.
struct Queries {
  static constexpr int WARPS = ADDERS / WARP, ROPE_ROW = ROPE / 16;
  static_assert(R / 16 == WARP && HEADS % WARPS == 0 && HEADS * ROPE_ROW <= ADDERS);
  const Places& at;

  static int own_thread() { return static_cast<int>(keep_here(thread_x())) - (THREADS - ADDERS); }
  // Where half k of 16 features lies: chunk `chunk` of a head.
  uint32_t place(int head, int chunk, int k) const { return at.q() + chunk / 4 * HEAD_BOX + head * 128 + ((chunk % 4 * 2 + k) ^ head % 8) * 16; }
  SixteenFeatures features(int head, int chunk) const {
    uint32_t a[4], b[4];
    load_shared_16(place(head, chunk, 0), a), load_shared_16(place(head, chunk, 1), b);
    return {{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}};
  }
  void copy(int head, int chunk, const Element* from, bool wanted) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) copy_async_16(place(head, chunk, k), from + 8 * k, wanted);
  }

  // heads: that there are.
  void start(const Element* latent, int64_t latent_stride, const Element* rope, int64_t rope_stride, int heads) const {
    const int thread = own_thread(), chunk = thread % WARP, rope_head = thread / ROPE_ROW, rope_chunk = thread % ROPE_ROW;
    if (rope_head < HEADS) copy(rope_head, R / 16 + rope_chunk, rope_head < heads ? rope + rope_head * rope_stride + rope_chunk * 16 : rope, rope_head < heads);
#pragma unroll 1
    for (int head = thread / WARP; head < HEADS; head += WARPS) copy(head, chunk, head < heads ? latent + head * latent_stride + chunk * 16 : latent, head < heads);
    copy_async_commit();
  }
  void finish() const {
    const int thread = own_thread(), first = thread / WARP, chunk = thread % WARP, rope_head = thread / ROPE_ROW, rope_chunk = R / 16 + thread % ROPE_ROW;
    copy_async_wait<0>();
    // Latent features use the range of halves, as long as rope features keep that of bfloat16.
    float largest = rope_head < HEADS ? largest_of(features(rope_head, rope_chunk), 0) * 0x1p-60f : 0;
#pragma unroll 1
    for (int head = first; head < HEADS; head += WARPS) largest = largest_of(features(head, chunk), largest);
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
    if (lane() == 0) store_shared_4(at.largest(0) + first * 4, __float_as_uint(largest));
    sync_some(ADDING, ADDERS);
    const float unit = QueryUnit(at).unit;

#pragma unroll 1
    for (int head = first; head < HEADS; head += WARPS) {
      const SixteenFeatures x = features(head, chunk);
      uint32_t words[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) words[k / 2 + k % 2 * 4] = pack_pair<half>(feature_of(x, 2 * k) * unit, feature_of(x, 2 * k + 1) * unit);
      store(words, head, chunk);
    }
    if (rope_head < HEADS) {
      const SixteenFeatures x = features(rope_head, rope_chunk);
      uint32_t words[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) words[k] = pack_pair<bfloat16>(feature_of(x, 2 * k) * unit, feature_of(x, 2 * k + 1) * unit);
      store(words, rope_head, rope_chunk);
    }
    fence_async();
    sync_some(CONSUMING, CONSUMERS);
  }

private:
  void store(const uint32_t (&words)[8], int head, int chunk) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) store_shared_16(place(head, chunk, k), {{words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]}});
  }
};
