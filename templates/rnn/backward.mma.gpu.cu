// rnn_bwd on GPUs with mma.sync, 16-bit types. Gates are made again, and the gradients of x and the weights, by products over all tokens;
// between them the steps in one cooperative launch.
#include "device/matrix/mma_product.h"
#include "rnn/rnn_gates.h"

using Element = ${ctype(E)};
#include "rnn/rnn_sweep.h"

constexpr int BLOCK = 128;  // rows and columns of a tile of a product
template <bool LEFT_ALONG, bool RIGHT_ALONG> using Product = BlockProduct<Element, BLOCK, BLOCK, 32, 4, 2, 4, LEFT_ALONG, RIGHT_ALONG>;

// remade[direction][row][KEPT][feature]: gates before their functions. A tile is of one kind.
KERNEL((Product<true, true>::THREADS), 1) gates(${parameters('gates')}) {
  const int64_t direction = block_z(), features = w_hh_view.shape[2], inputs = w_ih_view.shape[2], columns = KEPT * features;
  const int64_t tiles = (features + BLOCK - 1) / BLOCK, kind = block_x() / tiles, first = block_x() % tiles * BLOCK, left = features - first;
  const int64_t first_row = static_cast<int64_t>(block_y()) * BLOCK, rows = row_count - first_row;
  const int64_t gate = GRU && kind == 3 ? 2 : kind, line = gate * features + first;
  const bool of_x = !(GRU && kind == 3), of_state = !(GRU && kind == 2);
  Product<true, true> product;
  const auto bias = [&](const View& view, int64_t column) {
    return is_given(view) && column < left ? to_float(static_cast<const Element*>(view.data)[direction * view.strides[0] + line + column]) : 0.0f;
  };
#pragma unroll
  for (int n = 0; n < product.N_TILES; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t column = product.column + 8 * n + lane() % 4 * 2 + i;
      const float both = (of_x ? bias(b_ih_view, column) : 0.0f) + (of_state ? bias(b_hh_view, column) : 0.0f);
#pragma unroll
      for (int m = 0; m < product.M_TILES; ++m) product.sums[m][n][i] = product.sums[m][n][2 + i] = both;
    }
  if (of_x)
    product.run({reinterpret_cast<const Element*>(xs) + first_row * inputs, inputs, rows}, {elements(w_ih_view, direction, line), w_ih_view.strides[1], left}, inputs);
  sync_block();
  if (of_state)
    product.run({reinterpret_cast<const Element*>(before) + (direction * row_count + first_row) * features, features, rows},
                {elements(w_hh_view, direction, line), w_hh_view.strides[1], left}, features);
  product.template store<false, float>(remade + (direction * row_count + first_row) * columns + kind * features + first, columns, nullptr, 0, rows, left);
}

// dx: both directions' gates, but a GRU's last kind.
KERNEL((Product<true, false>::THREADS), 1) inputs(${parameters('inputs')}) {
  const int64_t features = w_hh_view.shape[2], width = KINDS * features, inputs = w_ih_view.shape[2];
  const int64_t first_row = static_cast<int64_t>(block_y()) * BLOCK, first_column = static_cast<int64_t>(block_x()) * BLOCK;
  Product<true, false> product;
  for (int64_t d = 0; d < w_hh_view.shape[0]; ++d) {
    sync_block();
    product.run({reinterpret_cast<const Element*>(da) + (d * row_count + first_row) * width, width, row_count - first_row},
                {elements(w_ih_view, d, 0) + first_column, w_ih_view.strides[1], inputs - first_column}, GATES * features);
  }
  product.template store<false, Element>(static_cast<Element*>(dx_view.data) + first_row * row_stride + first_column, row_stride, nullptr, 0,
                                         row_count - first_row, inputs - first_column);
}

// Gradients of w_ih (even z) and w_hh. A tile is of one gate.
KERNEL((Product<false, false>::THREADS), 1) weights(${parameters('weights')}) {
  const bool recurrent = block_z() % 2 == 1;
  const View& to = recurrent ? dw_hh_view : dw_ih_view;
  const int64_t direction = block_z() / 2, features = dw_hh_view.shape[2], width = to.shape[2], tiles = (features + BLOCK - 1) / BLOCK;
  const int64_t gate = block_y() / tiles, first = block_y() % tiles * BLOCK, first_column = static_cast<int64_t>(block_x()) * BLOCK;
  if (first_column >= width) return;
  const int64_t kind = GRU && recurrent && gate == 2 ? 3 : gate, all = KINDS * features;
  const Element* const right = recurrent ? reinterpret_cast<const Element*>(before) + direction * row_count * features : reinterpret_cast<const Element*>(xs);
  Product<false, false> product;
  product.run({reinterpret_cast<const Element*>(da) + direction * row_count * all + kind * features + first, all, features - first},
              {right + first_column, width, width - first_column}, row_count);
  product.template store<false, Element>(const_cast<Element*>(elements(to, direction, gate * features + first)) + first_column, to.strides[1], nullptr, 0,
                                         features - first, width - first_column);
}
