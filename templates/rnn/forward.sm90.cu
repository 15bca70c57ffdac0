// rnn, forward, on Hopper: products on wgmma, and the steps behind them.
#include "device/sm90/sm90_product.h"

using Element = ${ctype(E)};
$if split
#include "rnn/rnn_split.h"
$else
#include "rnn/rnn_hopper.h"
$end

struct InputTile { int row, column, direction, steps; };

// products[row of x][direction][gate and feature] = x w_ih^T: of a GRU's n, too, without biases. Rows are b * tokens + t, and 64 of them are
// of one b, or there is one; in f32 in the order of memory.
struct Inputs {
  const TensorMap &x, &weights;
  float* products;
  int rows, tokens, lines, directions, depth;
  int down() const { return (rows + HOPPER_M - 1) / HOPPER_M; }
  int across() const { return (lines + TILE_N - 1) / TILE_N; }
  int tiles() const { return down() * across() * directions; }
  InputTile tile(int i) const {
    const HopperPlace place(i, down(), across() * directions);
    return {place.m * HOPPER_M, place.n % across() * TILE_N, place.n / across(), (depth + HOPPER_DEPTH - 1) / HOPPER_DEPTH};
  }
  void copy_left(const InputTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    const int row = tile.row + 64 * box;
$if split
    load_tile(to, x, full, {step * HOPPER_DEPTH, row, part});
$else
    load_tile(to, x, full, {step * HOPPER_DEPTH, row % tokens, row / tokens});
$end
  }
  void copy_right(const InputTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    load_tile(to, weights, full, {step * HOPPER_DEPTH, tile.column + 64 * box, part * directions + tile.direction});
  }
  void store(const InputTile& tile, int part, TileSums& sums) const {
    const int64_t columns = static_cast<int64_t>(directions) * lines;
    store_tile(sums, part, products + tile.row * columns + tile.direction * lines + tile.column, columns, rows - tile.row, lines - tile.column);
  }
};

KERNEL(TILE_THREADS, 1) inputs(${parameters('inputs')}) {
  multiply_tiles<true, true>(Inputs{${split ? 'parts_x' : 'x'}_map, ${split ? 'parts_ih' : 'w_ih'}_map, products, static_cast<int>(row_count), static_cast<int>(x_view.shape[1]),
                                                 static_cast<int>(w_ih_view.shape[1]), static_cast<int>(w_ih_view.shape[0]), static_cast<int>(x_view.shape[2])});
}
$if split

// The parts of x and of the weights, a row a block.
KERNEL(128, 1) split(${parameters('split')}) {
  const int64_t width = x_view.shape[2];
  if (block_x() < row_count)
    put_row(parts_x, row_count * width, block_x() * width, static_cast<const float*>(x_view.data) + block_x() * row_stride, width);
  else
    split_weights_row(parts_ih, w_ih_view, block_x() - row_count);
}
$end
$if clusters
#include "rnn/rnn_cluster.h"
$else
#include "rnn/rnn_steps.h"
$end
