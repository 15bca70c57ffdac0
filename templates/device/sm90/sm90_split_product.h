// Hopper vocabulary: products of matrices in f32 on wgmma, as exact as fused multiply-adds, by parts of numbers (device/matrix/float_parts.h).
// The tensor cores cut what they add, so that long sums would drift: sums of 64 depths are added to others in registers.
//
// Tiles are 128 x 128: warpgroup 0 copies, warpgroups 1 and 2 multiply 64 rows each. `work` is as in device/sm90/sm90_product.h, with
//   work.copy_left(tile, step, box, to, full, part)    of that part of the factor
//   work.copy_right(tile, step, box, to, full, part)   `box` 0 or 1
//   work.store(tile, part, sums)
#pragma once
#include "device/matrix/float_parts.h"
#include "device/sm90.h"

constexpr int SPLIT_M = 128, SPLIT_N = 128, SPLIT_DEPTH = 64, SPLIT_STAGES = 2, SPLIT_THREADS = 3 * WARPGROUP;
constexpr uint32_t SPLIT_BOX = SPLIT_DEPTH * 128, SPLIT_STAGE = FLOAT_PARTS * 4 * SPLIT_BOX;
using SplitSums = float[SPLIT_N / 2];

struct SplitStages {
  uint32_t first, stage = 0, parity = 0;
  uint32_t left(int part, int box) const { return first + stage * SPLIT_STAGE + (2 * part + box) * SPLIT_BOX; }
  uint32_t right(int part, int box) const { return left(FLOAT_PARTS + part, box); }
  uint32_t full(uint32_t of) const { return first + SPLIT_STAGES * SPLIT_STAGE + 16 * of; }
  uint32_t empty(uint32_t of) const { return full(of) + 8; }
  void next() {
    if (++stage == SPLIT_STAGES) stage = 0, parity ^= 1;
  }
};

template <class Work> static inline void copy_split_tiles(SplitStages at, const Work& work) {
  for (int i = block_x(); i < work.tiles(); i += grid_x()) {
    const auto tile = work.tile(i);
#pragma unroll 1
    for (int k = 0; k < tile.steps; ++k, at.next()) {
      const uint32_t full = at.full(at.stage);
      barrier_wait(at.empty(at.stage), at.parity ^ 1);
      barrier_arrive_expect(full, SPLIT_STAGE);
#pragma unroll
      for (int part = 0; part < FLOAT_PARTS; ++part)
#pragma unroll
        for (int box = 0; box < 2; ++box) {
          work.copy_left(tile, k, box, at.left(part, box), full, part);
          work.copy_right(tile, k, box, at.right(part, box), full, part);
        }
    }
  }
}

template <bool LEFT_ALONG, bool RIGHT_ALONG, class Work> static inline void make_split_tiles(SplitStages at, int rows, const Work& work) {
  for (int i = block_x(); i < work.tiles(); i += grid_x()) {
    const auto tile = work.tile(i);
    SplitSums total = {};
#pragma unroll 1
    for (int k = 0; k < tile.steps; ++k, at.next()) {
      barrier_wait(at.full(at.stage), at.parity);
      SplitSums sums;
      keep_in_place(sums);
      wgmma_fence();
#pragma unroll
      for (int pair = 0; pair < PART_PRODUCTS; ++pair) {
        const uint32_t left = at.left(FIRST_PART[pair], rows), right = at.right(SECOND_PART[pair], 0);
        const uint64_t a = LEFT_ALONG ? depth_major<128>(left) : row_major<128>(left, SPLIT_DEPTH);
        const uint64_t b = RIGHT_ALONG ? depth_major<128>(right) : row_major<128>(right, SPLIT_DEPTH);
#pragma unroll
        for (int s = 0; s < SPLIT_DEPTH / 16; ++s)
          wgmma<bfloat16, SPLIT_N, !LEFT_ALONG, !RIGHT_ALONG>(sums, moved(a, s * (LEFT_ALONG ? 32 : 2048)), moved(b, s * (RIGHT_ALONG ? 32 : 2048)), pair > 0 || s > 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      keep_in_place(sums);
      if (thread_x() % WARPGROUP == 0) barrier_arrive(at.empty(at.stage));
#pragma unroll
      for (int j = 0; j < SPLIT_N / 2; ++j) total[j] += sums[j];
    }
    work.store(tile, rows, total);
  }
}

// Every tile has steps. Shared memory: 1024 + SPLIT_STAGES * (SPLIT_STAGE + 16) bytes.
template <bool LEFT_ALONG, bool RIGHT_ALONG, class Work> static inline void multiply_split_on_hopper(const Work& work) {
  const SplitStages at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (uint32_t stage = 0; stage < SPLIT_STAGES; ++stage) {
      barrier_init(at.full(stage), 1);
      barrier_init(at.empty(stage), 2);
    }
    fence_barrier_init();
  }
  sync_block();
  if (warpgroup() == 0) {
    give_registers<88>();
    if (thread_x() == 0) copy_split_tiles(at, work);
  } else {
    take_registers<208>();
    make_split_tiles<LEFT_ALONG, RIGHT_ALONG>(at, warpgroup() - 1, work);
  }
}

// Rows 64 part .. of a tile that begins at `to`, of a matrix that has `rows` rows and `columns`, which are even, from there on.
static inline void store_split_tile(const SplitSums& sums, int part, float* to, int64_t stride, int64_t rows, int64_t columns) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = part * 64 + warp() % 4 * 16 + 8 * h + lane() / 4, column = lane() % 4 * 2;
    if (row >= rows) continue;
    float* const at = to + row * stride + column;
#pragma unroll
    for (int j = 0; j < SPLIT_N / 8; ++j)
      if (column + 8 * j < columns) store_pack(at + 8 * j, Pack<float, 2>{{sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]}});
  }
}
