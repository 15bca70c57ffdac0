// GPU vocabulary: what a mask of blocks leaves, as lists of steps that one launch makes.
#pragma once
#include "device/attention/attention.h"
#include "device/attention/attention_rows.h"

// Of each block along dimension ALONG of a mask, 2 (queries) or 3 (keys), the steps along the other one that are on. A block has whole steps.
template <int ALONG> struct StepList {
  static_assert(ALONG == 2 || ALONG == 3);
  int32_t* words;  // [batches of the mask][its heads][blocks][2][row_words]: numbers of the steps that are on; of each step how many such come before it
  const View& mask;
  int row_words;
  int block;          // tokens a block
  int steps_a_block;  // along the other dimension

  int32_t* row(int64_t number) const { return words + number * 2 * row_words; }
  int32_t* row_of(int64_t batch, int64_t head, int token) const {
    return row(((mask.shape[0] == 1 ? 0 : batch) * mask.shape[1] + (mask.shape[1] == 1 ? 0 : head)) * mask.shape[ALONG] + token / block);
  }
  int64_t rows_a_head() const { return mask.shape[ALONG]; }
  // Of steps [first, end) those that are on, as places in a row of the list.
  RowRange places(const int32_t* row, int first, int end) const {
    if (first >= end) return {0, 0};
    return {row[row_words + first], row[row_words + end]};
  }

  // All rows, by a grid that has a warp for each, THREADS threads a block.
  template <int THREADS> void make() const {
    const int64_t number = int64_t{block_x()} * (THREADS / WARP) + warp(), head = number / rows_a_head(), at = number % rows_a_head();
    if (head >= mask.shape[0] * mask.shape[1]) return;
    const int64_t from = row_offset(mask, head / mask.shape[1], head % mask.shape[1], ALONG == 2 ? at : 0) + (ALONG == 3 ? at : 0);
    const int64_t across = ALONG == 2 ? 1 : mask.strides[2];
    make_row(row(number), static_cast<const bool*>(mask.data) + from, static_cast<int>(mask.shape[5 - ALONG]), across);
  }

  // A row, by a warp, of `blocks` elements of the mask. Loads of AT_ONCE elements a lane are on their way at once.
  void make_row(int32_t* numbers, const bool* on, int blocks, int64_t stride) const {
    constexpr int AT_ONCE = 4;
    int32_t* const before = numbers + row_words;
    int found = 0;  // blocks that are on
#pragma unroll 1
    for (int first = 0; first < blocks; first += AT_ONCE * WARP) {
      int seen[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int number = first + i * WARP + lane();
        seen[i] = number < blocks && on[number * stride] ? 1 : 0;
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int is_on = seen[i];
        int up_to = is_on;  // of lanes up to this one
#pragma unroll
        for (int by = 1; by < WARP; by *= 2) {
          const int other = shuffle(up_to, lane() < by ? lane() : lane() - by);
          if (lane() >= by) up_to += other;
        }
        const int number = first + i * WARP + lane(), place = (found + up_to - is_on) * steps_a_block;
        found += shuffle(up_to, WARP - 1);
        if (number >= blocks) continue;
#pragma unroll 1
        for (int step = 0; step < steps_a_block; ++step) {
          before[number * steps_a_block + step] = place + step * is_on;
          if (is_on) numbers[place + step] = number * steps_a_block + step;
        }
      }
    }
    if (lane() == 0) before[blocks * steps_a_block] = found * steps_a_block;
  }
};
