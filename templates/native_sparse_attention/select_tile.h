// GPU vocabulary: 16 query heads of a token against means of blocks on mma.sync, by one warp: the sums of their softmax weights, and of
// these the importance of blocks. Part of a template, which has defined before: Element and D (a multiple of 32), and included
// mean_terms.h.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/fragment.h"
#include "native_sparse_attention/mean_terms.h"

constexpr int SELECT_HEADS = 16;

struct SelectTile {
  uint32_t query[D / 16][4];
  const Element* means;  // [TERMS][pitch], of which rows of D follow one another
  int64_t pitch;
  float unit;

  // Features are taken in an order in which a lane loads 16 bytes of a row; those of means are, too.
  SelectTile(const Element* queries, int64_t head_stride, int heads, const Element* mean_rows, int64_t term_pitch, float score_unit)
      : means(mean_rows), pitch(term_pitch), unit(score_unit) {
    const int row = lane() / 4, column = lane() % 4 * 8;
#pragma unroll
    for (int half_of = 0; half_of < 2; ++half_of) {
      const int head = row + 8 * half_of;
#pragma unroll
      for (int step = 0; step < D / 32; ++step) {
        Pack<uint32_t, 4> words{};
        if (head < heads) words = load_pack<4>(reinterpret_cast<const uint32_t*>(queries + head * head_stride + 32 * step + column));
        query[2 * step][half_of] = words.at[0], query[2 * step][2 + half_of] = words.at[1];
        query[2 * step + 1][half_of] = words.at[2], query[2 * step + 1][2 + half_of] = words.at[3];
      }
    }
  }

  // Of means [first, first + 8), of which those from `past` on count as minus infinity; to the base 2.
  void find_scores(float (&scores)[4], int first, int past) const {
    const int mine = first + lane() / 4;
    const Element* row = means + (mine < past ? mine : past - 1) * static_cast<int64_t>(D) + lane() % 4 * 8;
    float rest[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = 0;
#pragma unroll
    for (int step = 0; step < D / 32; ++step) {
#pragma unroll
      for (int term = 0; term < TERMS; ++term) {
        const auto words = load_pack<4>(reinterpret_cast<const uint32_t*>(row + term * pitch + 32 * step));
        mma_16x8x16<Element>(term == 0 ? scores : rest, query[2 * step], words.at[0], words.at[1]);
        mma_16x8x16<Element>(term == 0 ? scores : rest, query[2 * step + 1], words.at[2], words.at[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = first + lane() % 4 * 2 + i % 2 < past ? (scores[i] + rest[i] * (1 / FACTOR)) * unit : -INFINITE;
  }

  // Of rows g and g + 8 the logarithm of the sum of 2^score over means [0, past), to the base 2.
  void find_lse(float (&lse)[2], int past) const {
    float reference[2] = {LOWEST, LOWEST}, sum[2] = {0, 0};  // of this lane's means
#pragma unroll 1
    for (int first = 0; first < past; first += 8) {
      float scores[4];
      find_scores(scores, first, past);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float now = larger_of(reference[r], larger_of(scores[2 * r], scores[2 * r + 1]));
        sum[r] = sum[r] * exp2_of(reference[r] - now) + exp2_of(scores[2 * r] - now) + exp2_of(scores[2 * r + 1] - now);
        reference[r] = now;
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float largest = largest_of_fragment_row(reference[r]);
      float all = sum[r] * exp2_of(reference[r] - largest);
      all += shuffle_xor(all, 1);
      all += shuffle_xor(all, 2);
      lse[r] = all == 0 ? -INFINITE : largest + log_of(all) * LOG2_E;
    }
  }

  // Adds to the importance (or, where these are the first heads, sets it) what `heads` rows weigh.
  void add_importance(float* importance, const float (&lse)[2], int heads, int past, bool are_first) const {
#pragma unroll 1
    for (int first = 0; first < past; first += 8) {
      float scores[4];
      find_scores(scores, first, past);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) sum += lane() / 4 + 8 * r < heads ? exp2_of(scores[2 * r + i] - lse[r]) : 0;
        sum = sum_of_fragment_column(sum);
        const int mean = first + lane() % 4 * 2 + i;
        if (lane() < 4 && mean < past) importance[mean] = are_first ? sum : importance[mean] + sum;
      }
    }
  }
};
