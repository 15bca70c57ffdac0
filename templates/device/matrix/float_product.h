// GPU vocabulary: a tile of a product in f32 by fused multiply-adds, by a block of 256 threads. Tiles of both factors come by asynchronous
// copies, STAGES - 1 steps ahead; element by element where a factor's rows are no multiples of 16 bytes.
#pragma once
#include "device/matrix/factor.h"

// FLOAT_BLOCK x FLOAT_BLOCK of left times right. ALONG: neighbours of a factor lie along the depth in memory, not across it.
constexpr int FLOAT_BLOCK = 128, FLOAT_DEPTH = 16, FLOAT_STAGES = 4, FLOAT_THREADS = 256;

// A factor's tile in shared memory: [across][depth], whose pitch spreads the banks, or [depth][across]. A thread has eight of its places
// across: LANES of a warp lie side by side.
template <bool ALONG, int LANES> struct FloatTile {
  static constexpr int PITCH = ALONG ? FLOAT_DEPTH + 4 : FLOAT_BLOCK, FLOATS = (ALONG ? FLOAT_BLOCK : FLOAT_DEPTH) * PITCH;
  float* at;

  // Which of the tile's places across is the thread's i-th; first: its warp's; lane: of LANES.
  static int place(int first, int lane, int i) { return first + (ALONG ? lane + LANES * i : 4 * lane + i / 4 * (4 * LANES) + i % 4); }

  // Starts copying depths k .. of a factor; `quads`: 16 bytes at once.
  void copy(const Factor<float>& from, int64_t k, int64_t depths, bool quads) const {
    constexpr int A_ROW = (ALONG ? FLOAT_DEPTH : FLOAT_BLOCK) / 4;
#pragma unroll
    for (int chunk = thread_x(); chunk < FLOAT_BLOCK * FLOAT_DEPTH / 4; chunk += FLOAT_THREADS) {
      const int row = chunk / A_ROW, column = chunk % A_ROW * 4;
      const int64_t depth = k + (ALONG ? column : row), across = ALONG ? row : column;
      const float* const first = from.first + (ALONG ? across * from.stride + depth : depth * from.stride + across);
      float* const to = at + row * PITCH + column;
      if (quads) {
        copy_async_16(shared_pointer(to), first, across < from.across && depth < depths);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          to[i] = across + (ALONG ? 0 : i) < from.across && depth + (ALONG ? i : 0) < depths ? first[i] : 0.0f;
      }
    }
  }
  // Depths k .. k + 3 of the thread's eight places.
  void load(float (&to)[4][8], int k, int first, int lane) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int i = ALONG ? n : n % 2 * 4, depth = ALONG ? k : k + n / 2;
      const Pack<float, 4> four = load_pack<4>(at + (ALONG ? place(first, lane, i) * PITCH + depth : depth * PITCH + place(first, lane, i)));
#pragma unroll
      for (int j = 0; j < 4; ++j) (ALONG ? to[j][i] : to[n / 2][i + j]) = four.at[j];
    }
  }
};

template <bool LEFT_ALONG, bool RIGHT_ALONG> struct FloatProduct {
  using LeftTile = FloatTile<LEFT_ALONG, 4>;
  using RightTile = FloatTile<RIGHT_ALONG, 8>;
  static constexpr int STAGE = LeftTile::FLOATS + RightTile::FLOATS;
  float sums[8][8] = {};

  static int row(int i) { return LeftTile::place(warp() / 2 * 32, lane() / 8, i); }
  static int column(int j) { return RightTile::place(warp() % 2 * 64, lane() % 8, j); }

  void multiply(const LeftTile& left, const RightTile& right) {
#pragma unroll
    for (int k = 0; k < FLOAT_DEPTH; k += 4) {
      float a[4][8], b[4][8];
      left.load(a, k, warp() / 2 * 32, lane() / 8);
      right.load(b, k, warp() % 2 * 64, lane() % 8);
#pragma unroll
      for (int d = 0; d < 4; ++d)
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[i][j] += a[d][i] * b[d][j];
    }
  }

  template <bool ALONG> static bool has_quads(const Factor<float>& factor, int64_t depths) {
    return reinterpret_cast<uint64_t>(factor.first) % 16 == 0 && factor.stride % 4 == 0 && (ALONG ? depths : factor.across) % 4 == 0;
  }

  // sums += left right, over `depths`. Shared memory: FLOAT_STAGES * STAGE floats; the block syncs before another product.
  void run(const Factor<float>& left, const Factor<float>& right, int64_t depths) {
    float* const memory = reinterpret_cast<float*>(dynamic_shared());
    const int steps = static_cast<int>((depths + FLOAT_DEPTH - 1) / FLOAT_DEPTH);
    const bool left_quads = has_quads<LEFT_ALONG>(left, depths), right_quads = has_quads<RIGHT_ALONG>(right, depths);
    const auto start_copy = [&](int step) {
      if (step < steps) {
        float* const stage = memory + step % FLOAT_STAGES * STAGE;
        LeftTile{stage}.copy(left, static_cast<int64_t>(step) * FLOAT_DEPTH, depths, left_quads);
        RightTile{stage + LeftTile::FLOATS}.copy(right, static_cast<int64_t>(step) * FLOAT_DEPTH, depths, right_quads);
      }
      copy_async_commit();
    };
    for (int step = 0; step < FLOAT_STAGES - 1; ++step) start_copy(step);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      copy_async_wait<FLOAT_STAGES - 2>();
      sync_block();  // the step is there for all, and all are done with the one whose place is copied to next
      start_copy(step + FLOAT_STAGES - 1);
      float* const stage = memory + step % FLOAT_STAGES * STAGE;
      multiply(LeftTile{stage}, RightTile{stage + LeftTile::FLOATS});
    }
  }

  // `out`: the block's first element; rows and columns that the matrix has from there on.
  void store(float* out, int64_t stride, int64_t rows, int64_t columns) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (row(i) >= rows) continue;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (column(j) < columns) out[row(i) * stride + column(j)] = sums[i][j];
    }
  }
};
