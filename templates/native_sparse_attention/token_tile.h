// GPU vocabulary: a token of each warp, 16 of its query heads as the rows of a tile on mma.sync; the warps of a block share the keys that
// any of their tokens sees. Part of a template, as chunk_walk.h, which has defined AT_ONCE, too.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/fragment.h"
#include "native_sparse_attention/chunk_walk.h"

// A warp's queries, softmax and outputs: of rows g and g + 8 of the tile, lane 4 g + t.
struct TokenTile {
  // This warp's queries, in shared memory behind the stages.
  static QueryTile queries() { return {shared_pointer(dynamic_shared()) + STAGES * Stage::BYTES + later(warp()) * QueryTile::BYTES}; }
  float output[DV / 8][4];
  float reference[2], sum[2];  // of ADD_KNOWN: the log-sum-exp to the base 2, the factor

  // What the warp's queries were has been read by all its lanes.
  void start(const Element* from, int64_t head_stride, int heads) {
    sync_warp();
#pragma unroll
    for (int i = lane(); i < HEADS * (D / 8); i += WARP) {
      const int head = i / (D / 8), column = i % (D / 8) * 8;
      copy_async_16(queries().at(head, column), from + (head < heads ? head * head_stride : 0) + column, head < heads);
    }
    copy_async_commit();
    clear();
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) output[n][i] = 0;
  }
  void clear() {
#pragma unroll
    for (int r = 0; r < 2; ++r) reference[r] = LOWEST, sum[r] = 0;
  }

  // N pieces: AT_ONCE, of which the token sees every key, or one.
  template <int N>
  static constexpr bool whole = N == AT_ONCE;

  template <int N>
  void find_scores(float (&scores)[N][2][4], const Stage& stage, int first_row, const KeyRange& seen, float unit) const {
#pragma unroll
    for (int i = 0; i < N * 8; ++i) scores[i / 8][i / 4 % 2][i % 4] = 0;
    const QueryTile own = queries();
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      uint32_t a[4];
      own.load_a(a, 0, 16 * step);
#pragma unroll
      for (int p = 0; p < N; ++p) {
        uint32_t b[4];
        stage.keys().load_b(b, first_row + PIECE * p, 16 * step);
        mma_16x8x16<Element>(scores[p][0], a, b[0], b[1]);
        mma_16x8x16<Element>(scores[p][1], a, b[2], b[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < N * 8; ++i) {
      float& score = scores[i / 8][i / 4 % 2][i % 4];
      const int key = i / 4 % 2 * 8 + lane() % 4 * 2 + i % 2;
      score = whole<N> || (key >= seen.first && key < seen.end) ? score * unit : -INFINITE;
    }
  }

  // Scores become weights.
  template <int N>
  void weigh(float (&scores)[N][2][4], WalkMode mode) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (mode != ADD_KNOWN) {
        float largest = -INFINITE;
#pragma unroll
        for (int i = 0; i < N * 2; ++i)
          largest = larger_of(largest, larger_of(scores[i / 2][i % 2][2 * r], scores[i / 2][i % 2][2 * r + 1]));
        largest = largest_of_fragment_row(largest);
        if (any_in_warp(largest > reference[r])) {
          const float now = larger_of(reference[r], largest), by = exp2_of(reference[r] - now);
          reference[r] = now;
          sum[r] *= by;
          if (mode == WEIGH) {
#pragma unroll
            for (int n = 0; n < DV / 8; ++n) output[n][2 * r] *= by, output[n][2 * r + 1] *= by;
          }
        }
      }
      float all = 0;
#pragma unroll
      for (int i = 0; i < N * 4; ++i) {
        float& score = scores[i / 4][i / 2 % 2][2 * r + i % 2];
        all += score = exp2_of(score - reference[r]);
      }
      if (mode != ADD_KNOWN) {
        sum[r] += all;
      } else {
#pragma unroll
        for (int i = 0; i < N * 4; ++i) scores[i / 4][i / 2 % 2][2 * r + i % 2] *= sum[r];
      }
    }
  }

  template <int N>
  void add_values(const float (&weights)[N][2][4], const Stage& stage, int first_row, const KeyRange& seen) {
    uint32_t kept[2] = {0xffffffffu, 0xffffffffu};  // a value that the token does not see may not be finite
    if (!whole<N>) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = 8 * i + lane() % 4 * 2;
        kept[i] = (key >= seen.first && key < seen.end ? 0xffffu : 0) | (key + 1 >= seen.first && key + 1 < seen.end ? 0xffff0000u : 0);
      }
    }
#pragma unroll
    for (int p = 0; p < N; ++p) {
      const auto& w = weights[p];
      const uint32_t a[4] = {pack_pair<Element>(w[0][0], w[0][1]), pack_pair<Element>(w[0][2], w[0][3]),
                             pack_pair<Element>(w[1][0], w[1][1]), pack_pair<Element>(w[1][2], w[1][3])};
#pragma unroll
      for (int n = 0; n < DV / 16; ++n) {
        uint32_t b[4];
        stage.values().load_b_transposed(b, first_row + PIECE * p, 16 * n);
        mma_16x8x16<Element>(output[2 * n], a, b[0] & kept[0], b[1] & kept[1]);
        mma_16x8x16<Element>(output[2 * n + 1], a, b[2] & kept[0], b[3] & kept[1]);
      }
    }
  }

  // `seen`: of the piece, keys that the token sees.
  template <int N>
  void add_pieces(const Stage& stage, int first_row, const KeyRange& seen, const WalkRule& rule) {
    const WalkMode mode = rule.mode;
    float scores[N][2][4];
    find_scores<N>(scores, stage, first_row, seen, rule.unit);
    weigh<N>(scores, mode);
    if (mode != FIND_SUM) add_values<N>(scores, stage, first_row, seen);
  }

  // Through the keys of `walk`, which all threads of the block go through together. Begins and ends with barriers.
  void attend(WalkMode how, const KeyRows<Element>& rows, const PieceWalk& walk, const TokenView& view, ChunkRing& ring, float unit) {
    walk_chunks(ring, rows, walk, view, {how, unit}, [&](const Stage& stage, const Piece* pieces, const TokenView& mine, uint32_t seen) {
#pragma unroll 1
      for (int p = 0; p < PIECES; p += AT_ONCE) {
        const uint32_t some = seen >> p & ((1u << AT_ONCE) - 1);
        if (mine.sees_all<AT_ONCE>(pieces + p, some)) {
          add_pieces<AT_ONCE>(stage, PIECE * p, {}, ring.rule);
        } else if (some != 0) {
#pragma unroll 1
          for (int i = 0; i < AT_ONCE; ++i)
            if (some >> i & 1) add_pieces<1>(stage, PIECE * (p + i), mine.part(pieces[p + i]), ring.rule);
        }
      }
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (ring.rule.mode == ADD_KNOWN) continue;
      sum[r] += shuffle_xor(sum[r], 1);
      sum[r] += shuffle_xor(sum[r], 2);
    }
  }

  // After WEIGH or FIND_SUM: natural logarithm of the sum of row r's weights.
  float lse(int r) const { return sum[r] == 0 ? -INFINITE : reference[r] * LN_2 + log_of(sum[r]); }
  // After WEIGH: outputs over the sum, times a factor.
  void finish(int r, float factor) {
    const float by = sum[r] == 0 ? 0 : factor / sum[r];
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) output[n][i] = sum[r] == 0 ? 0 : output[n][i] * by;
  }
  // After FIND_SUM: makes ready for ADD_KNOWN.
  void know(int r, float log2_of_sum, float factor) { reference[r] = log2_of_sum > -INFINITE ? log2_of_sum : 0, sum[r] = factor; }

  void store(Element* to, int64_t head_stride, int heads) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = lane() / 4 + 8 * r;
      if (head >= heads) continue;
#pragma unroll
      for (int n = 0; n < DV / 8; ++n)
        *reinterpret_cast<uint32_t*>(to + head * head_stride + 8 * n + lane() % 4 * 2) =
            pack_pair<Element>(output[n][2 * r], output[n][2 * r + 1]);
    }
  }
};
