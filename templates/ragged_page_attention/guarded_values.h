// GPU vocabulary of ragged_page_attention: values of a tile that products cannot carry, since one is infinite or NaN and some row does not see it. Part of
// a template, which has defined before: Cached, CachedTile, D16, SUB, SLICES, TILES, ROWS, ROW_TILES.
#pragma once

// The 16 bytes at a place in shared memory whose generic address is `memory + (at - start)`.
struct TileBytes {
  const char* memory;
  SharedPointer start;
  const char* at(SharedPointer place) const { return memory + (place - start); }
};

// Whether no number of keys [16 first, 16 (first + TILES)) is infinite or NaN. Every lane calls it.
static inline bool are_finite(const CachedTile& tile, const TileBytes& bytes, int first) {
  bool wrong = false;
#pragma unroll 1
  for (int i = lane(); i < TILES * 16 * CachedTile::CHUNKS; i += WARP) {
    const Cached* x = reinterpret_cast<const Cached*>(bytes.at(tile.at(16 * first + i / CachedTile::CHUNKS, i % CachedTile::CHUNKS)));
#pragma unroll
    for (int k = 0; k < 16 / static_cast<int>(sizeof(Cached)); ++k) wrong = wrong || to_float(x[k]) * 0 != 0;
  }
  return !any_in_warp(wrong);
}

// A warp's memory for adding up such values: of each of its rows 32 outputs, and SUB weights behind them.
constexpr int GUARDED_PITCH = 68;

// Outputs of 32 features from `feature` on += weights times values of SUB keys from row `key` of the tile on, where a value behind a weight of 0 counts as 0.
static __attribute__((noinline)) void add_guarded_columns(float* area, CachedTile tile, TileBytes bytes, int key, int feature) {
  constexpr int IN_CHUNK = 16 / static_cast<int>(sizeof(Cached));
#pragma unroll 1
  for (int j = 0; j < SUB && feature + lane() < D16; ++j) {
    const char* const at = bytes.at(tile.at(key + j, (feature + lane()) / IN_CHUNK));
    const float x = to_float(reinterpret_cast<const Cached*>(at)[(feature + lane()) % IN_CHUNK]);
#pragma unroll 1
    for (int row = 0; row < ROWS; ++row) {
      const float w = area[row * GUARDED_PITCH + 32 + j];
      if (w != 0) area[row * GUARDED_PITCH + lane()] += w * x;
    }
  }
}

// The same for all outputs of a warp. It is rare, and goes through memory so that it takes no registers from what is frequent.
static inline void add_guarded(Outputs& o, const Scores& s, const CachedTile& tile, const TileBytes& bytes, int first, float* area) {
  const int own = lane() % 4 * 2;
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 4; ++i) area[(8 * r + own + i % 2) * GUARDED_PITCH + 32 + 16 * m + lane() / 4 + i / 2 * 8] = s[m][r][i];
#pragma unroll
  for (int f = 0; f < SLICES; f += 2) {
    const auto each = [&](auto visit) {
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (f + k < SLICES) visit(area[(8 * r + own + i % 2) * GUARDED_PITCH + 16 * k + CachedTile::output_feature(i / 2)], o[f + k < SLICES ? f + k : 0][r][i]);
    };
    each([](float& there, float& here) { there = here; });
    sync_warp();
    add_guarded_columns(area, tile, bytes, 16 * first, 16 * f);
    sync_warp();
    each([](float& there, float& here) { here = there; });
    sync_warp();
  }
}
