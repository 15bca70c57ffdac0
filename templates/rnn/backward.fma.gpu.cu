// rnn_bwd on GPUs, f32 as it is: backward.mma.gpu.cu with products by fused multiply-adds, whose steps are those of rnn/rnn_floats.h.
#include "device/matrix/float_product.h"
#include "rnn/rnn_gates.h"

using Element = ${ctype(E)};
#include "rnn/rnn_sweep.h"

constexpr int TILE = FLOAT_BLOCK;  // rows and columns of a tile of a product

// remade[direction][row][KEPT][feature]: gates before their functions. A tile is of one kind.
KERNEL(FLOAT_THREADS, 1) gates(${parameters('gates')}) {
  const int64_t direction = block_z(), features = w_hh_view.shape[2], inputs = w_ih_view.shape[2], columns = KEPT * features;
  const int64_t tiles = (features + TILE - 1) / TILE, kind = block_x() / tiles, first = block_x() % tiles * TILE, left = features - first;
  const int64_t first_row = static_cast<int64_t>(block_y()) * TILE, rows = row_count - first_row;
  const int64_t gate = GRU && kind == 3 ? 2 : kind, line = gate * features + first;
  const bool of_x = !(GRU && kind == 3), of_state = !(GRU && kind == 2);
  FloatProduct<true, true> product;
  if (of_x) product.run({xs + first_row * inputs, inputs, rows}, {elements(w_ih_view, direction, line), w_ih_view.strides[1], left}, inputs);
  sync_block();
  if (of_state)
    product.run({before + (direction * row_count + first_row) * features, features, rows}, {elements(w_hh_view, direction, line), w_hh_view.strides[1], left}, features);
  const auto bias = [&](const View& view, int column) {
    return is_given(view) && column < left ? static_cast<const Element*>(view.data)[direction * view.strides[0] + line + column] : 0.0f;
  };
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int column = product.column(j);
    const float both = (of_x ? bias(b_ih_view, column) : 0.0f) + (of_state ? bias(b_hh_view, column) : 0.0f);
#pragma unroll
    for (int i = 0; i < 8; ++i) product.sums[i][j] += both;
  }
  product.store(remade + (direction * row_count + first_row) * columns + kind * features + first, columns, rows, left);
}

// dx: both directions' gates, but a GRU's last kind.
KERNEL(FLOAT_THREADS, 1) inputs(${parameters('inputs')}) {
  const int64_t features = w_hh_view.shape[2], width = KINDS * features, inputs = w_ih_view.shape[2];
  const int64_t first_row = static_cast<int64_t>(block_y()) * TILE, first_column = static_cast<int64_t>(block_x()) * TILE;
  FloatProduct<true, false> product;
  for (int64_t d = 0; d < w_hh_view.shape[0]; ++d) {
    sync_block();
    product.run({da + (d * row_count + first_row) * width, width, row_count - first_row},
                {elements(w_ih_view, d, 0) + first_column, w_ih_view.strides[1], inputs - first_column}, GATES * features);
  }
  product.store(static_cast<Element*>(dx_view.data) + first_row * row_stride + first_column, row_stride, row_count - first_row, inputs - first_column);
}

// Gradients of w_ih (even z) and w_hh. A tile is of one gate.
KERNEL(FLOAT_THREADS, 1) weights(${parameters('weights')}) {
  const bool recurrent = block_z() % 2 == 1;
  const View& to = recurrent ? dw_hh_view : dw_ih_view;
  const int64_t direction = block_z() / 2, features = dw_hh_view.shape[2], width = to.shape[2], tiles = (features + TILE - 1) / TILE;
  const int64_t gate = block_y() / tiles, first = block_y() % tiles * TILE, first_column = static_cast<int64_t>(block_x()) * TILE;
  if (first_column >= width) return;
  const int64_t kind = GRU && recurrent && gate == 2 ? 3 : gate, all = KINDS * features;
  FloatProduct<false, false> product;
  product.run({da + direction * row_count * all + kind * features + first, all, features - first},
              {(recurrent ? before + direction * row_count * features : xs) + first_column, width, width - first_column}, row_count);
  product.store(const_cast<Element*>(elements(to, direction, gate * features + first)) + first_column, to.strides[1], features - first, width - first_column);
}
