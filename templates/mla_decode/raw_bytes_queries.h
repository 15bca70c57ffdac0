// The queries of Hopper's mla_decode of bytes in registers. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

static inline float size_of(float x) { return larger_of(x, -x); }
static inline float power_of_two(int exponent) { return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23); }
// Of a number that is not negative: the exponent of its first digit, from -`most` to `most`.
static inline int exponent_of(float x, int most) {
  const int e = static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 23) - 127;
  return e < -most ? -most : e > most ? most : e;
}

typedef Pack<uint32_t, 8> SixteenFeatures;
static inline SixteenFeatures load_sixteen(const Element* from) {
  const Pack<uint32_t, 4> a = load_pack<4>(reinterpret_cast<const uint32_t*>(from)), b = load_pack<4>(reinterpret_cast<const uint32_t*>(from + 8));
  return {{a.at[0], a.at[1], a.at[2], a.at[3], b.at[0], b.at[1], b.at[2], b.at[3]}};
}
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

// The queries of all heads, to shared memory; zeros for those that there are not. All who add values call it.
//
// Of 16 latent features, lane t of four has features 4 t to 4 t + 3 of a key, where wgmma has 2 t, 2 t + 1, 2 t + 8 and 2 t + 9: they lie in the order that makes these the same.
static inline void load_queries(const Places& at, const Element* latent, int64_t latent_stride, const Element* rope, int64_t rope_stride, int heads) {
  constexpr int WARPS = ADDERS / WARP, AT_ONCE = (HEADS + WARPS - 1) / WARPS, ROPE_ROW = ROPE / 16;
  static_assert(R / 16 == WARP && HEADS * ROPE_ROW <= ADDERS);
  SixteenFeatures x[AT_ONCE] = {};  // all are on their way together
  const int thread = thread_x() - (THREADS - ADDERS), first = thread / WARP, chunk = lane();  // a warp has a head
#pragma unroll
  for (int n = 0; n < AT_ONCE; ++n) {
    const int head = first + n * WARPS;
    if (head < HEADS && head < heads) x[n] = load_sixteen(latent + head * latent_stride + chunk * 16);
  }
  const int rope_head = thread / ROPE_ROW, rope_chunk = thread % ROPE_ROW;
  const auto load_rope = [&] {  // twice: registers are few
    SixteenFeatures y = {};
    if (rope_head < HEADS && rope_head < heads) y = load_sixteen(rope + rope_head * rope_stride + rope_chunk * 16);
    return y;
  };

  // Latent features use the range of halves, as long as rope features keep that of bfloat16.
  float largest = largest_of(load_rope(), 0) * 0x1p-60f;
#pragma unroll
  for (int n = 0; n < AT_ONCE; ++n) largest = largest_of(x[n], largest);
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) largest = larger_of(largest, shuffle_xor(largest, mask));
  if (lane() == 0) store_shared_4(at.largest(0) + first * 4, __float_as_uint(largest));
  sync_some(ADDING, ADDERS);
  const float unit = QueryUnit(at).unit;

#pragma unroll
  for (int n = 0; n < AT_ONCE; ++n) {
    const int head = first + n * WARPS;
    uint32_t words[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) words[k / 2 + k % 2 * 4] = pack_pair<half>(feature_of(x[n], 2 * k) * unit, feature_of(x[n], 2 * k + 1) * unit);
    if (head < HEADS)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        store_shared_16(at.q() + chunk / 4 * HEAD_BOX + head * 128 + ((chunk % 4 * 2 + k) ^ head % 8) * 16, {{words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]}});
  }
  const SixteenFeatures y = load_rope();
  if (rope_head < HEADS)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) words[w] = pack_pair<bfloat16>(feature_of(y, 8 * k + 2 * w) * unit, feature_of(y, 8 * k + 2 * w + 1) * unit);
      store_shared_16(at.q() + R / 64 * HEAD_BOX + rope_head * 128 + ((rope_chunk * 2 + k) ^ rope_head % 8) * 16, {{words[0], words[1], words[2], words[3]}});
    }
  fence_async();
  sync_some(CONSUMING, CONSUMERS);
}
