// c = a b on Hopper: a block makes 128 x 128 elements. Warpgroup 0 copies tiles of 64 products, warpgroups 1 and 2 multiply 64 rows each.
// The blocks of a cluster lie one above the other: each copies its part of b's tile to all of them.
#include "device/gpu.h"
#include "device/sm90.h"

$require 2 % blocks == 0
using Element = ${ctype(E)};
constexpr int BLOCKS = ${blocks}, STAGES = ${stages};
constexpr bool A_IN_REGISTERS = ${a_in == 'registers'};
constexpr uint32_t A_BYTES = 128 * 64 * 2, B_BYTES = 64 * 128 * 2, HALF_B = B_BYTES / 2, STAGE = A_BYTES + B_BYTES;

struct Places {  // in shared memory
  uint32_t tiles, c, barriers;
  uint32_t a(int stage) const { return tiles + stage * STAGE; }
  uint32_t b(int stage) const { return a(stage) + A_BYTES; }  // two halves of 64 columns
  uint32_t full(int stage) const { return barriers + 16 * stage; }
  uint32_t empty(int stage) const { return full(stage) + 8; }
};

static inline void copy_tiles(const Places& at, const TensorMap& a, const TensorMap& b, int row, int column, int steps) {
  const int rank = cluster_rank();
  for (int k = 0; k < steps; ++k) {
    const int stage = k % STAGES;
    barrier_wait_cluster(at.empty(stage), k / STAGES % 2 ^ 1);
    barrier_arrive_expect(at.full(stage), STAGE);
    load_tile(at.a(stage), a, at.full(stage), {k * 64, row});
    for (int half_of = 0; half_of < 2; ++half_of) {
      if (BLOCKS == 1)
        load_tile(at.b(stage) + half_of * HALF_B, b, at.full(stage), {column + half_of * 64, k * 64});
      else if (half_of == rank)
        load_tile_multicast(at.b(stage) + half_of * HALF_B, b, at.full(stage), {column + half_of * 64, k * 64}, 3, Keep::long_time);
    }
  }
}

// Rows 64 part ... of the block. A from shared memory, or through registers.
static inline void multiply(const Places& at, int part, int steps, float (&d)[64]) {
  for (int k = 0; k < steps; ++k) {
    const int stage = k % STAGES;
    barrier_wait(at.full(stage), k / STAGES % 2);
    const uint32_t rows = at.a(stage) + part * 64 * 128;
    uint32_t a[4][4];
    for (int i = 0; A_IN_REGISTERS && i < 4; ++i) {
      const int row = warp() % 4 * 16 + lane() % 16, chunk = 2 * i + lane() / 16;
      const uint32_t from = rows + row * 128 + (chunk ^ row % 8) * 16;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3]) : "r"(from) : "memory");
    }
    keep_in_place(d);
    wgmma_fence();
    for (int i = 0; i < 4; ++i) {
      const uint64_t b = moved(row_major<128>(at.b(stage), 64), i * 16 * 128);
      if constexpr (A_IN_REGISTERS)
        wgmma<Element, 128, true>(d, a[i], b, k + i > 0);
      else
        wgmma<Element, 128, false, true>(d, moved(depth_major<128>(rows), i * 32), b, k + i > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(d);
    if (thread_x() % WARPGROUP < BLOCKS) barrier_arrive_in_block(at.empty(stage), thread_x() % WARPGROUP);
  }
}

static inline void write(const Places& at, const TensorMap& c, int part, int row, int column, const float (&d)[64]) {
  const uint32_t own = at.c + part * 64 * 128 * 2;  // two halves of 64 columns
  for (int j = 0; j < 16; j += 2) {
    const uint32_t r[4] = {pack_pair<Element>(d[4 * j], d[4 * j + 1]), pack_pair<Element>(d[4 * j + 2], d[4 * j + 3]),
                           pack_pair<Element>(d[4 * j + 4], d[4 * j + 5]), pack_pair<Element>(d[4 * j + 6], d[4 * j + 7])};
    const int to_row = warp() % 4 * 16 + lane() % 16, chunk = j + lane() / 16;
    store_matrices(own + chunk / 8 * 8192 + to_row * 128 + (chunk % 8 ^ to_row % 8) * 16, r);
  }
  fence_async();
  sync_some(1 + part, WARPGROUP);
  if (warp() % 4 == 0 && elect_one()) {
    for (int half_of = 0; half_of < 2; ++half_of) store_tile(c, {column + half_of * 64, row + part * 64}, own + half_of * 8192);
    store_commit();
    store_wait<0>();
  }
}

KERNEL(384, 1) gemm(${parameters('gemm')}) {
  const uint32_t shared = (static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared())) + 1023) / 1024 * 1024;
  const Places at{shared, shared + STAGES * STAGE, shared + STAGES * STAGE + 32768};
  const int row = block_x() * 128, column = block_y() * 128, steps = static_cast<int>((K + 63) / 64);
  if (thread_x() == 0) {
    prefetch_tensor_map(a_map);
    prefetch_tensor_map(b_map);
    prefetch_tensor_map(c_map);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(at.full(stage), 1);
      barrier_init(at.empty(stage), 2 * BLOCKS);
    }
    fence_barrier_init();
  }
  sync_cluster();
  if (warpgroup() == 0) {
    give_registers<40>();
    if (warp() == 0 && elect_one()) copy_tiles(at, a_map, b_map, row, column, steps);
  } else {
    take_registers<232>();
    float d[64];
    multiply(at, warpgroup() - 1, steps, d);
    write(at, c_map, warpgroup() - 1, row, column, d);
  }
  sync_warp();
  sync_cluster();  // no block leaves while others still arrive at its barriers
}
