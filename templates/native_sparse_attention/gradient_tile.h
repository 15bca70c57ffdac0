// GPU vocabulary: the gradient of 16 query heads of a token on mma.sync, by a warp. Part of a template, as chunk_walk.h; D and DV may
// differ.
#pragma once
#include "native_sparse_attention/chunk_walk.h"

using DoutTile = Tile<Element, HEADS, DV>;

// dq of rows g and g + 8 of the tile, lane 4 g + t. With w the weights of a branch and p = dout . v, dq takes sum of w (p - delta) k, where
// delta = sum of w p is not known before: so w (p - about) k and w k are summed side by side, `about` as the first piece has it.
struct GradientTile {
  float sums[D / 8][4], weighed[D / 8][4];  // of all branches, times their gates; of this one
  float about[2], weight[2], product[2];    // of this one: sums of w, of w (p - about)
  float log_sum[2], gate[2];                // of this one, to the base 2

  static QueryTile queries() {
    return {shared_pointer(dynamic_shared()) + STAGES * Stage::BYTES + later(warp()) * (QueryTile::BYTES + DoutTile::BYTES)};
  }
  static DoutTile douts() { return {queries().base + QueryTile::BYTES}; }

  template <int COLUMNS>
  static void copy(const Tile<Element, HEADS, COLUMNS>& to, const Element* from, int64_t head_stride, int heads) {
#pragma unroll
    for (int i = lane(); i < HEADS * (COLUMNS / 8); i += WARP) {
      const int head = i / (COLUMNS / 8), column = i % (COLUMNS / 8) * 8;
      copy_async_16(to.at(head, column), from + (head < heads ? head * head_stride : 0) + column, head < heads);
    }
  }
  // What was there before has been read by all lanes.
  void start(const Element* q, int64_t q_stride, const Element* dout, int64_t dout_stride, int heads) {
    sync_warp();
    copy(queries(), q, q_stride, heads);
    copy(douts(), dout, dout_stride, heads);
    copy_async_commit();
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
  void start_branch() {
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) weighed[n][i] = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) about[r] = weight[r] = product[r] = 0;
  }

  template <int COLUMNS>
  static void multiply(float (&c)[2][4], const Tile<Element, HEADS, COLUMNS>& rows, const Tile<Element, CHUNK, COLUMNS>& keys, int first) {
#pragma unroll
    for (int i = 0; i < 8; ++i) c[i / 4][i % 4] = 0;
#pragma unroll
    for (int step = 0; step < COLUMNS / 16; ++step) {
      uint32_t a[4], b[4];
      rows.load_a(a, 0, 16 * step);
      keys.load_b(b, first, 16 * step);
      mma_16x8x16<Element>(c[0], a, b[0], b[1]);
      mma_16x8x16<Element>(c[1], a, b[2], b[3]);
    }
  }
  static float sum_of_row(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
  }

  void add_piece(const Stage& stage, int p, const Piece& piece, const TokenView& view, float unit, bool is_first) {
    const int first = view.first > piece.first ? view.first - piece.first : 0;
    const int end = view.end - piece.first < piece.count ? view.end - piece.first : piece.count;
    float w[2][4], s[2][4];
    multiply(w, queries(), stage.keys(), PIECE * p);
    multiply(s, douts(), stage.values(), PIECE * p);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int key = i / 4 * 8 + lane() % 4 * 2 + i % 2;
      w[i / 4][i % 4] = key >= first && key < end ? exp2_of(w[i / 4][i % 4] * unit - log_sum[i / 2 % 2]) : 0;
    }
    if (is_first) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float all = 0, of_gate = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float x = w[i / 2][2 * r + i % 2];
          all += x, of_gate += x == 0 ? 0 : x * s[i / 2][2 * r + i % 2];
        }
        all = sum_of_row(all), of_gate = sum_of_row(of_gate);
        about[r] = all == 0 ? 0 : of_gate / all;
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2;
        s[n][i] = w[n][i] == 0 ? 0 : w[n][i] * (s[n][i] - about[r]);  // what lies behind a weight of 0 may not be finite
        weight[r] += w[n][i], product[r] += s[n][i];
        w[n][i] *= gate[r], s[n][i] *= gate[r];
      }
    uint32_t kept[2] = {0xffffffffu, 0xffffffffu};
    if (first > 0 || end < PIECE) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = 8 * i + lane() % 4 * 2;
        kept[i] = (key >= first && key < end ? 0xffffu : 0) | (key + 1 >= first && key + 1 < end ? 0xffff0000u : 0);
      }
    }
    const uint32_t slopes[4] = {pack_pair<Element>(s[0][0], s[0][1]), pack_pair<Element>(s[0][2], s[0][3]),
                                pack_pair<Element>(s[1][0], s[1][1]), pack_pair<Element>(s[1][2], s[1][3])};
    const uint32_t weights[4] = {pack_pair<Element>(w[0][0], w[0][1]), pack_pair<Element>(w[0][2], w[0][3]),
                                 pack_pair<Element>(w[1][0], w[1][1]), pack_pair<Element>(w[1][2], w[1][3])};
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      uint32_t b[4];
      stage.keys().load_b_transposed(b, PIECE * p, 16 * n);
      mma_16x8x16<Element>(sums[2 * n], slopes, b[0] & kept[0], b[1] & kept[1]);
      mma_16x8x16<Element>(sums[2 * n + 1], slopes, b[2] & kept[0], b[3] & kept[1]);
      mma_16x8x16<Element>(weighed[2 * n], weights, b[0] & kept[0], b[1] & kept[1]);
      mma_16x8x16<Element>(weighed[2 * n + 1], weights, b[2] & kept[0], b[3] & kept[1]);
    }
  }

  void differentiate(const KeyRows<Element>& rows, const PieceWalk& walk, const TokenView& view, ChunkRing& ring, float unit) {
    walk_chunks(ring, rows, walk, view, {ADD_KNOWN, unit},
                [&](const Stage& stage, const Piece* pieces, const TokenView& seen_keys, uint32_t seen) {
#pragma unroll 1
                  for (int p = 0; p < PIECES; ++p)
                    if (seen >> p & 1) {
                      add_piece(stage, p, pieces[p], seen_keys, ring.rule.unit, !ring.begun[warp()]);
                      sync_warp();
                      ring.begun[warp()] = true;
                      sync_warp();
                    }
                });
  }

  // Of row r the sum of w p, by all four lanes: the gradient of the gate. Not by the log-sum-exp alone, whose rounding would stay where
  // gradients cancel.
  float finish_branch(int r) {
    const float all = sum_of_row(weight[r]), left = sum_of_row(product[r]), rest = all == 0 ? 0 : left / all;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) sums[n][i] -= rest * weighed[n][i];
    return about[r] + rest;
  }

  void store(Element* to, int64_t head_stride, int heads, float factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = lane() / 4 + 8 * r;
      if (head >= heads) continue;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<uint32_t*>(to + head * head_stride + 8 * n + lane() % 4 * 2) =
            pack_pair<Element>(sums[n][2 * r] * factor, sums[n][2 * r + 1] * factor);
    }
  }
};
