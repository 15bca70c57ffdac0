// Hopper vocabulary: products of a warpgroup for one token at a time, made transposed: the 64 keys of a tile, or 64 features of them, are the rows,
// and the token's 16 query heads the columns. A part of a template, as sm90_tile_ring.h.
#pragma once
#include "native_sparse_attention/sm90_tile_ring.h"

// Lane 4 g + t of warp w holds of scores [64][16], element 4 j + 2 h + c: key 16 w + g + 8 h, head 8 j + 2 t + c; of outputs the same, with
// features for keys. Column 2 j + c: that head.
typedef float Scores[ROW_HEADS / 2];
static inline int column_of(int element) { return element / 4 * 2 + element % 2; }
static inline int head_of(int column) { return column / 2 * 8 + lane() % 4 * 2 + column % 2; }

// Columns summed over four lanes, of which each then holds one: column lane / 8.
static inline float share_columns(const float (&x)[4]) {
  const bool upper = lane() & 16, second = lane() & 8;
  const float a = (upper ? x[2] : x[0]) + shuffle_xor(upper ? x[0] : x[2], 16), b = (upper ? x[3] : x[1]) + shuffle_xor(upper ? x[1] : x[3], 16);
  return (second ? b : a) + shuffle_xor(second ? a : b, 8);
}

// Keys times queries, FEATURES of them; then wgmma_commit, wgmma_wait and joined(). In CHAINS sums, since a product waits for the one before it
// that adds to the same sum. `keys`: panels PANEL apart; `queries`: QUERY_PANEL.
typedef float ScoreParts[CHAINS][ROW_HEADS / 2];
template <int FEATURES> static inline void start_scores(ScoreParts& s, uint32_t keys, uint32_t queries) {
#pragma unroll
  for (int step = 0; step < FEATURES / 16; ++step)
    wgmma<Element, ROW_HEADS>(s[step % CHAINS], moved(depth_major<128>(keys), step / 4 * PANEL + step % 4 * 32),
                              moved(depth_major<128>(queries), step / 4 * QUERY_PANEL + step % 4 * 32), step >= CHAINS);
}
static inline void keep_in_place(ScoreParts& s) {
#pragma unroll
  for (int i = 0; i < CHAINS; ++i) keep_in_place(s[i]);
}
static inline void join_parts(Scores& to, const ScoreParts& s) {
#pragma unroll
  for (int e = 0; e < ROW_HEADS / 2; ++e) {
    to[e] = s[0][e];
#pragma unroll
    for (int i = 1; i < CHAINS; ++i) to[e] += s[i][e];
  }
}

// Elements as wgmma has them, to 16 rows of 128 bytes, a head each, swizzled.
static inline void store_transposed(uint32_t to, const Scores& x) {
  uint32_t r[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) r[i] = pack_pair<Element>(x[2 * i], x[2 * i + 1]);
  const int l = lane(), row = l / 16 * 8 + l % 8, chunk = 2 * (warp() % 4) + l / 8 % 2;
  store_matrices_transposed(to + row * 128 + (chunk ^ row % 8) * 16, r);
}

// sums += rows^T weights, of a tile's keys: FEATURES of their rows, COLUMNS rows of weights as store_transposed leaves them.
template <int FEATURES, int COLUMNS>
static inline void add_weighed(float (&sums)[FEATURES / 64][COLUMNS / 2], uint32_t rows, uint32_t weights) {
#pragma unroll
  for (int h = 0; h < FEATURES / 64; ++h) keep_in_place(sums[h]);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < KEYS_A_TILE / 16; ++step)
#pragma unroll
    for (int h = 0; h < FEATURES / 64; ++h)
      wgmma<Element, COLUMNS, true>(sums[h], moved(row_major<128>(rows, KEYS_A_TILE), h * PANEL + step * 2048), moved(depth_major<128>(weights), step * 32), true);
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int h = 0; h < FEATURES / 64; ++h) keep_in_place(sums[h]);
}
// The same of the first `count` keys: the others' rows may not be finite.
template <int FEATURES, int COLUMNS>
static inline void add_some_weighed(float (&sums)[FEATURES / 64][COLUMNS / 2], uint32_t rows, uint32_t weights, int count) {
  const int l = lane(), key = l / 16 * 8 + l % 8, chunk = 2 * (warp() % 4) + l / 8 % 2;
  const uint32_t from = rows + key * 128 + (chunk ^ key % 8) * 16;
#pragma unroll
  for (int h = 0; h < FEATURES / 64; ++h) {
    uint32_t a[KEYS_A_TILE / 16][4];
#pragma unroll
    for (int step = 0; step < KEYS_A_TILE / 16; ++step) {
      load_matrices_transposed(a[step], from + h * PANEL + step * 2048);
#pragma unroll
      for (int half_of = 0; half_of < 2; ++half_of) {
        const int first = 16 * step + 8 * half_of + l % 4 * 2;
        const uint32_t kept = (first < count ? 0xffffu : 0) | (first + 1 < count ? 0xffff0000u : 0);
        a[step][2 * half_of] &= kept, a[step][2 * half_of + 1] &= kept;
      }
    }
    keep_in_place(sums[h]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KEYS_A_TILE / 16; ++step) wgmma<Element, COLUMNS>(sums[h], a[step], moved(depth_major<128>(weights), step * 32), true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(sums[h]);
  }
}

// A warpgroup, which has GROUP_TOKENS of the block's tokens.
struct TokenGroup {
  int group;
  float (&exchange)[GROUPS][4][ROW_HEADS];  // what its warps tell each other

  int token(int i) const { return group * GROUP_TOKENS + i; }  // of the block's
  int barrier() const { return 1 + group; }
  void sync() const { sync_some(barrier(), WARPGROUP); }
  static bool speaks() { return warp() % 4 == 0 && lane() < 4; }  // one of four lanes, which have all heads between them

  // The largest of a column, or its sum, over all keys: what all know after it. Another barrier comes before the next one.
  template <class Join> void join_columns(float (&column)[4], const Join& join) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float x = column[c];
#pragma unroll
      for (int mask = 4; mask < WARP; mask *= 2) x = join(x, shuffle_xor(x, mask));
      if (lane() < 4) exchange[group][warp() % 4][head_of(c)] = x;
    }
    sync();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      column[c] = exchange[group][0][head_of(c)];
#pragma unroll
      for (int w = 1; w < 4; ++w) column[c] = join(column[c], exchange[group][w][head_of(c)]);
    }
  }

  // All four columns, of what lanes hold of them; others may be told then.
  void find_columns(float (&column)[4], float held) const {
    held += shuffle_xor(held, 4);
    if (!(lane() & 4)) exchange[group][warp() % 4][head_of(lane() / 8)] = held;
    sync();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      column[c] = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) column[c] += exchange[group][w][head_of(c)];
    }
    sync();
  }

  // All tiles of a kind that tokens of the group want: meet(i, stage, first key of the tile), i a constant.
  template <class Meet> void meet_tiles(TileKind kind, TileRing& ring, Turn<STAGES>& turn, const Meet& meet) const {
#pragma unroll 1
    for (;; turn.next()) {
      barrier_wait_all(shared_pointer(&ring.full[turn.at]), turn.parity);
      const uint32_t wanted = uniform(ring.wanted[turn.at]);
      if (wanted >> 24 != static_cast<uint32_t>(kind)) return;
      const int first = uniform(ring.first[turn.at]);
#pragma unroll
      for (int i = 0; i < GROUP_TOKENS; ++i)
        if (wanted >> token(i) & 1) meet(i, turn.at, first);
      sync_warp();
      if (lane() == 0) barrier_arrive(shared_pointer(&ring.empty[turn.at]));
    }
  }

  // Results of the tokens, part(i, h) their features from 64 h on, by way of the queries' place, which has been read. `row(i)`: where head 0 of
  // token i of the block's goes, null: nowhere.
  template <int FEATURES, class Part, class Row> void store(uint32_t queries, const Part& part, const Row& row, int64_t head_stride, int heads) const {
    sync();
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; ++i)
#pragma unroll
      for (int h = 0; h < FEATURES / 64; ++h) store_transposed(queries + h * QUERY_PANEL + token(i) * (ROW_HEADS * 128), part(i, h));
    sync();
    constexpr int ACROSS = FEATURES / 8;
#pragma unroll 1
    for (int j = thread_x() % WARPGROUP; j < GROUP_TOKENS * ROW_HEADS * ACROSS; j += WARPGROUP) {
      const int chunk = j % ACROSS, head = j / ACROSS % ROW_HEADS, of = token(j / (ACROSS * ROW_HEADS));
      Element* const to = row(of);
      if (!to || head >= heads) continue;
      const uint32_t from = queries + chunk / 8 * QUERY_PANEL + (of * ROW_HEADS + head) * 128 + (chunk % 8 ^ head % 8) * 16;
      Pack<uint32_t, 4> x;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(from) : "memory");
      store_pack(reinterpret_cast<uint32_t*>(to + head * head_stride + chunk * 8), x);
    }
  }
};
