// rnn, forward, on GPUs, f32 as it is: the inputs' products for all tokens by square tiles; then the steps in one cooperative launch.
#include "device/matrix/square_product.h"

using Element = ${ctype(E)};
constexpr int TILE = 128;  // rows and columns of a tile of the inputs' products

// products[row of x][direction][gate][feature] = x w_ih^T: of a GRU's n, too, without biases.
KERNEL(SQUARE_THREADS, 2) inputs(${parameters('inputs')}) {
  const int64_t columns = w_ih_view.shape[0] * w_ih_view.shape[1];
  const int64_t first_column = static_cast<int64_t>(block_x()) * TILE, first_row = static_cast<int64_t>(block_y()) * TILE;
  Mover<Element, TILE, true> left{static_cast<const Element*>(x_view.data) + first_row * row_stride, row_stride, row_count - first_row, {}};
  Mover<Element, TILE, true> right{static_cast<const Element*>(w_ih_view.data) + first_column * w_ih_view.strides[1], w_ih_view.strides[1], columns - first_column, {}};
  SquareSums<TILE> sums = {};
  multiply_square<TILE>(sums, left, right, static_cast<int>(x_view.shape[2]));
  store_square<TILE, float>(sums, products + first_row * columns + first_column, columns, nullptr, 0, row_count - first_row, columns - first_column);
}
#include "rnn/rnn_steps.h"
