// Queries of a warpgroup of ragged_page_attention on Hopper in registers. Part of attend.sm90.cu, whose constants it uses.
#pragma once

constexpr int SLICES = D / 16;  // of features, as products take them
// Of items that are not shared, as many as there are registers for: each product would read them again from shared memory.
constexpr int KEPT_SLICES = GROUPS == 3 ? 0 : !BYTES ? SLICES : CAPPED ? 4 : 5;
constexpr bool KEEPS_QUERIES = KEPT_SLICES == SLICES;  // all

struct KeptQueries {
  uint32_t slice[KEPT_SLICES + 1][4];

  // Of the warpgroup whose queries begin at `place`; a warp has 16 rows from `first_row` on.
  void load(uint32_t place, int first_row) {
    const int lane_here = static_cast<int>(keep_here(thread_x()) % WARP), row = first_row + lane_here % 16;
    const uint32_t chunk = lane_here / 16;
#pragma unroll
    for (int i = 0; i < KEPT_SLICES; ++i) load_matrices(slice[i], place + i / 4 * Q_BOX + row * 128 + ((i % 4 * 2 + chunk) ^ row % 8) * 16);
  }
};
