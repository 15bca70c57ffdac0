// Hopper vocabulary of the attention kernels: a warp's outputs on their way through shared memory. Copies bring them out of there while the
// warp is at its next tile.
#pragma once
#include "device/sm90/sm90_attention_rows.h"

constexpr int SENT_BOXES = 2;  // of 16 rows of 64 16-bit elements, 128 bytes each, swizzled as tile copies want it, at once
constexpr uint32_t SENT_BOX = 16 * 128, SENT_BYTES = SENT_BOXES * SENT_BOX;

// Boxes [FIRST, FIRST + SENT_BOXES) of a warp's outputs, of 64 columns each, times its rows' factors, to `memory`.
template <class T, int FIRST, int N> static inline void stage_rows(uint32_t memory, const float (&o)[N], const float (&factor)[2]) {
  const int row = lane() % 16;
#pragma unroll
  for (int j = 64 * FIRST; j < 2 * N && j < 64 * (FIRST + SENT_BOXES); j += 16) {  // by 16 columns: four 8 x 8 matrices
    uint32_t w[4] = {};
#pragma unroll
    for (int i = 0; i < 4 && j + i / 2 * 8 < 2 * N; ++i) {
      const int e = j / 2 + i / 2 * 4 + i % 2 * 2;
      w[i] = pack_pair<T>(o[e] * factor[i % 2], o[e + 1] * factor[i % 2]);
    }
    store_matrices(memory + (j / 64 - FIRST) * SENT_BOX + row * 128 + ((j % 64 / 8 + lane() / 16) ^ row % 8) * 16, w);
  }
}

// A warp's outputs, rows of `token` on; rows after the tensor's last are not written. All lanes call it, the first starts the copies.
template <class T, int FIRST = 0, int N>
static inline void send_rows(const TensorMap& map, uint32_t memory, const float (&o)[N], const float (&factor)[2], int head, int token, int batch) {
  if (lane() == 0) store_wait_read<0>();
  sync_warp();
  stage_rows<T, FIRST>(memory, o, factor);
  fence_async();
  sync_warp();
  if (lane() == 0) {
#pragma unroll
    for (int box = FIRST; 64 * box < 2 * N && box < FIRST + SENT_BOXES; ++box)
      store_tile(map, {64 * box, head, token, batch}, memory + (box - FIRST) * SENT_BOX);
    store_commit();
  }
  if constexpr (32 * (FIRST + SENT_BOXES) < N) send_rows<T, FIRST + SENT_BOXES>(map, memory, o, factor, head, token, batch);
}
