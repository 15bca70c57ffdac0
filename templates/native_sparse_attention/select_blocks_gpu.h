// GPU vocabulary: means over blocks, and which blocks a query selects, by one warp. `bits` and `importance` are in shared memory; every
// lane must call.
#pragma once
#include "device/gpu.h"
#include "native_sparse_attention/selected_blocks.h"

static inline uint32_t or_of_warp(uint32_t x) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) x |= shuffle_xor(x, mask);
  return x;
}

static inline int sum_of_warp(int x) {
  for (int mask = WARP / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}

static inline int ones_in(uint32_t x) {
  x -= x >> 1 & 0x55555555;
  x = (x & 0x33333333) + (x >> 2 & 0x33333333);
  return static_cast<int>(((x + (x >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24);
}

// The first `count` of a row of block_indices, or fewer where block_counts says so; none behind the query's own block. A lane sets the
// words whose number is its own, modulo the lanes.
static inline void name_blocks(uint32_t* bits, const View& indices, const View& counts, int64_t batch, int64_t token, int64_t kv_head,
                               int64_t count, int own) {
#pragma unroll 1
  for (int word = lane(); word <= own / 32; word += WARP) bits[word] = 0;
  if (is_given(counts)) {
    const int64_t some =
        static_cast<const int32_t*>(counts.data)[batch * counts.strides[0] + token * counts.strides[1] + kv_head * counts.strides[2]];
    if (some < count) count = some;
  }
  const int32_t* row =
      static_cast<const int32_t*>(indices.data) + batch * indices.strides[0] + token * indices.strides[1] + kv_head * indices.strides[2];
#pragma unroll 1
  for (int64_t i = 0; i < count; ++i) {
    const int block = row[i];
    if (block >= 0 && block <= own && block / 32 % WARP == lane()) bits[block / 32] |= 1u << block % 32;
  }
  sync_warp();
}

// All words of a token's bits, by its warp; none for a token that is not `there`.
static inline void load_named_bits(uint32_t* bits, int words, const View& indices, const View& counts, int64_t batch, int64_t token, int64_t kv_head,
                                   int64_t count, int64_t block_size, bool there${packed ? ', int start' : ''}) {
#pragma unroll 1
  for (int word = lane(); word < words; word += WARP) bits[word] = 0;
  sync_warp();
  if (there) name_blocks(bits, indices, counts, batch, token, kv_head, count, static_cast<int>(${packed ? '(token - start)' : 'token'} / block_size));
}

// What the lanes of a warp tell each other, by shuffles; a GPU may have words of its own for it.
struct ShufflingWarp {
  enum { UNROLLED = 1 };  // numbers that a lane looks at together: more would spill
  static uint32_t where(bool x) { return or_of_warp(x ? 1u << lane() : 0); }
  static uint32_t any(uint32_t x) { return or_of_warp(x); }
  static int sum(int x) { return sum_of_warp(x); }
};

template <class Words> static inline int count_from(const float* importance, int own, uint32_t least) {
  int count = 0;
#pragma unroll (Words::UNROLLED)
  for (int block = 1 + lane(); block < own; block += WARP) count += order_of(importance[block]) >= least ? 1 : 0;
  return Words::sum(count);
}

// The first bit, and all after it, in which the importance of blocks before `own` is not the same as that of block 1.
template <class Words> static inline uint32_t bits_apart(const float* importance, int own) {
  const uint32_t one = order_of(importance[1]);
  uint32_t apart = 0;
#pragma unroll (Words::UNROLLED)
  for (int block = 1 + lane(); block < own; block += WARP) apart |= order_of(importance[block]) ^ one;
  apart = Words::any(apart);
#pragma unroll
  for (int by = 1; by < 32; by *= 2) apart |= apart >> by;
  return apart;
}

// Block 0, the query's own, and the `count` less two of the others before it whose importance is largest; of equal ones the first. Bit by
// bit, from the first that is not the same in all, the importance is found that as many blocks reach; where just as many do, it is enough.
template <class Words = ShufflingWarp> static inline void choose_blocks(uint32_t* bits, const float* importance, int own, int64_t count) {
  const int64_t room = room_beside(count, own);
  const bool all = room >= own - 1;
  bool exact = false;
  const uint32_t apart = all ? 0 : bits_apart<Words>(importance, own);
  uint32_t least = all ? 0 : order_of(importance[1]) & ~apart;
#pragma unroll 1
  for (uint32_t bit = apart - apart / 2; !exact && bit > 0; bit >>= 1) {
    const int reach = count_from<Words>(importance, own, least | bit);
    if (reach >= room) least |= bit;
    exact = reach == room;
  }
  int64_t equal = all ? 0 : exact ? own : room - (least < 0xffffffffu ? count_from<Words>(importance, own, least + 1) : 0);
#pragma unroll 1
  for (int first = 0; first <= own; first += WARP) {
    const int block = first + lane();
    const bool other = block > 0 && block < own;
    const uint32_t order = other && !all ? order_of(importance[block]) : 0;
    const uint32_t same = Words::where(other && !all && order == least);
    const bool fixed = block == 0 || (block == own && count > 1);
    const bool best = other && (all || (room > 0 && (order > least || (order == least && ones_in(same & ((1u << lane()) - 1)) < equal))));
    const uint32_t word = Words::where(fixed || best);
    equal -= ones_in(same);
    if (lane() == 0) bits[first / 32] = word;
  }
  sync_warp();
}

// The blocks in rising order, then -1. `bits`: null, there are none.
static inline void store_selected(const View& selected, const uint32_t* bits, int64_t batch, int64_t token, int64_t kv_head, int own) {
  if (!is_given(selected) || lane() != 0) return;
  int32_t* to =
      static_cast<int32_t*>(selected.data) + batch * selected.strides[0] + token * selected.strides[1] + kv_head * selected.strides[2];
  int64_t i = 0;
#pragma unroll 1
  for (int block = 0; bits && block <= own; ++block)
    if (bits[block / 32] >> block % 32 & 1) to[i++] = block;
#pragma unroll 1
  for (; i < selected.shape[3]; ++i) to[i] = -1;
}

// The mean of `size` rows, by all threads of a block.
template <int THREADS, class T> static inline void mean_of_rows(const T* from, int64_t stride, int64_t size, int64_t features, float* to) {
#pragma unroll 1
  for (int64_t d = thread_x(); d < features; d += THREADS) {
    float sum = 0;
#pragma unroll 1
    for (int64_t t = 0; t < size; ++t) sum += to_float(from[t * stride + d]);
    to[d] = sum / static_cast<float>(size);
  }
}
