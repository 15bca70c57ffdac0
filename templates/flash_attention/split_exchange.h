// GPU vocabulary of flash decoding: what the warps of a block tell each other through shared memory. Part of forward.split.gpu.cu, which
// has its shapes and places.
#pragma once

// What the warps of a block tell each other.
struct Exchange {
  static constexpr int TOGETHER = ROW_TILES < 2 ? 1 : 2;  // products whose weights a lane moves at once
  char* memory;

  uint32_t* weights(int w, int m, int r, int step) const {
    uint32_t* const all = reinterpret_cast<uint32_t*>(memory + WEIGHTS + step % 2 * WEIGHTS_BYTES);
    return all + ((w * TILES + m) * ROW_TILES + r) * 2 * WARP + lane() * 2 * TOGETHER;
  }
  Softmax* softmax(int w) const { return reinterpret_cast<Softmax*>(memory + SOFTMAXES) + w * ROWS; }
  // The warp of a team that has this warp's rows.
  static int fellow(int team) { return team * TEAM_WARPS + warp() % TEAM_WARPS; }

  void put_weights(const Weights& p, int step) const {
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int r = 0; r < ROW_TILES; r += TOGETHER) {
        Pack<uint32_t, 2 * TOGETHER> x;
#pragma unroll
        for (int i = 0; i < 2 * TOGETHER; ++i) x.at[i] = p[m][r + i / 2][i % 2];
        store_pack(weights(warp(), m, r, step), x);
      }
  }
  void get_weights(Weights& p, int team, int step) const {
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int r = 0; r < ROW_TILES; r += TOGETHER) {
        const Pack<uint32_t, 2 * TOGETHER> x = load_pack<2 * TOGETHER>(weights(fellow(team), m, r, step));
#pragma unroll
        for (int i = 0; i < 2 * TOGETHER; ++i) p[m][r + i / 2][i % 2] = x.at[i];
      }
  }

  void put_softmax(const PerRow& reference, const PerRow& sum) const {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (lane() < 4) softmax(warp())[r * 8 + lane() * 2 + i] = {reference[r][i], sum[r][i]};
  }
  // The teams' largest scores become the block's.
  void agree(PerRow& largest) const {
    put_softmax(largest, largest);
    sync_block();
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int t = 0; t < TEAMS; ++t) largest[r][i] = larger_of(largest[r][i], softmax(fellow(t))[r * 8 + lane() % 4 * 2 + i].reference);
  }
  // Of a row of the block.
  Softmax merged(int row) const {
    Softmax all = softmax(row / ROWS)[row % ROWS];
#pragma unroll
    for (int t = 1; t < TEAMS; ++t) all.sum += softmax(t * TEAM_WARPS + row / ROWS)[row % ROWS].sum;
    return all;
  }
};
