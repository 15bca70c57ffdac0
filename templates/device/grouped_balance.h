// GPU vocabulary: how high tiles of a grouped product should be, so that those who take them are done at about the same time.
#pragma once

// The most rows a tile should have, HIGHEST at most and LOWEST at least in steps of STEP, where `takers` take tiles in turn: the rounds that
// takes, times the mean tile. All lanes of a warp call it and get the same. Of many groups the mean is enough: no choice is made.
template <int STEP, int LOWEST, int HIGHEST>
static inline int balanced_rows(const int32_t* sizes, int groups, int rows, int columns, int takers) {
  constexpr int OWN = 32;  // rows' time that each tile takes whatever its height
  constexpr int MOST_GROUPS = 512;
  if (groups > MOST_GROUPS) return HIGHEST;
  int best = HIGHEST;
  float least = INFINITE;
#pragma unroll 1
  for (int most = HIGHEST; most >= LOWEST; most -= STEP) {
    int bands = 0, height = 0;
    for (int group = lane(); group < groups; group += WARP) {
      int size = sizes ? sizes[group] : rows;
      size = size < 0 ? 0 : size < rows ? size : rows;
      bands += (size + most - 1) / most;
      height += (size + STEP - 1) / STEP * STEP;
    }
#pragma unroll
    for (int other = WARP / 2; other > 0; other /= 2) bands += shuffle_xor(bands, other), height += shuffle_xor(height, other);
    const float tiles = static_cast<float>(bands) * static_cast<float>(columns);
    const float rounds = static_cast<float>(static_cast<int>(tiles / static_cast<float>(takers) + 0.9999f));
    const float time = tiles > 0 ? rounds * (static_cast<float>(height) / static_cast<float>(bands) + OWN) : 0;
    if (time < least * 0.98f) least = time, best = most;
  }
  return best;
}
