// Hopper vocabulary: the entry that finds the means of blocks. A part of forward.sm90.cu, whose constants it uses.
#pragma once
$if packed
#include "native_sparse_attention/sm90_packed_means.h"
$end

// Of a block's rows, `stride` elements apart, the mean of feature thread_x(), in threads that have one. Every thread loads 16 bytes of a row at a time.
template <int FEATURES> static inline float mean_of_rows(float (&sums)[MEANS_THREADS / WARP][FEATURES], const Element* from, int64_t stride, int64_t rows) {
  constexpr int ACROSS = FEATURES / 8;
  const int chunk = thread_x() % ACROSS * 8;
  float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll 8
  for (int64_t row = thread_x() / ACROSS; row < rows; row += MEANS_THREADS / ACROSS) {
    const Pack<Element, 8> x = load_pack<8>(from + row * stride + chunk);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e] += to_float(x.at[e]);
  }
#pragma unroll
  for (int mask = ACROSS; mask < WARP; mask *= 2)
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e] += shuffle_xor(sum[e], mask);
#pragma unroll
  for (int e = 0; e < 8; ++e)
    if (lane() < ACROSS) sums[warp()][chunk + e] = sum[e];
  sync_block();
  float all = 0;
#pragma unroll
  for (int w = 0; w < MEANS_THREADS / WARP; ++w) all += thread_x() < FEATURES ? sums[w][thread_x()] : 0;
  return all / static_cast<float>(rows);
}

// Of a tile's mean `key` feature thread_x(), where there is one, as terms, and its power of two.
static inline void store_terms(char* tile, int key, float x) {
  __shared__ int largest_of[MEANS_THREADS / WARP];
  const int bits = thread_x() < D ? static_cast<int>(__float_as_uint(x) & 0x7fffffff) : 0, of_warp = largest_in_warp(bits);
  if (lane() == 0) largest_of[warp()] = of_warp;
  sync_block();
  int largest = 0;
#pragma unroll
  for (int w = 0; w < MEANS_THREADS / WARP; ++w) largest = largest_of[w] > largest ? largest_of[w] : largest;
  float up;
  x *= power_down<MEAN_REACH>(static_cast<uint32_t>(largest), up);
  if (thread_x() == 0) reinterpret_cast<float*>(tile + TERMS_BYTES)[key] = up;
  half* const to = reinterpret_cast<half*>(tile) + place_of_mean(key, thread_x());
  if (thread_x() >= D) return;
  to[0] = from_float<half>(x);
  to[TERM_BYTES / 2] = from_float<half>(x - to_float(to[0]));
}

// Block (x, y, z): the means of block x of kv head y of row z of the batch: of keys in terms, and of both, 64 as they lie in shared memory.
KERNEL(MEANS_THREADS, 1) find_means(${parameters('find_means')}) {
  __shared__ float key_sums[MEANS_THREADS / WARP][D], value_sums[MEANS_THREADS / WARP][DV];
  const Heads<const Element> k(k_view), v(v_view);
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, false, k.tokens);
  if (!block.is_whole(block_size)) return;
  const int64_t first = block.of.first + block.number * block_size, tile = block_y() * tiles_of_means + first_tile_of_means(block.sequence, block.of.first, block_size) + block.number / KEYS;
  const int d = thread_x(), key = static_cast<int>(block.number % KEYS);
$else
  const int64_t row = static_cast<int64_t>(block_z()) * k.heads + block_y(), tile = row * ((grid_x() + KEYS - 1) / KEYS) + block_x() / KEYS, first = block_x() * block_size;
  const int d = thread_x(), key = block_x() % KEYS;
$end
  Element* const to = reinterpret_cast<Element*>(mean_tiles) + tile * (STAGE_BYTES / 2) + d / 64 * (KEYS * 64) + key * 64 + (d % 64 / 8 ^ key % 8) * 8 + d % 8;
  const float x = mean_of_rows(key_sums, k.row(block_z(), first, block_y()), k.token_stride, block_size);
  store_terms(reinterpret_cast<char*>(mean_terms) + tile * MEANS_BYTES, key, x);
  if (!is_given(g_cmp_view)) return;
  if (d < D) *to = from_float<Element>(x);
  const float y = mean_of_rows(value_sums, v.row(block_z(), first, block_y()), v.token_stride, block_size);
  if (d < DV) to[KEYS * D] = from_float<Element>(y);
}
