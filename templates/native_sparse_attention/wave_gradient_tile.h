// GPU vocabulary: what native_sparse_attention/gradient_tile.h is for mma.sync, on matrix instructions of a wave (MFMA, WMMA). Part of a
// template, as chunk_walk.h.
//
// Products are transposed, as in wave_token_tile.h: weights are [key][head], dq is [feature][head]. Of each branch the keys are gone
// through twice, first for delta: sums with and without it side by side, as gradient_tile.h has them, would be twice as many registers as a
// wave of 32 can keep.
#pragma once
#include "device/matrix/wave_rows.h"
#include "native_sparse_attention/chunk_walk.h"

// dq of head matrix_column(). With w the weights of a branch and p = dout . v, dq takes sum of w (p - delta) k, where delta = sum of w p.
struct GradientTile {
  static constexpr bool KEPT = ${arch.wave == 64};  // waves of 32 read rows again each piece: registers are few
  OwnRow<Element, D, KEPT> query;
  OwnRow<Element, DV, KEPT> dout;
  Sums sums[D / 16];          // of all branches, times their gates
  float weight, product;      // of this branch and lane: sums of w, of w p; then, of the head, the sum of w, and delta
  float log_sum[1], gate[1];  // of this branch, to the base 2

  // Heads that are not there are the first one.
  void start(const Element* q, int64_t q_stride, const Element* douts, int64_t dout_stride, int heads) {
    const int head = matrix_column() < heads ? matrix_column() : 0;
    query = OwnRow<Element, D, KEPT>(q + head * q_stride), dout = OwnRow<Element, DV, KEPT>(douts + head * dout_stride);
#pragma unroll
    for (int f = 0; f < D / 16; ++f) sums[f] = {};
  }
  void start_branch() { weight = product = 0; }

  // `seen`: of the piece, keys that the token sees.
  void find_weights(Sums& w, Sums& p, const Stage& stage, int first_row, const KeyRange& seen, float unit) const {
    w = multiply_rows<Element>(stage.keys().at(first_row, 0), Stage::KeyTile::PITCH * 2, query);
    hold(w);
    part();
    p = multiply_rows<Element>(stage.values().at(first_row, 0), Stage::ValueTile::PITCH * 2, dout);
    hold(p);
    part();
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int key = matrix_row(i);
      w.at[i] = key >= seen.first && key < seen.end ? exp2_of(w.at[i] * unit - log_sum[0]) : 0;
      if (w.at[i] == 0) p.at[i] = 0;  // what lies behind a weight of 0 may not be finite
    }
  }
  void add_keys(const Sums& slopes, const Stage& stage, int first_row, const KeyRange& seen) {
    uint32_t kept[OPERAND_WORDS];  // a key that the token does not see may not be finite
#pragma unroll
    for (int i = 0; i < OPERAND_WORDS; ++i) {
      const int key = first_k() + 2 * i;
      kept[i] = (key >= seen.first && key < seen.end ? 0xffffu : 0) | (key + 1 >= seen.first && key + 1 < seen.end ? 0xffff0000u : 0);
    }
    const Operand b = operand_of<Element>(slopes);
#pragma unroll
    for (int f = 0; f < D / 16; ++f) {
      if (f % 4 == 0) part();
      Operand a = stage.turned_keys().load(16 * f, first_row);
#pragma unroll
      for (int i = 0; i < OPERAND_WORDS; ++i) a.words[i] &= kept[i];
      multiply<Element>(sums[f], a, b);
    }
  }

  // Through the keys of `walk`: add(weights, products, stage, first row, seen keys) of each piece that the token sees.
  template <class Add>
  void go(WalkMode mode, const KeyRows<Element>& rows, const PieceWalk& walk, const TokenView& view, ChunkRing& ring, float unit,
          const Add& add) const {
    walk_chunks(ring, rows, walk, view, {mode, unit}, [&](const Stage& stage, const Piece* pieces, const TokenView& mine, uint32_t seen) {
      const uint32_t some = uniform(seen);
#pragma unroll 1
      for (int p = 0; p < PIECES; ++p) {
        if ((some >> p & 1) == 0) continue;
        const KeyRange keys = mine.part(pieces[p]);
        Sums weights, products;
        find_weights(weights, products, stage, PIECE * p, keys, ring.rule.unit);
        add(weights, products, stage, PIECE * p, keys);
      }
    });
  }
  void differentiate(const KeyRows<Element>& rows, const PieceWalk& walk, const TokenView& view, ChunkRing& ring, float unit) {
    go(FIND_SUM, rows, walk, view, ring, unit, [&](const Sums& w, const Sums& p, const Stage&, int, const KeyRange&) {
#pragma unroll
      for (int i = 0; i < SUMS; ++i) weight += w.at[i], product += w.at[i] * p.at[i];
    });
    // Not by the log-sum-exp alone, whose rounding would stay where gradients cancel.
    weight = sum_of_column(weight), product = sum_of_column(product);
    product = weight == 0 ? 0 : product / weight;
    go(ADD_KNOWN, rows, walk, view, ring, unit, [&](const Sums& w, Sums& p, const Stage& stage, int first_row, const KeyRange& seen) {
#pragma unroll
      for (int i = 0; i < SUMS; ++i) p.at[i] = w.at[i] == 0 ? 0 : w.at[i] * (p.at[i] - product) * gate[0];
      add_keys(p, stage, first_row, seen);
    });
  }

  // The gradient of the gate: delta.
  float finish_branch(int) const { return product; }

  void store(Element* to, int64_t head_stride, int heads, float factor) const {
    if (matrix_column() < heads) store_row<D>(to + matrix_column() * head_stride, sums, factor);
  }
};
