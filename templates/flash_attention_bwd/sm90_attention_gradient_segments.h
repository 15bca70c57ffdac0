// Hopper vocabulary of the attention kernels' gradients: segment ids. The launch before leaves them aligned, for copies, and takes what no query
// of a block of keys sees out of its steps; where a turn's queries and keys are not all of one segment, scores' ids are compared.
#pragma once
#include "flash_attention_bwd/sm90_attention_gradient.h"
#include "device/sm90/sm90_segment_range.h"

// What stands for a negative id, of a query and of a key, and is in their places past the last: equal to no id, and not to one another.
constexpr int32_t HIDDEN_QUERY = -1, HIDDEN_KEY = -2;

// The ids of a call, [rows of the batch][tokens].
struct SegmentIds {
  const int32_t *queries, *keys;
  int64_t query_stride, key_stride;
  int query_tokens, key_tokens;

  SegmentIds(const View& of_queries, const View& of_keys, int64_t query_tokens, int64_t key_tokens)
      : queries(static_cast<const int32_t*>(of_queries.data)), keys(static_cast<const int32_t*>(of_keys.data)), query_stride(of_queries.strides[0]),
        key_stride(of_keys.strides[0]), query_tokens(static_cast<int>(query_tokens)), key_tokens(static_cast<int>(key_tokens)) {}

  // By a grid of blocks of ROWS queries by heads by rows of the batch, in that order: those of queries, and `count` of a row's keys.
  template <int THREADS, int ROWS> void copy(int32_t* of_rows, int32_t* of_row_keys, int64_t count) const {
    const int64_t batch = block_z(), first = int64_t{block_x()} * ROWS;
#pragma unroll 1
    for (int i = thread_x(); i < ROWS; i += THREADS)
      of_rows[block_number() * ROWS + i] = id_or(queries + batch * query_stride, first + i, query_tokens, HIDDEN_QUERY);
#pragma unroll 1
    for (int64_t i = int64_t{block_x()} * THREADS + thread_x(); block_y() == 0 && i < count; i += int64_t{grid_x()} * THREADS)
      of_row_keys[batch * count + i] = id_or(keys + batch * key_stride, i, key_tokens, HIDDEN_KEY);
  }
  static int32_t id_or(const int32_t* ids, int64_t i, int64_t count, int32_t hidden) {
    const int32_t id = i < count ? ids[i] : hidden;
    return id < 0 ? hidden : id;
  }

  // Of COUNT tokens from `first` on; those past the last, which no query sees, are left out, or count as masked. A whole warp calls it.
  template <int COUNT> static SegmentRange range(const int32_t* ids, int first, int tokens, bool hidden_past) {
    SegmentRange mine;
#pragma unroll
    for (int i = 0; i < (COUNT + WARP - 1) / WARP; ++i) {
      const int at = i * WARP + lane();
      if (at < COUNT && first + at < tokens) mine.add(ids[first + at]);
      if (hidden_past && at < COUNT && first + at >= tokens) mine.padded = true;
    }
    return mine;
  }

  // Steps of queries are taken off a block's ends that see none of its keys (TRIMS), and whole are those of one segment with all keys of a
  // part, in one piece, where several are. A whole warp calls it.
  template <bool TRIMS, class Block> void narrow(Block& block) const {
    constexpr int ROWS = Block::ROW_COUNT, PARTS = Block::COUNT / 64, AHEAD = 4;
    const int32_t* const own = keys + block.sequence.batch * key_stride;
    const int32_t* const seeing = queries + block.sequence.batch * query_stride;
    SegmentRange parts[PARTS], all;
    int first_whole[PARTS], end_whole[PARTS], first = block.end_step, end = block.first_step;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      parts[part] = SegmentRange::of(range<64>(own, block.first_key + part * 64, key_tokens, true));
      all.least = parts[part].least < all.least ? parts[part].least : all.least;
      all.largest = parts[part].largest > all.largest ? parts[part].largest : all.largest;
      first_whole[part] = end_whole[part] = 0;
    }
#pragma unroll 1
    for (int base = block.first_step; base < block.end_step; base += AHEAD) {
      SegmentRange ahead[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) ahead[i] = range<ROWS>(seeing, (base + i) * ROWS, query_tokens, false);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const int step = base + i;
        const SegmentRange here = SegmentRange::of(ahead[i]);
        if (step >= block.end_step || !here.meets(all)) continue;
        first = step < first ? step : first, end = step + 1;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          if (!here.is_one() || !parts[part].is_one() || here.least != parts[part].least) continue;
          if (end_whole[part] == 0) first_whole[part] = step;
          if (end_whole[part] == 0 || end_whole[part] == step) end_whole[part] = step + 1;
        }
      }
    }
    if (TRIMS) block.first_step = first < end ? first : 0, block.end_step = first < end ? end : 0;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      if (first_whole[part] > block.first_whole[part]) block.first_whole[part] = first_whole[part];
      if (end_whole[part] < block.end_whole[part]) block.end_whole[part] = end_whole[part];
    }
  }
};

// Two ids of shared memory, as load_two().
static inline Pack<int32_t, 2> load_two_ids(uint32_t from) {
  Pack<int32_t, 2> x;
  asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(x.at[0]), "=r"(x.at[1]) : "r"(from) : "memory");
  return x;
}
static inline int32_t load_id(uint32_t from) {
  int32_t x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}

// Scores (sm90_attention_weights.h) of keys of another segment than the query's become -inf. of_key: of this lane's keys; in shared memory: the ids
// of the turn's queries, and of the warpgroup's keys.
template <int N> static inline void hide_other_segments(float (&s)[N], uint32_t query_ids, const int32_t (&of_key)[2]) {
  const uint32_t thread = later(thread_x());
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const Pack<int32_t, 2> of_query = load_two_ids(query_ids + thread % 4 * 8 + 32 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (of_query.at[i % 2] != of_key[i / 2]) s[4 * j + i] = -INFINITE;
  }
}
template <int N> static inline void hide_other_segments(float (&s)[N], uint32_t query_ids, uint32_t key_ids) {
  const uint32_t thread = later(thread_x()), own = key_ids + (thread / WARP % 4 * 16 + thread % WARP / 4) * 4;
  const int32_t of_key[2] = {load_id(own), load_id(own + 32)};
  hide_other_segments(s, query_ids, of_key);
}
