// Hopper vocabulary: products of matrices by tiles of 128 x 256: warpgroup 0 copies, warpgroups 1 and 2 multiply 64 rows each. Blocks of 384
// threads go on from tile to tile, so that copies for the next begin while the last is stored.
//
// A product is an object `work` with
//   work.tiles()                                    how many there are
//   work.tile(i)                                    an object; its `steps`: of 64 depths
//   work.copy_left(tile, step, box, to, full)       starts copying 64 rows of the left factor, `box` 0 or 1 of the tile's, as box [64][64] with
//   work.copy_right(tile, step, box, to, full)      swizzle 128; and 64 columns of the right one, `box` 0 to 3
//   work.store(tile, part, sums)                    rows 64 part .. of the tile, as wgmma has them
// ALONG: neighbours of a factor lie along the depth in memory, not across it.
#pragma once
#include "device/gpu.h"
#include "device/sm90.h"

constexpr int HOPPER_M = 128, HOPPER_N = 256, HOPPER_DEPTH = 64, HOPPER_STAGES = 4, HOPPER_THREADS = 3 * WARPGROUP;
constexpr uint32_t HOPPER_BOX = HOPPER_DEPTH * 128, HOPPER_STAGE = 6 * HOPPER_BOX;
using HopperSums = float[HOPPER_N / 2];

// What is where in shared memory, and which stage is in turn.
struct HopperStages {
  uint32_t first, stage = 0, parity = 0;
  uint32_t left(int box) const { return first + stage * HOPPER_STAGE + box * HOPPER_BOX; }
  uint32_t right(int box) const { return left(2 + box); }
  uint32_t full(uint32_t of) const { return first + HOPPER_STAGES * HOPPER_STAGE + 16 * of; }
  uint32_t empty(uint32_t of) const { return full(of) + 8; }
  void next() {
    if (++stage == HOPPER_STAGES) stage = 0, parity ^= 1;
  }
};

template <class Work> static inline void copy_hopper_tiles(HopperStages at, const Work& work) {
  for (int i = block_x(); i < work.tiles(); i += grid_x()) {
    const auto tile = work.tile(i);
#pragma unroll 1
    for (int k = 0; k < tile.steps; ++k, at.next()) {
      const uint32_t full = at.full(at.stage);
      barrier_wait(at.empty(at.stage), at.parity ^ 1);
      barrier_arrive_expect(full, HOPPER_STAGE);
#pragma unroll
      for (int box = 0; box < 2; ++box) work.copy_left(tile, k, box, at.left(box), full);
#pragma unroll
      for (int box = 0; box < 4; ++box) work.copy_right(tile, k, box, at.right(box), full);
    }
  }
}

template <class T, bool LEFT_ALONG, bool RIGHT_ALONG, class Work>
static inline void make_hopper_tiles(HopperStages at, int part, const Work& work) {
  for (int i = block_x(); i < work.tiles(); i += grid_x()) {
    const auto tile = work.tile(i);
    HopperSums sums;
    uint32_t last = 0;
    keep_in_place(sums);
#pragma unroll 1
    for (int k = 0; k < tile.steps; ++k, at.next()) {
      barrier_wait(at.full(at.stage), at.parity);
      const uint64_t a = LEFT_ALONG ? depth_major<128>(at.left(part)) : row_major<128>(at.left(part), HOPPER_DEPTH);
      const uint64_t b = RIGHT_ALONG ? depth_major<128>(at.right(0)) : row_major<128>(at.right(0), HOPPER_DEPTH);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < HOPPER_DEPTH / 16; ++s)
        wgmma<T, HOPPER_N, !LEFT_ALONG, !RIGHT_ALONG>(sums, moved(a, s * (LEFT_ALONG ? 32 : 2048)), moved(b, s * (RIGHT_ALONG ? 32 : 2048)), k > 0 || s > 0);
      wgmma_commit();
      if (k > 0) {
        wgmma_wait<1>();
        if (thread_x() % WARPGROUP == 0) barrier_arrive(at.empty(last));
      }
      last = at.stage;
    }
    wgmma_wait<0>();
    keep_in_place(sums);
    if (thread_x() % WARPGROUP == 0) barrier_arrive(at.empty(last));
    work.store(tile, part, sums);
  }
}

// Every tile has steps. Shared memory: 1024 + HOPPER_STAGES * (HOPPER_STAGE + 16) bytes.
template <class T, bool LEFT_ALONG, bool RIGHT_ALONG, class Work> static inline void multiply_on_hopper(const Work& work) {
  const HopperStages at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (uint32_t stage = 0; stage < HOPPER_STAGES; ++stage) {
      barrier_init(at.full(stage), 1);
      barrier_init(at.empty(stage), 2);
    }
    fence_barrier_init();
  }
  sync_block();
  if (warpgroup() == 0) {
    give_registers<88>();
    if (thread_x() == 0) copy_hopper_tiles(at, work);
  } else {
    take_registers<208>();
    make_hopper_tiles<T, LEFT_ALONG, RIGHT_ALONG>(at, warpgroup() - 1, work);
  }
}

// Which tile of a product of `across` by `down` tiles is the i-th: eight rows of tiles together, so that they share what they read.
struct HopperPlace {
  int m, n;
  HopperPlace(int i, int down, int across) {
    constexpr int TOGETHER = 8;
    const int first = i / (TOGETHER * across) * TOGETHER, rows = down - first < TOGETHER ? down - first : TOGETHER, within = i - first * across;
    m = first + within % rows, n = within / rows;
  }
};

// Rows 64 part .. of a tile that begins at `to`, of a matrix that has `rows` rows and `columns`, which are even, from there on.
template <class Out> static inline void store_hopper_tile(const HopperSums& sums, int part, Out* to, int64_t stride, int64_t rows, int64_t columns) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = part * 64 + warp() % 4 * 16 + 8 * h + lane() / 4, column = lane() % 4 * 2;
    if (row >= rows) continue;
    Out* const at = to + row * stride + column;
#pragma unroll
    for (int j = 0; j < HOPPER_N / 8; ++j)
      if (column + 8 * j < columns) store_pack(at + 8 * j, Pack<Out, 2>{{from_float<Out>(sums[4 * j + 2 * h]), from_float<Out>(sums[4 * j + 2 * h + 1])}});
  }
}
