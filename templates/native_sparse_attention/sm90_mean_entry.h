// Hopper vocabulary: the entry that finds the means of blocks. A part of forward.sm90.cu, whose constants it uses.
#pragma once

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

// Block (x, y, z): the means of block x of kv head y of row z of the batch: of keys in terms, and of both, 64 as they lie in shared memory.
KERNEL(MEANS_THREADS, 1) find_means(${parameters('find_means')}) {
  __shared__ float key_sums[MEANS_THREADS / WARP][D], value_sums[MEANS_THREADS / WARP][DV];
  const Heads<const Element> k(k_view), v(v_view);
  const int64_t row = static_cast<int64_t>(block_z()) * k.heads + block_y(), tile = row * ((grid_x() + KEYS - 1) / KEYS) + block_x() / KEYS, first = block_x() * block_size;
  const int d = thread_x(), key = block_x() % KEYS;
  Element* const to = reinterpret_cast<Element*>(mean_tiles) + tile * (STAGE_BYTES / 2) + d / 64 * (KEYS * 64) + key * 64 + (d % 64 / 8 ^ key % 8) * 8 + d % 8;
  const float x = mean_of_rows(key_sums, k.row(block_z(), first, block_y()), k.token_stride, block_size);
  if (d < D) store_terms(reinterpret_cast<Element*>(mean_terms) + tile * (TERMS_BYTES / 2) + place_of_mean(key, d), TERM_BYTES / 2, x);
  if (!is_given(g_cmp_view)) return;
  if (d < D) *to = from_float<Element>(x);
  const float y = mean_of_rows(value_sums, v.row(block_z(), first, block_y()), v.token_stride, block_size);
  if (d < DV) to[KEYS * D] = from_float<Element>(y);
}
