// A tile of whichever tensor the map is of, into out.
#include "device/gpu.h"
#include "device/sm90.h"

KERNEL(32, 1) pick(${parameters('pick')}) {
  __shared__ uint64_t arrived;
  const float* tile = reinterpret_cast<float*>(dynamic_shared());
  const SharedPointer barrier = shared_pointer(&arrived);
  const int row = block_y() * 4, column = block_x() * 32;
  if (thread_x() == 0) {
    barrier_init(barrier, 1);
    fence_barrier_init();
    barrier_arrive_expect(barrier, 4 * 32 * 4);
    load_tile(shared_pointer(tile), y_map, barrier, {column, row});
  }
  sync_block();
  barrier_wait(barrier, 0);
  for (int i = 0; i < 4 && row + i < N; ++i) out[(row + i) * C + column + lane()] = tile[i * 32 + lane()];
}
