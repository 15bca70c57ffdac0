// rnn_bwd on GPUs, f32 as it is: backward.mma.gpu.cu with products by square tiles, whose steps are those of rnn/rnn_floats.h.
#include "device/matrix/square_product.h"
#include "rnn/rnn_gates.h"

using Element = ${ctype(E)};
#include "rnn/rnn_sweep.h"

constexpr int TILE = 128;  // rows and columns of a tile of a product

// gates[direction][row][kind][feature]: before their functions. A tile is of one kind.
KERNEL(SQUARE_THREADS, 2) gates(${parameters('gates')}) {
  const int64_t direction = block_z(), features = w_hh_view.shape[2], inputs = w_ih_view.shape[2], columns = KINDS * features;
  const int64_t tiles = (features + TILE - 1) / TILE, kind = block_x() / tiles, first = block_x() % tiles * TILE, left = features - first;
  const int64_t first_row = static_cast<int64_t>(block_y()) * TILE, rows = row_count - first_row;
  const int64_t gate = GRU && kind == 3 ? 2 : kind, line = gate * features + first;
  const bool of_x = !(GRU && kind == 3), of_state = !(GRU && kind == 2);
  SquareSums<TILE> sums = {};
  for (int of = 0; of < 2; ++of) {
    if (!(of ? of_state : of_x)) continue;
    const View& weights = of ? w_hh_view : w_ih_view;
    const int64_t depth = of ? features : inputs;
    Mover<Element, TILE, true> rows_of{(of ? before + direction * row_count * features : xs) + first_row * depth, depth, rows, {}};
    Mover<Element, TILE, true> lines_of{elements(weights, direction, line), weights.strides[1], left, {}};
    multiply_square<TILE>(sums, rows_of, lines_of, static_cast<int>(depth));
  }
  const auto bias = [&](const View& view, int64_t column) {
    return is_given(view) && column < left ? static_cast<const Element*>(view.data)[direction * view.strides[0] + line + column] : 0.0f;
  };
#pragma unroll
  for (int n = 0; n < TILE / 16; ++n) {
    const int64_t column = n / 4 * 64 + thread_x() % 16 * 4 + n % 4;
    const float both = (of_x ? bias(b_ih_view, column) : 0.0f) + (of_state ? bias(b_hh_view, column) : 0.0f);
#pragma unroll
    for (int m = 0; m < TILE / 16; ++m) sums[m][n] += both;
  }
  store_square<TILE, float>(sums, gates + (direction * row_count + first_row) * columns + kind * features + first, columns, nullptr, 0, rows, left);
}

// dx: both directions' gates, but a GRU's last kind.
KERNEL(SQUARE_THREADS, 2) inputs(${parameters('inputs')}) {
  const int64_t features = w_hh_view.shape[2], width = KINDS * features, inputs = w_ih_view.shape[2];
  const int64_t first_row = static_cast<int64_t>(block_y()) * TILE, first_column = static_cast<int64_t>(block_x()) * TILE;
  SquareSums<TILE> sums = {};
  for (int64_t d = 0; d < w_hh_view.shape[0]; ++d) {
    Mover<Element, TILE, true> rows_of{da + (d * row_count + first_row) * width, width, row_count - first_row, {}};
    Mover<Element, TILE, false> columns_of{elements(w_ih_view, d, 0) + first_column, w_ih_view.strides[1], inputs - first_column, {}};
    multiply_square<TILE>(sums, rows_of, columns_of, static_cast<int>(GATES * features));
  }
  store_square<TILE, Element>(sums, static_cast<Element*>(dx_view.data) + first_row * row_stride + first_column, row_stride, nullptr, 0, row_count - first_row,
                              inputs - first_column);
}

// Gradients of w_ih (even z) and w_hh. A tile is of one gate.
KERNEL(SQUARE_THREADS, 2) weights(${parameters('weights')}) {
  const bool recurrent = block_z() % 2 == 1;
  const View& to = recurrent ? dw_hh_view : dw_ih_view;
  const int64_t direction = block_z() / 2, features = dw_hh_view.shape[2], width = to.shape[2], tiles = (features + TILE - 1) / TILE;
  const int64_t gate = block_y() / tiles, first = block_y() % tiles * TILE, first_column = static_cast<int64_t>(block_x()) * TILE;
  if (first_column >= width) return;
  const int64_t kind = GRU && recurrent && gate == 2 ? 3 : gate, all = KINDS * features;
  Mover<Element, TILE, false> left{da + direction * row_count * all + kind * features + first, all, features - first, {}};
  Mover<Element, TILE, false> right{(recurrent ? before + direction * row_count * features : xs) + first_column, width, width - first_column, {}};
  SquareSums<TILE> sums = {};
  multiply_square<TILE>(sums, left, right, static_cast<int>(row_count));
  store_square<TILE, Element>(sums, const_cast<Element*>(elements(to, direction, gate * features + first)) + first_column, to.strides[1], nullptr, 0,
                              features - first, width - first_column);
}
