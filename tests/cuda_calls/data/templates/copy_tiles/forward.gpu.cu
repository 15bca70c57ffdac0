// out = by * x: fetch brings tiles of x into the workspace, scale brings those into out; both by copies of tiles.
#include "device/gpu.h"
#include "device/sm90.h"
using T = ${ctype(E)};
constexpr int ROWS = ${rows};  // of a tile of 32 columns

// The tile at (row, column) into shared memory; rows beyond the tensor are zeros. One thread asks, all wait.
static inline void fetch_tile(const void* to, const TensorMap& map, int row, int column, int bytes) {
  __shared__ uint64_t arrived;
  const SharedPointer barrier = shared_pointer(&arrived);
  if (thread_x() == 0) {
    barrier_init(barrier, 1);
    fence_barrier_init();
    barrier_arrive_expect(barrier, bytes);
    load_tile(shared_pointer(to), map, barrier, {column, row});
  }
  sync_block();
  barrier_wait(barrier, 0);
}

KERNEL(32, 1) fetch(${parameters('fetch')}) {
  const T* tile = reinterpret_cast<T*>(dynamic_shared());
  const int row = block_y() * ROWS, column = block_x() * 32;
  fetch_tile(tile, x_map, row, column, ROWS * 32 * static_cast<int>(sizeof(T)));
  for (int i = 0; i < ROWS && row + i < x_view.shape[0]; ++i)
    middle[(row + i) * C + column + lane()] = to_float(tile[i * 32 + lane()]);
}

KERNEL(32, 1) scale(${parameters('scale')}) {
  char* bytes = dynamic_shared();
  bytes += -shared_pointer(bytes) % 1024;  // swizzle 128 counts rows from such an address
  const float* tile = reinterpret_cast<float*>(bytes);
  const int row = block_y() * ROWS, column = block_x() * 32;
  fetch_tile(tile, middle_map, row, column, ROWS * 128);
  for (int i = 0; i < ROWS && row + i < N; ++i)
    out[(row + i) * C + column + lane()] = from_float<T>(by * tile[i * 32 + (lane() / 4 ^ i % 8) * 4 + lane() % 4]);
}
