// GPU vocabulary: what native_sparse_attention/select_tile.h is for mma.sync, on matrix instructions of a wave (MFMA, WMMA): scores are [head][mean].
// Part of a template, which has defined before: Element and D (a multiple of 16).
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/wave_rows.h"
#include "native_sparse_attention/mean_terms.h"

constexpr int SELECT_HEADS = 16;

struct SelectTile {
  using Row = OwnRow<Element, D, true>;
  Row query;
  const Element* means;  // [TERMS][pitch], of which rows of D follow one another
  int64_t pitch;
  float unit;

  // Heads that are not there are the first one.
  SelectTile(const Element* queries, int64_t head_stride, int heads, const Element* mean_rows, int64_t term_pitch, float score_unit)
      : query(queries + (matrix_column() < heads ? matrix_column() * head_stride : 0)), means(mean_rows), pitch(term_pitch), unit(score_unit) {}

  // Of means [first, first + 16), of which those from `past` on count as minus infinity; to the base 2.
  void find_scores(Sums& scores, int first, int past) const {
    const int mine = first + matrix_column();
    const Element* const row = means + (mine < past ? mine : past - 1) * static_cast<int64_t>(D);
    Sums rest = {};
    scores = {};
#pragma unroll
    for (int slice = 0; slice < Row::SLICES; ++slice) {
      part();
#pragma unroll
      for (int term = 0; term < TERMS; ++term)
        multiply<Element>(term == 0 ? scores : rest, query.of(slice), Row::load(row + term * pitch, slice));
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) scores.at[i] = mine < past ? (scores.at[i] + rest.at[i] * (1 / FACTOR)) * unit : -INFINITE;
  }

  // Of each row the logarithm of the sum of 2^score over means [0, past), to the base 2.
  void find_lse(float (&lse)[SUMS], int past) const {
    float reference[SUMS], sum[SUMS];  // of this lane's means
#pragma unroll
    for (int i = 0; i < SUMS; ++i) reference[i] = LOWEST, sum[i] = 0;
#pragma unroll 1
    for (int first = 0; first < past; first += 16) {
      Sums scores;
      find_scores(scores, first, past);
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        const float now = larger_of(reference[i], scores.at[i]);
        sum[i] = sum[i] * exp2_of(reference[i] - now) + exp2_of(scores.at[i] - now);
        reference[i] = now;
      }
    }
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      float largest = reference[i];
#pragma unroll
      for (int mask = 1; mask < 16; mask *= 2) largest = larger_of(largest, exchange_wave(largest, mask));
      float all = sum[i] * exp2_of(reference[i] - largest);
#pragma unroll
      for (int mask = 1; mask < 16; mask *= 2) all += exchange_wave(all, mask);
      lse[i] = all == 0 ? -INFINITE : largest + log_of(all) * LOG2_E;
    }
  }

  // Adds to the importance (or, where these are the first heads, sets it) what `heads` rows weigh.
  void add_importance(float* importance, const float (&lse)[SUMS], int heads, int past, bool are_first) const {
#pragma unroll 1
    for (int first = 0; first < past; first += 16) {
      Sums scores;
      find_scores(scores, first, past);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sum += matrix_row(i) < heads ? exp2_of(scores.at[i] - lse[i]) : 0;
      sum = sum_of_column(sum);
      const int mean = first + matrix_column();
      if (wave_lane() < 16 && mean < past) importance[mean] = are_first ? sum : importance[mean] + sum;
    }
  }
};
