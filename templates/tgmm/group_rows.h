// GPU vocabulary: which rows of the matrix of all rows are a group's, found by a warp from group sizes that lie on the device.
#pragma once

struct GroupRows { int begin, end; };

// All lanes of the warp call it and get the same. Sizes are cut off at the last row; `sizes` none: every group has all rows, counted from 0.
static inline GroupRows rows_of_group(const int32_t* sizes, int group, int rows) {
  if (!sizes) return {0, rows};
  const uint32_t all = static_cast<uint32_t>(rows);
  uint32_t before = 0;
  for (int other = lane(); other < group; other += WARP) {
    before += static_cast<uint32_t>(sizes[other] < 0 ? 0 : sizes[other] < rows ? sizes[other] : rows);
    if (before > all) before = all;
  }
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) {
    before += shuffle_xor(before, mask);
    if (before > all) before = all;
  }
  const uint32_t own = static_cast<uint32_t>(sizes[group] < 0 ? 0 : sizes[group] < rows ? sizes[group] : rows);
  const uint32_t end = before + own < all ? before + own : all;
  return {static_cast<int>(before), static_cast<int>(end)};
}
