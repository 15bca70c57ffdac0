// GPU vocabulary: what a mask of blocks leaves, as lists of steps that one launch makes.
#pragma once
#include "device/attention/attention.h"
#include "device/attention/attention_rows.h"

// Of each block along dimension ALONG of a mask, 2 (queries) or 3 (keys), or of two that follow one another (`together`), the steps along the other one
// that are on. A block has whole steps.
template <int ALONG> struct StepList {
  static_assert(ALONG == 2 || ALONG == 3);
  int32_t* words;  // [batches of the mask][its heads][blocks][2][row_words]: numbers of the steps that are on; of each step how many such come before it
  const View& mask;
  int row_words;
  int block;          // tokens a block
  int steps_a_block;  // along the other dimension
  int together = 1;   // blocks of a row of the list; of 2 bits 30 and 31 of a step's number say which of them is off there
  static constexpr int OFF = 30, NUMBER = (1 << OFF) - 1;

  int32_t* row(int64_t number) const { return words + number * 2 * row_words; }
  int32_t* row_of(int64_t batch, int64_t head, int token) const {
    return row(((mask.shape[0] == 1 ? 0 : batch) * mask.shape[1] + (mask.shape[1] == 1 ? 0 : head)) * rows_a_head() + token / (block * together));
  }
  int64_t rows_a_head() const { return (mask.shape[ALONG] + together - 1) / together; }
  // Of steps [first, end) those that are on, as places in a row of the list.
  RowRange places(const int32_t* row, int first, int end) const {
    if (first >= end) return {0, 0};
    return {row[row_words + first], row[row_words + end]};
  }

  // All rows, by a grid that has a warp for each, THREADS threads a block.
  template <int THREADS> void make() const {
    const int64_t number = int64_t{block_x()} * (THREADS / WARP) + warp(), head = number / rows_a_head(), at = number % rows_a_head() * together;
    if (head >= mask.shape[0] * mask.shape[1]) return;
    const int64_t from = row_offset(mask, head / mask.shape[1], head % mask.shape[1], ALONG == 2 ? at : 0) + (ALONG == 3 ? at : 0);
    const int64_t along = ALONG == 2 ? mask.strides[2] : 1, across = ALONG == 2 ? 1 : mask.strides[2];
    make_row(row(number), static_cast<const bool*>(mask.data) + from, static_cast<int>(mask.shape[5 - ALONG]), across, at + 1 < mask.shape[ALONG] ? along : -1);
  }

  // A row, by a warp, of `blocks` elements of the mask. Loads of AT_ONCE elements a lane are on their way at once. second: from a block to the one that is
  // together with it; -1: there is none.
  void make_row(int32_t* numbers, const bool* on, int blocks, int64_t stride, int64_t second) const {
    constexpr int AT_ONCE = 4;
    int32_t* const before = numbers + row_words;
    int found = 0;  // blocks that are on
#pragma unroll 1
    for (int first = 0; first < blocks; first += AT_ONCE * WARP) {
      int seen[AT_ONCE];  // bit 0: of the first block, bit 1: of the second one
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int number = first + i * WARP + lane();
        seen[i] = number < blocks && on[number * stride] ? 1 : 0;
        if (together == 2 && second >= 0 && number < blocks && on[number * stride + second]) seen[i] |= 2;
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int is_on = seen[i] != 0 ? 1 : 0, off = together == 2 ? 3 & ~seen[i] : 0;
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
          if (is_on) numbers[place + step] = static_cast<int32_t>(static_cast<uint32_t>(number * steps_a_block + step) | static_cast<uint32_t>(off) << OFF);
        }
      }
    }
    if (lane() == 0) before[blocks * steps_a_block] = found * steps_a_block;
  }
};
