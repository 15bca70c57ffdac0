// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: which pairs of tokens a warp has where no levels are needed. Part of
// chunk_sm90_key_delta_prepare.h.
#pragma once

// Which tiles of 16 later tokens by 8 earlier ones a warp of eight has: up to three side by side.
struct FlatTiles {
  int row, column, count;
  explicit FlatTiles(int number)
      : row(number < 3 ? 48 : number < 5 ? 32 : number < 7 ? 16 : 0),
        column(number < 3 ? 24 * number : number < 5 ? 24 * (number - 3) : number < 7 ? 16 * (number - 5) : 0),
        count(number == 2 || number > 4 ? 2 : 3) {}
};
typedef float FlatSums[3][4];

// Calls use(t, s, of queries, of keys) for each pair that a warp has made, also where s > t: then they are of no meaning.
template <int TURNS, class Use> static inline void use_flat_sums(const FlatSums (&of_queries)[TURNS], const FlatSums (&of_keys)[TURNS], Use use) {
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const FlatTiles tiles(uniform(warp()) + turn * PREPARE_WARPS);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (n >= tiles.count) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) use(tiles.row + lane() / 4 + 8 * (i / 2), tiles.column + 8 * n + lane() % 4 * 2 + i % 2, of_queries[turn][n][i], of_keys[turn][n][i]);
    }
  }
}
