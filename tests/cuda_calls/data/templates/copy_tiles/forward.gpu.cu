// out = by * x: fetch brings tiles of x into the workspace, scale brings those into out; both by the tensor memory accelerator.
#include "device/gpu.h"
using T = ${ctype(E)};
constexpr int ROWS = ${rows};  // of a tile of 32 columns

// The tile at (row, column) into shared memory; rows beyond the tensor are zeros. One thread asks, all wait.
static inline void fetch_tile(void* to, const TensorMap& map, int row, int column, int bytes) {
  __shared__ uint64_t arrived;
  const uint32_t barrier = shared_address(&arrived);
  if (thread_x() == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" : : "r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 : : "r"(shared_address(to)), "l"(&map), "r"(column), "r"(row), "r"(barrier) : "memory");
  }
  sync_block();
  asm volatile("{\n.reg .pred done;\nwaiting:\nmbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n@!done bra waiting;\n}" : : "r"(barrier) : "memory");
}

KERNEL(32, 1) fetch(${parameters('fetch')}) {
  T* tile = reinterpret_cast<T*>(dynamic_shared());
  const int row = block_y() * ROWS, column = block_x() * 32;
  fetch_tile(tile, x_map, row, column, ROWS * 32 * static_cast<int>(sizeof(T)));
  for (int i = 0; i < ROWS && row + i < x_view.shape[0]; ++i)
    middle[(row + i) * C + column + lane()] = to_float(tile[i * 32 + lane()]);
}

// The 128-byte swizzle: 16-byte piece p of row r lies at p ^ (r % 8).
KERNEL(32, 1) scale(${parameters('scale')}) {
  float* tile = reinterpret_cast<float*>(dynamic_shared());
  const int row = block_y() * ROWS, column = block_x() * 32;
  fetch_tile(tile, middle_map, row, column, ROWS * 128);
  for (int i = 0; i < ROWS && row + i < N; ++i)
    out[(row + i) * C + column + lane()] = from_float<T>(by * tile[i * 32 + (((lane() / 4) ^ (i % 8)) * 4 + lane() % 4)]);
}
