// GPU vocabulary: what native_sparse_attention/token_tile.h is for mma.sync, on matrix instructions of a wave (MFMA, WMMA). Part of a template, as
// chunk_walk.h.
//
// Products are transposed: scores are [key][head], outputs [feature][head]. So a lane's numbers are all of one query head, and weights are the
// next product's operand where they are.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/wave_rows.h"
#include "native_sparse_attention/chunk_walk.h"

// A wave's queries, softmax and outputs: of head matrix_column().
struct TokenTile {
  using Query = OwnRow<Element, D, ${arch.wave == 64 or D <= 64}>;  // on waves of 32 longer ones are read again each piece: registers are few
  Query query;
  Sums output[DV / 16];
  float reference, sum;  // of ADD_KNOWN: the log-sum-exp to the base 2, the factor

  // Heads that are not there are the first one.
  void start(const Element* from, int64_t head_stride, int heads) {
    query = Query(from + (matrix_column() < heads ? matrix_column() * head_stride : 0));
#pragma unroll
    for (int f = 0; f < DV / 16; ++f) output[f] = {};
    clear();
  }
  void clear() { reference = LOWEST, sum = 0; }

  // WHOLE: the token sees every key of the piece.
  template <bool WHOLE> void find_scores(Sums& scores, const Stage& stage, int first_row, const KeyRange& seen, float unit) const {
    scores = multiply_rows<Element>(stage.keys().at(first_row, 0), Stage::KeyTile::PITCH * 2, query);
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int key = matrix_row(i);
      scores.at[i] = WHOLE || (key >= seen.first && key < seen.end) ? scores.at[i] * unit : -INFINITE;
    }
  }

  void scale(float by) {
#pragma unroll
    for (int f = 0; f < DV / 16; ++f)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) output[f].at[i] *= by;
  }

  // Scores become weights.
  void weigh(Sums& scores, WalkMode mode) {
    if (mode == ADD_KNOWN) {
#pragma unroll
      for (int i = 0; i < SUMS; ++i) scores.at[i] = exp2_of(scores.at[i] - reference) * sum;
      return;
    }
    float largest = -INFINITE;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) largest = larger_of(largest, scores.at[i]);
    largest = largest_of_column(largest);
    if (any_in_wave(largest > reference)) {
      const float now = larger_of(reference, largest), by = exp2_of(reference - now);
      reference = now;
      sum *= by;
      if (mode == WEIGH) scale(by);
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sum += scores.at[i] = exp2_of(scores.at[i] - reference);
  }

  template <bool WHOLE> void add_values(const Sums& weights, const Stage& stage, int first_row, const KeyRange& seen) {
    uint32_t kept[OPERAND_WORDS];  // a value that the token does not see may not be finite
#pragma unroll
    for (int i = 0; i < OPERAND_WORDS; ++i) {
      const int key = first_k() + 2 * i;
      kept[i] = (key >= seen.first && key < seen.end ? 0xffffu : 0) | (key + 1 >= seen.first && key + 1 < seen.end ? 0xffff0000u : 0);
    }
    const Operand b = operand_of<Element>(weights);
#pragma unroll
    for (int f = 0; f < DV / 16; ++f) {
      if (f % 4 == 0) part();
      Operand a = stage.values().load(16 * f, first_row);
#pragma unroll
      for (int i = 0; i < OPERAND_WORDS; ++i)
        if (!WHOLE) a.words[i] &= kept[i];
      multiply<Element>(output[f], a, b);
    }
  }

  // `seen`: of the piece, keys that the token sees.
  template <bool WHOLE> void add_piece(const Stage& stage, int first_row, const KeyRange& seen, const WalkRule& rule) {
    const WalkMode mode = uniform(rule.mode);
    Sums scores;
    find_scores<WHOLE>(scores, stage, first_row, seen, rule.unit);
    weigh(scores, mode);
    if (mode != FIND_SUM) add_values<WHOLE>(scores, stage, first_row, seen);
  }

  // Through the keys of `walk`, which all threads of the block go through together. Begins and ends with barriers.
  void attend(WalkMode how, const KeyRows<Element>& rows, const PieceWalk& walk, const TokenView& view, ChunkRing& ring, float unit) {
    walk_chunks(ring, rows, walk, view, {how, unit}, [&](const Stage& stage, const Piece* pieces, const TokenView& mine, uint32_t seen) {
      const uint32_t some = uniform(seen);
#pragma unroll 1
      for (int p = 0; p < PIECES; ++p) {
        if ((some >> p & 1) == 0) continue;
        if (uniform(mine.sees_all<1>(pieces + p, 1) ? 1 : 0))
          add_piece<true>(stage, PIECE * p, {}, ring.rule);
        else
          add_piece<false>(stage, PIECE * p, mine.part(pieces[p]), ring.rule);
      }
    });
    if (ring.rule.mode != ADD_KNOWN) sum = sum_of_column(sum);
  }

  // After WEIGH or FIND_SUM: natural logarithm of the sum of the weights.
  float lse(int) const { return sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum); }
  // After WEIGH: outputs over the sum, times a factor.
  void finish(int, float factor) {
    const float by = sum == 0 ? 0 : factor / sum;
#pragma unroll
    for (int f = 0; f < DV / 16; ++f)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) output[f].at[i] = sum == 0 ? 0 : output[f].at[i] * by;
  }
  // After FIND_SUM: makes ready for ADD_KNOWN.
  void know(int, float log2_of_sum, float factor) { reference = log2_of_sum > -INFINITE ? log2_of_sum : 0, sum = factor; }

  void store(Element* to, int64_t head_stride, int heads) const {
    if (matrix_column() < heads) store_row<DV>(to + matrix_column() * head_stride, output, 1);
  }
};
