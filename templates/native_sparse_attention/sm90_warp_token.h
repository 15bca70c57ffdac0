// A warp of Hopper's native sparse attention: softmax and outputs of one token, whose 16 query heads are the rows of products on mma.sync and the keys or
// features of a tile of the ring their columns. A part of forward.sm90.cu, whose constants it uses.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/fragment.h"
#include "native_sparse_attention/sm90_tile_ring.h"

// Lane 4 g + t holds of scores [16][64], element [j][2 r + c]: head g + 8 r, key 8 j + 2 t + c; of outputs the same, with features for keys.
constexpr uint32_t FIRST_OF_FOUR = (1u << TOKENS) / 15;  // bits of the first tokens of warpgroups
constexpr bool HAS_PATH_ALONE = DV <= D;  // of a warp, see meet_tile; few registers are left, and with more features of values it would spill
typedef float TileScores[KEYS_A_TILE / 8][4];

struct WarpToken {
  uint32_t tiles;  // address of the first stage
  float unit;      // of scores
  uint32_t query[D / 16][4];
  float output[DV / 8][4];
  float reference[2], sum[2];  // of heads lane / 4 and that + 8: of weights, to the base 2, and the lane's own weights

  uint32_t key_place, value_place;  // where the lane's row of four matrices is in a tile's keys and values

  bool is_fresh() const { return sum[0] < 0; }  // nothing has been added up

  // The lane; what is made of it stays in no register while tiles come.
  static int lane_here() { return static_cast<int>(keep_here(static_cast<uint32_t>(lane()))); }
  static int head_of(int r) { return lane_here() / 4 + 8 * r; }

  // `queries`: the row of the first head, of so many.
  void start(const Element* queries, int64_t head_stride, int heads) {
    const int l = lane_here();
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int step = 0; step < D / 16; ++step)
#pragma unroll
        for (int half_of = 0; half_of < 2; ++half_of)
          query[step][2 * half_of + r] =
              head_of(r) < heads ? *reinterpret_cast<const uint32_t*>(queries + head_of(r) * head_stride + 16 * step + 8 * half_of + l % 4 * 2) : 0;
#pragma unroll
    for (int j = 0; j < DV / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) output[j][e] = 0;
    key_place = place_of_row(l / 16 * 8 + l % 8, l / 8 % 2), value_place = place_of_row(l / 8 % 2 * 8 + l % 8, l / 16);
    reference[0] = reference[1] = 0, sum[0] = sum[1] = -1;
  }

  // Where a lane's row of four matrices begins in a panel, the first 16 features of it; others are 32 bytes away in both directions (swizzle).
  static uint32_t place_of_row(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

  // PARTIAL: of the first `count` keys, and of no 16 that have none of them.
  template <bool PARTIAL> void find_scores(TileScores& s, uint32_t keys, int count) const {
    const uint32_t from = keys + keep_here(key_place);
#pragma unroll
    for (int j = 0; j < KEYS_A_TILE / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = 0;
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
#pragma unroll
      for (int j = 0; j < KEYS_A_TILE / 16; ++j) {
        if (PARTIAL && 16 * j >= count) continue;
        uint32_t b[4];
        load_matrices(b, (from ^ step % 4 * 32) + step / 4 * PANEL + j * 2048);
        mma_16x8x16<Element>(s[2 * j], query[step], b[0], b[1]);
        mma_16x8x16<Element>(s[2 * j + 1], query[step], b[2], b[3]);
      }
  }

  // output += weights times values. PARTIAL: of the first `count` keys: the others' rows may not be finite.
  template <bool PARTIAL> void add_weighed(const uint32_t (&weights)[KEYS_A_TILE / 16][4], uint32_t values, int count) {
    const int l = lane_here();
    const uint32_t from = values + keep_here(value_place);
#pragma unroll
    for (int step = 0; step < KEYS_A_TILE / 16; ++step) {
      if (PARTIAL && 16 * step >= count) continue;
      uint32_t kept[2];
#pragma unroll
      for (int half_of = 0; half_of < 2; ++half_of) {
        const int first = 16 * step + 8 * half_of + l % 4 * 2;
        kept[half_of] = (first < count ? 0xffffu : 0) | (first + 1 < count ? 0xffff0000u : 0);
      }
#pragma unroll
      for (int j = 0; j < DV / 16; ++j) {
        uint32_t b[4];
        load_matrices_transposed(b, (from ^ j % 4 * 32) + j / 4 * PANEL + step * 2048);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (PARTIAL) b[i] &= kept[i % 2];
        mma_16x8x16<Element>(output[2 * j], weights[step], b[0], b[1]);
        mma_16x8x16<Element>(output[2 * j + 1], weights[step], b[2], b[3]);
      }
    }
  }

  // The same of all keys of a tile by the warpgroup, whose four tokens see it: each value is read from shared memory once, not four times.
  void find_scores_together(TileScores& s, uint32_t keys) const {
    float(&all)[KEYS_A_TILE / 2] = reinterpret_cast<float(&)[KEYS_A_TILE / 2]>(s);
    keep_in_place(all);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
      wgmma<Element, KEYS_A_TILE>(all, query[step], moved(depth_major<128>(keys), step / 4 * PANEL + step % 4 * 32), step > 0);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(all);
  }
  void add_weighed_together(const uint32_t (&weights)[KEYS_A_TILE / 16][4], uint32_t values) {
    float(&all)[DV / 2] = reinterpret_cast<float(&)[DV / 2]>(output);
    keep_in_place(all);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < KEYS_A_TILE / 16; ++step) wgmma<Element, DV, true>(all, weights[step], moved(row_major<128>(values, KEYS_A_TILE), step * 2048), true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(all);
  }

  // References follow the largest of x, scores less references, and what was added up follows them.
  void follow(TileScores& x) {
    const bool first = is_fresh();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = LOWEST;
#pragma unroll
      for (int j = 0; j < KEYS_A_TILE / 8; ++j) largest = larger_of(largest, larger_of(x[j][2 * r], x[j][2 * r + 1]));
      largest = largest_of_fragment_row(largest);
      const float up = first ? (largest > LOWEST ? largest : 0) : larger_of(largest, 0), by = first ? 1 : exp2_of(-up);
      reference[r] += up, sum[r] = first ? 0 : sum[r] * by;
#pragma unroll
      for (int j = 0; j < DV / 8; ++j) output[j][2 * r] *= by, output[j][2 * r + 1] *= by;
#pragma unroll
      for (int j = 0; j < KEYS_A_TILE / 8; ++j) x[j][2 * r] -= up, x[j][2 * r + 1] -= up;
    }
  }

  // The token sees the first `count` keys of the stage's tile. gate[r]: what weights of means are multiplied by. `together`: all tokens of the
  // warpgroup see the tile, `whole`: all of it.
  template <TileKind KIND> void meet(uint32_t stage, int count, bool together, bool whole, const float (&gate)[2]) {
    if (KIND == TILE_OF_BLOCKS && HAS_PATH_ALONE && count >= KEYS_A_TILE && !together)
      meet_tile<KIND, true>(stage, count, false, false, gate);
    else
      meet_tile<KIND, false>(stage, count, together, whole, gate);
  }
  // ALONE: all keys of the tile, and not together. Most tiles of blocks are such: along a path without branches their products and weights overlap.
  template <TileKind KIND, bool ALONE> void meet_tile(uint32_t stage, int count, bool together, bool whole, const float (&gate)[2]) {
    const uint32_t keys = tiles + stage * STAGE_BYTES;
    TileScores s;
    if (ALONE)
      find_scores<false>(s, keys, count);
    else if (together)
      find_scores_together(s, keys);
    else if (HAS_PATH_ALONE || count < KEYS_A_TILE)
      find_scores<true>(s, keys, count);
    else
      find_scores<false>(s, keys, count);
#pragma unroll
    for (int j = 0; j < KEYS_A_TILE / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[j][e] = s[j][e] * unit - reference[e / 2];
    if (!ALONE && count < KEYS_A_TILE) {
      const int past = count - lane_here() % 4 * 2;
#pragma unroll
      for (int j = 0; j < KEYS_A_TILE / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (8 * j + e % 2 >= past) s[j][e] = -INFINITE;
    }
    if (KIND == TILE_OF_BLOCKS) {
      float over[4];  // how far scores are above their references
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        over[e] = s[0][e];
#pragma unroll
        for (int j = 1; j < KEYS_A_TILE / 8; ++j) over[e] = larger_of(over[e], s[j][e]);
      }
      if (any_in_warp(is_fresh() || larger_of(larger_of(over[0], over[1]), larger_of(over[2], over[3])) > HEADROOM)) follow(s);
    }
    uint32_t weights[KEYS_A_TILE / 16][4];
#pragma unroll
    for (int j = 0; j < KEYS_A_TILE / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float a = exp2_of(s[j][2 * r]), b = exp2_of(s[j][2 * r + 1]);
        if (KIND == TILE_OF_BLOCKS)
          sum[r] += a + b;
        else
          a *= gate[r], b *= gate[r];
        weights[j / 2][j % 2 * 2 + r] = pack_pair<Element>(a, b);
      }
    if (ALONE)
      add_weighed<false>(weights, keys + PANEL * D / 64, count);
    else if (together && whole)
      add_weighed_together(weights, keys + PANEL * D / 64);
    else if (HAS_PATH_ALONE || count < KEYS_A_TILE)
      add_weighed<true>(weights, keys + PANEL * D / 64, count);
    else
      add_weighed<false>(weights, keys + PANEL * D / 64, count);
  }

  // The tile in turn is not used, or not any more.
  static void pass(TileRing& ring, Turn<STAGES>& turn) {
    sync_warp();
    if (lane() == 0) barrier_arrive(shared_pointer(&ring.empty[turn.at]));
    turn.next();
  }

  // All tiles of a kind. `bit`: of the token among those that want a tile; `end`: keys that it sees.
  template <TileKind KIND> void meet_tiles(TileRing& ring, Turn<STAGES>& turn, uint32_t bit, int end, const float (&gate)[2]) {
#pragma unroll 1
    for (;; pass(ring, turn)) {
      barrier_wait_all(shared_pointer(&ring.full[turn.at]), turn.parity);
      const uint32_t wanted = uniform(ring.wanted[turn.at]);
      if (wanted >> 24 != static_cast<uint32_t>(KIND)) return;
      if (!(wanted & bit)) continue;
      const uint32_t by_four = (wanted & wanted >> 1 & wanted >> 2 & wanted >> 3 & FIRST_OF_FOUR) * 15;  // of warpgroups all of whose tokens want it
      meet<KIND>(turn.at, end - uniform(ring.first[turn.at]), (by_four & bit) != 0, (wanted & WHOLE_TILE) != 0, gate);
    }
  }

  // After blocks: outputs become averages times the gates. Returns logarithms of the sums, to the base 2.
  void end_blocks(const float (&gate)[2], float (&lse)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += shuffle_xor(sum[r], 1);
      sum[r] += shuffle_xor(sum[r], 2);
      const bool none = sum[r] <= 0;
      const float by = none ? 0 : gate[r] / sum[r];
      lse[r] = none ? -INFINITE : reference[r] + log_of(sum[r]) * LOG2_E;
#pragma unroll
      for (int j = 0; j < DV / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) output[j][2 * r + c] = none ? 0 : output[j][2 * r + c] * by;
    }
  }

  // `to`: the row of the first head, of so many. Two lanes exchange words, so that a row's 32 bytes are stored at once.
  void store(Element* to, int64_t head_stride, int heads) const {
    const int t = lane_here() % 4, odd = t % 2;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int j = 0; j < DV / 8; j += 2) {
        const uint32_t a = pack_pair<Element>(output[j][2 * r], output[j][2 * r + 1]), b = pack_pair<Element>(output[j + 1][2 * r], output[j + 1][2 * r + 1]);
        const uint32_t other = shuffle_xor(odd ? a : b, 1);
        Pack<uint32_t, 2> x;
        x.at[0] = odd ? other : a, x.at[1] = odd ? b : other;
        if (head_of(r) < heads) store_pack(reinterpret_cast<uint32_t*>(to + head_of(r) * head_stride + 8 * (j + odd) + 2 * (t - odd)), x);
      }
  }
};
