// Hopper vocabulary: how high tiles of a grouped product should be, so that those who take them are done at about the same time.
#pragma once

// The most rows a tile should have, HIGHEST at most and LOWEST at least in steps of STEP, where `takers` take tiles in turn: the rounds that
// takes, times the mean tile. All lanes of a warp call it and get the same. Of many groups the mean is enough: no choice is made.
template <int STEP, int LOWEST, int HIGHEST>
static inline int balanced_rows(const int32_t* sizes, int groups, int rows, int columns, int takers) {
  constexpr int OWN = 32;  // rows' time that each tile takes whatever its height
  constexpr int MOST_GROUPS = 512;
  if (groups > MOST_GROUPS) return HIGHEST;
  constexpr int CHOICES = (HIGHEST - LOWEST) / STEP + 1;  // HIGHEST, HIGHEST - STEP, ...
  int height = 0, bands[CHOICES] = {};
#pragma unroll 1
  for (int group = lane(); group < groups; group += WARP) {
    int size = sizes ? sizes[group] : rows;
    size = size < 0 ? 0 : size < rows ? size : rows;
    height += (size + STEP - 1) / STEP * STEP;
#pragma unroll
    for (int i = 0; i < CHOICES; ++i) bands[i] += (size + HIGHEST - i * STEP - 1) / (HIGHEST - i * STEP);
  }
  height = __reduce_add_sync(0xffffffff, height);
  const float taker = reciprocal(static_cast<float>(takers));
  int best = HIGHEST;
  float least = INFINITE;
#pragma unroll
  for (int i = 0; i < CHOICES; ++i) {
    const float count = static_cast<float>(__reduce_add_sync(0xffffffff, bands[i])), tiles = count * static_cast<float>(columns);
    const float rounds = static_cast<float>(static_cast<int>(tiles * taker + 0.9999f));
    const float time = tiles > 0 ? rounds * (static_cast<float>(height) * reciprocal(count) + OWN) : 0;
    if (time < least * 0.98f) least = time, best = HIGHEST - i * STEP;
  }
  return best;
}
