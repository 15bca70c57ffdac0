// Hopper vocabulary: 64 rows of 64 16-bit elements of a result, 128 bytes each, on their way through shared memory, swizzled as tile copies want it.
#pragma once

constexpr int STORED_ROWS = 64;
constexpr uint32_t STORED_BYTES = STORED_ROWS * 128;

// BUFFERS such buffers for a warpgroup, used in turn; `count`: how often. Its barrier is `barrier`.
template <class T, int BUFFERS = 2> struct StoreBuffers {
  uint32_t memory;
  int barrier;
  uint32_t count = 0;
  uint32_t current() const { return memory + count % BUFFERS * STORED_BYTES; }

  // Until the buffer that is next in turn has been read by the copy from it.
  void open() const {
    if (thread_x() % WARPGROUP == 0) store_wait_read<BUFFERS - 1>();
    sync_some(barrier, WARPGROUP);
  }
  // Element pairs r of four 8 x 8 matrices, as wgmma's sums lie in registers: matrices i = 0..3 hold columns 8 j + 8 (i / 2) .. and rows
  // 16 w + 8 (i % 2) .. of the result (TRANSPOSED: columns and rows exchanged), w: the warp in its warpgroup.
  template <bool TRANSPOSED> void put(int j, const uint32_t (&r)[4]) const {
    const int i = lane() / 8, along = 8 * (j + i / 2), across = warp() % 4 * 16 + i % 2 * 8;
    const int row = (TRANSPOSED ? along : across) + lane() % 8, chunk = (TRANSPOSED ? across : along) / 8;
    const uint32_t to = current() + row * 128 + (chunk ^ row % 8) * 16;
    if constexpr (TRANSPOSED)
      store_matrices_transposed(to, r);
    else
      store_matrices(to, r);
  }
  // Sends the buffer off: `whole` by one thread, which starts a tile copy from it; else its first rows and columns are stored to `to`.
  template <class Copy> void send(bool whole, T* to, int64_t stride, int rows, int64_t columns, Copy copy) {
    if (whole) fence_async();
    sync_some(barrier, WARPGROUP);
    const int thread = thread_x() % WARPGROUP;
    if (whole) {
      if (thread == 0) copy(current());
    } else {
#pragma unroll 1
      for (int row = thread / 8; row < STORED_ROWS && row < rows && thread % 8 * 8 < columns; row += WARPGROUP / 8) {
        const uint32_t from = current() + row * 128 + (thread % 8 ^ row % 8) * 16;
        Pack<uint32_t, 4> x;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(from) : "memory");
        store_pack(reinterpret_cast<uint32_t*>(to + row * stride + thread % 8 * 8), x);
      }
    }
    if (thread == 0) store_commit();
    ++count;
  }
  void finish() const {
    if (thread_x() % WARPGROUP == 0) store_wait<0>();
  }
};
