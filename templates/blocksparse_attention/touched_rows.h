// CPU vocabulary: an item's own part of dq, of which only those blocks of queries count that the item adds to. Rows of the others are neither
// cleared nor read: of a sparse mask these are most.
#pragma once
#include "device/cpu.h"

// One item's part for the rows of one group of heads.
struct RowPart {
  float* dq;         // [row][COLUMNS]
  int32_t* touched;  // [block of queries of the mask]

  // Before something is added to rows [first, end), all that the block of queries has.
  template <int64_t COLUMNS> void touch(int64_t block, int64_t first, int64_t end) const {
    if (touched[block]) return;
    touched[block] = 1;
    __builtin_memset(dq + first * COLUMNS, 0, (end - first) * COLUMNS * sizeof(float));
  }
};

// touched[split][sequence][head group][block of queries] of all items.
struct TouchedRows {
  int32_t* touched;
  int64_t sequences, head_groups, blocks;

  int32_t* of(int64_t split, int64_t sequence, int64_t head_group) const {
    return touched + ((split * sequences + sequence) * head_groups + head_group) * blocks;
  }
  bool holds(int64_t split, int64_t sequence, int64_t head_group, int64_t block) const {
    return block < blocks && of(split, sequence, head_group)[block];
  }
};
