// rnn, forward, on Hopper, 16-bit types: forward.mma.gpu.cu's steps behind products on wgmma.
#include "device/sm90/sm90_product.h"

using Element = ${ctype(E)};

struct InputTile { int row, column, direction, steps; };

// products[row of x][direction][gate and feature] = x w_ih^T: of a GRU's n, too, without biases. Rows are b * tokens + t, and 64 of them are
// of one b, or there is one.
struct Inputs {
  const TensorMap &x, &weights;
  float* products;
  int rows, tokens, lines, directions, depth;
  int down() const { return (rows + HOPPER_M - 1) / HOPPER_M; }
  int across() const { return (lines + HOPPER_N - 1) / HOPPER_N; }
  int tiles() const { return down() * across() * directions; }
  InputTile tile(int i) const {
    const HopperPlace place(i, down(), across() * directions);
    return {place.m * HOPPER_M, place.n % across() * HOPPER_N, place.n / across(), (depth + HOPPER_DEPTH - 1) / HOPPER_DEPTH};
  }
  void copy_left(const InputTile& tile, int step, int box, uint32_t to, uint32_t full) const {
    const int row = tile.row + 64 * box;
    load_tile(to, x, full, {step * HOPPER_DEPTH, row % tokens, row / tokens});
  }
  void copy_right(const InputTile& tile, int step, int box, uint32_t to, uint32_t full) const {
    load_tile(to, weights, full, {step * HOPPER_DEPTH, tile.column + 64 * box, tile.direction});
  }
  void store(const InputTile& tile, int part, HopperSums& sums) const {
    const int64_t columns = static_cast<int64_t>(directions) * lines;
    store_hopper_tile(sums, part, products + tile.row * columns + tile.direction * lines + tile.column, columns, rows - tile.row, lines - tile.column);
  }
};

KERNEL(HOPPER_THREADS, 1) inputs(${parameters('inputs')}) {
  multiply_on_hopper<Element, true, true>(Inputs{x_map, w_ih_map, products, static_cast<int>(row_count), static_cast<int>(x_view.shape[1]),
                                                 static_cast<int>(w_ih_view.shape[1]), static_cast<int>(w_ih_view.shape[0]), static_cast<int>(x_view.shape[2])});
}
#include "rnn/rnn_steps.h"
