// Hopper vocabulary of the chunked recurrence: products of a warpgroup whose left factors are in registers, where sums of a product before
// left them, and whose right ones lie in shared memory in boxes of 64 rows of 64 elements, as they were copied.
#pragma once

constexpr uint32_t BOX = CHUNK * 128;

using Column = float[KEYS / 2];     // 64 values by keys, as wgmma has them: a warp has 16 values
using Columns = float[CHUNK / 2];   // 64 values by tokens, or by 64 keys

// The two numbers of a pair of elements T.
template <class T> static inline float low_as(uint32_t pair) { return to_float(__builtin_bit_cast(T, static_cast<uint16_t>(pair))); }
template <class T> static inline float high_as(uint32_t pair) { return to_float(__builtin_bit_cast(T, static_cast<uint16_t>(pair >> 16))); }

// The same as left factors of products, 16 keys or tokens at a time; and what rounding took from them. T: their elements.
template <class T = Element, int N> static inline void to_factor(uint32_t (&a)[N][4], const float (&x)[8 * N]) {
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack_pair<T>(x[8 * k + 2 * i], x[8 * k + 2 * i + 1]);
}
template <class T = Element> static inline void to_rounding(uint32_t (&rest)[4], const uint32_t (&a)[4], const float* x) {
#pragma unroll
  for (int i = 0; i < 4; ++i) rest[i] = pack_pair<T>(x[2 * i] - low_as<T>(a[i]), x[2 * i + 1] - high_as<T>(a[i]));
}
template <class T = Element, int N> static inline void to_rounding(uint32_t (&rest)[N][4], const uint32_t (&a)[N][4], const float (&x)[8 * N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) to_rounding<T>(rest[k], a[k], x + 8 * k);
}
template <class T = Element, int N> static inline void from_factor(float (&x)[8 * N], const uint32_t (&a)[N][4]) {
#pragma unroll
  for (int k = 0; k < N; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[8 * k + 2 * i] = low_as<T>(a[k][i]), x[8 * k + 2 * i + 1] = high_as<T>(a[k][i]);
}

// The compiler has made these numbers before this line, and has their registers for nothing else before it, as products that go on may still
// read them.
static inline void keep_factors(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[k][i]) : : "memory");
}

// 16 tokens' 64 values, which lie in a box with a row a token, times a factor a token, as left factors; and what rounding took from them.
static inline void load_weighed(uint32_t (&values)[4], uint32_t (&rest)[4], uint32_t box, int slice, const float* factors, float scale) {
  const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
  load_matrices_transposed(values, box + token * 128 + (pack ^ token % 8) * 16 + slice * 2048);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Pack<float, 2> by = load_pack<2>(factors + 16 * slice + lane() % 4 * 2 + i / 2 * 8);
    const float x = low_of(values[i]) * (by.at[0] * scale), y = high_of(values[i]) * (by.at[1] * scale);
    values[i] = pack_pair<Element>(x, y);
    rest[i] = rounding_of(x, y, values[i]);
  }
}

// Calls use(x, i) for each number x of token i of a pair, whose first one is `token`.
template <class Use> static inline void each_token_pair(Columns& x, Use use) {
#pragma unroll
  for (int j = 0; j < CHUNK / 8; ++j) use(8 * j + lane() % 4 * 2, x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
}
// Times a factor of each token.
static inline void scale_by_token(Columns& x, const float* factors, float more) {
  each_token_pair(x, [&](int token, float& a, float& b, float& c, float& d) {
    const Pack<float, 2> f = load_pack<2>(factors + token);
    a *= f.at[0] * more, b *= f.at[1] * more, c *= f.at[0] * more, d *= f.at[1] * more;
  });
}

// sums (+)= a rows^T, where rows lie in boxes of 64 elements.
template <class T = Element, int N> static inline void multiply_by_rows(Columns& sums, const uint32_t (&a)[N][4], uint32_t rows, bool add) {
  const uint64_t b = depth_major<128>(rows);
#pragma unroll
  for (int k = 0; k < N; ++k) wgmma<T, CHUNK>(sums, a[k], moved(b, k / 4 * BOX + k % 4 * 32), add || k > 0);
}
// sums (+)= a rows, of one box.
template <class T = Element> static inline void multiply_by_columns(Columns& sums, const uint32_t (&a)[4][4], uint32_t rows, bool add) {
  const uint64_t b = row_major<128>(rows, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<T, CHUNK, true>(sums, a[k], moved(b, k * 2048), add || k > 0);
}
// The same of all boxes at once: half as many products as of 64 keys at a time.
static inline void multiply_by_all_columns(Column& sums, const uint32_t (&a)[4][4], uint32_t rows, bool add) {
  const uint64_t b = row_major<128>(rows, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<Element, KEYS, true>(sums, a[k], moved(b, k * 2048), add || k > 0);
}

// sums += values pairs^T: values by tokens, both in shared memory, the values with a row a token.
static inline void multiply_values_by_rows(Columns& sums, uint32_t values, uint32_t rows) {
  const uint64_t a = row_major<128>(values, CHUNK), b = depth_major<128>(rows);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, true>(sums, moved(a, k * 2048), moved(b, k * 32), true);
}
// sums (+)= values rows, likewise: values by 64 keys.
static inline void multiply_values_by_columns(Columns& sums, uint32_t values, uint32_t rows, bool add) {
  const uint64_t a = row_major<128>(values, CHUNK), b = row_major<128>(rows, CHUNK);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, true, true>(sums, moved(a, k * 2048), moved(b, k * 2048), add || k > 0);
}

// 64 values of a chunk's tokens on their way to `out`, from `token` on.
template <int BUFFERS>
static inline void store_values(const Columns& sums, StoreBuffers<Element, BUFFERS>& buffers, const TensorMap& out, const int (&to)[4]) {
  buffers.open();
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const uint32_t r[4] = {pack_pair<Element>(sums[4 * j], sums[4 * j + 1]), pack_pair<Element>(sums[4 * j + 2], sums[4 * j + 3]),
                           pack_pair<Element>(sums[4 * j + 4], sums[4 * j + 5]), pack_pair<Element>(sums[4 * j + 6], sums[4 * j + 7])};
    buffers.template put<true>(j, r);
  }
  buffers.send(true, static_cast<Element*>(nullptr), 0, 0, 0, [&](uint32_t from) { store_tile(out, to, from); });
}
