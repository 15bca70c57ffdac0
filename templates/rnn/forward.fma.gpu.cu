// rnn, forward, on GPUs, f32 as it is: the inputs' products for all tokens by tiles; then the steps in one cooperative launch.
#include "device/matrix/float_product.h"

using Element = ${ctype(E)};

// products[row of x][direction][gate][feature] = x w_ih^T: of a GRU's n, too, without biases.
KERNEL(FLOAT_THREADS, 1) inputs(${parameters('inputs')}) {
  const int64_t columns = w_ih_view.shape[0] * w_ih_view.shape[1];
  const int64_t first_column = static_cast<int64_t>(block_x()) * FLOAT_BLOCK, first_row = static_cast<int64_t>(block_y()) * FLOAT_BLOCK;
  FloatProduct<true, true> product;
  product.run({static_cast<const Element*>(x_view.data) + first_row * row_stride, row_stride, row_count - first_row},
              {static_cast<const Element*>(w_ih_view.data) + first_column * w_ih_view.strides[1], w_ih_view.strides[1], columns - first_column}, x_view.shape[2]);
  product.store(products + first_row * columns + first_column, columns, row_count - first_row, columns - first_column);
}
#include "rnn/rnn_steps.h"
