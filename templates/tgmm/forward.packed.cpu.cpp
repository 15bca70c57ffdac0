// tgmm, packed: a block of the matrix of one group, summed over the group's rows in register tiles.
#include "device/cpu.h"
#include "device/matrix_groups.h"
#include "device/narrow.h"
#include "device/product.h"

using Lhs = ${ctype(E)};
using Dout = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int64_t BLOCK_M = ${block_m};  // rows of out a work item
constexpr int64_t BLOCK_N = ${block_n};  // columns of out a work item
constexpr int64_t BLOCK_K = ${block_k};  // most rows of lhs and dout between two visits of a register tile
using Shape = ProductShape<${panel}, ${vectors}, BLOCK_K>;

// Where finished tiles go.
struct Store {
  Out* out;
  int64_t stride;

  void operator()(int64_t row, int64_t column, int64_t rows, int64_t columns, const float* c) const {
    for (int64_t i = 0; i < rows; ++i, c += Shape::WIDTH)
      for (int64_t j = 0; j < columns; j += LANES) store_some(out + (row + i) * stride + column + j, load_floats(c + j), columns - j);
  }
};

// A block of out: `left` has its rows side by side, `right` its columns; `steps` rows of both are summed over.
template <class Left, class Right>
static void multiply(const Left* left, int64_t left_stride, const Right* right, int64_t right_stride, int64_t rows, int64_t columns,
                     int64_t steps, float* scratch, const Store& store) {
  multiply_block<Shape>(LeftColumns<Left, Shape::ROWS, BLOCK_K>{left, left_stride}, RightRows<Right, Shape::WIDTH>{right, right_stride},
                        rows, columns, steps, scratch, store);
}

// Item (x, y, z): block x of columns and y of rows of the matrix of group z; batched form: the batch's groups counted through.
static void tgmm(${parameters('tgmm')}, const Group& group) {
  const int last = static_cast<int>(lhs_view.rank) - 1;
  const RowBlock rows = group_sizes ? RowGroups{group_sizes, group_count, row_count}[group.z + group_offset] : RowBlock{0, row_count, 0};
  const auto matrix = [&](const View& view) {
    return last == 3 ? group.z / group_count * view.strides[0] + group.z % group_count * view.strides[1] : 0;
  };
  const int64_t row = group.y * BLOCK_M, column = group.x * BLOCK_N, steps = rows.end - rows.begin;
  const int64_t out_stride = out_view.strides[last == 3 ? 2 : 1], lhs_stride = lhs_view.strides[last - 1],
                dout_stride = dout_view.strides[last - 1];
  const Lhs* lhs = static_cast<const Lhs*>(lhs_view.data) + matrix(lhs_view) + rows.begin * lhs_stride;
  const Dout* dout = static_cast<const Dout*>(dout_view.data) + matrix(dout_view) + rows.begin * dout_stride;
  Out* out = static_cast<Out*>(out_view.data) + (last == 3 ? matrix(out_view) : group.z * out_view.strides[0]);
  const Store store{out + row * out_stride + column, out_stride};
  const int64_t height = least_of(BLOCK_M, out_rows - row), width = least_of(BLOCK_N, out_columns - column);
  float* scratch = static_cast<float*>(group.shared);
  if (transpose_rhs)
    multiply(dout + row, dout_stride, lhs + column, lhs_stride, height, width, steps, scratch, store);
  else
    multiply(lhs + row, lhs_stride, dout + column, dout_stride, height, width, steps, scratch, store);
}
