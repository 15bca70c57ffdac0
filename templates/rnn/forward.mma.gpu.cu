// rnn, forward, on GPUs with mma.sync, 16-bit types: the inputs' products for all tokens; then the steps in one cooperative launch.
#include "device/matrix/mma_product.h"

using Element = ${ctype(E)};
constexpr int BLOCK = 128;  // rows and columns of a tile of the inputs' products
using Product = BlockProduct<Element, BLOCK, BLOCK, 32, 4, 2, 4, true, true>;

// products[row of x][direction][gate][feature] = x w_ih^T: of a GRU's n, too, without biases.
KERNEL(Product::THREADS, 1) inputs(${parameters('inputs')}) {
  const int64_t depth = x_view.shape[2], columns = w_ih_view.shape[0] * w_ih_view.shape[1];
  const int64_t first_column = static_cast<int64_t>(block_x()) * BLOCK, first_row = static_cast<int64_t>(block_y()) * BLOCK;
  Product product;
  product.run({static_cast<const Element*>(x_view.data) + first_row * row_stride, row_stride, row_count - first_row},
              {static_cast<const Element*>(w_ih_view.data) + first_column * w_ih_view.strides[1], w_ih_view.strides[1], columns - first_column}, depth);
  product.store<false, float>(products + first_row * columns + first_column, columns, nullptr, 0, row_count - first_row, columns - first_column);
}
#include "rnn/rnn_steps.h"
