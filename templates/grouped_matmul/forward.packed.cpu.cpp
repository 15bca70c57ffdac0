// grouped_matmul, forward, packed: a block of rows of one group times a block of columns, in register tiles.
#include "device/cpu.h"
#include "device/matrix_groups.h"
#include "device/narrow.h"
#include "device/product.h"

using Lhs = ${ctype(E)};
using Rhs = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int64_t BLOCK_M = ${block_m};  // rows a work item, at most
constexpr int64_t BLOCK_N = ${block_n};  // columns a work item
constexpr int64_t BLOCK_K = ${block_k};  // most steps between two visits of a register tile
using Shape = ProductShape<${panel}, ${vectors}, BLOCK_K>;

// Where finished tiles go: out, with what exists added.
struct Store {
  Out* out;
  const Out* existing;
  int64_t stride, existing_stride;

  void operator()(int64_t row, int64_t column, int64_t rows, int64_t columns, const float* c) const {
    for (int64_t i = 0; i < rows; ++i, c += Shape::WIDTH) {
      Out* to = out + (row + i) * stride + column;
      const Out* from = existing ? existing + (row + i) * existing_stride + column : nullptr;
      for (int64_t j = 0; j < columns; j += LANES) {
        const Floats sum = load_floats(c + j);
        store_some(to + j, from ? sum + load_some(from + j, columns - j) : sum, columns - j);
      }
    }
  }
};

// Rows of no group that rhs holds.
static void store_nothing(const Store& store, int64_t rows, int64_t columns) {
  constexpr float zeros[Shape::WIDTH] = {};
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; column += Shape::WIDTH)
      store(row, column, 1, least_of(Shape::WIDTH, columns - column), zeros);
}

// Item (x, y, z): block x of columns, block y of rows; batched form: of matrix z, the batch's groups counted through.
static void grouped_matmul(${parameters('grouped_matmul')}, const Group& group) {
  const int last = static_cast<int>(lhs_view.rank) - 1;
  const int64_t depth = lhs_view.shape[last];
  RowBlock rows{0, 0, 0};
  if (group_sizes) {
    if (!RowGroups{group_sizes, group_count, row_count}.find_block(group.y, BLOCK_M, Shape::ROWS, rows)) return;
  } else {
    rows = RowGroups::part({0, row_count, 0}, group.y, group.grid_y, Shape::ROWS);
  }
  const auto place = [&](const View& view, int64_t row) {
    const int64_t matrix = last == 3 ? group.z / group_count * view.strides[0] + group.z % group_count * view.strides[1] : 0;
    return matrix + row * view.strides[last - 1];
  };
  const int64_t column = group.x * BLOCK_N, columns = least_of(BLOCK_N, column_count - column), height = rows.end - rows.begin;
  const Store store{static_cast<Out*>(out_view.data) + place(out_view, rows.begin) + column,
                    is_given(existing_out_view)
                        ? static_cast<const Out*>(existing_out_view.data) + place(existing_out_view, rows.begin) + column
                        : nullptr,
                    out_view.strides[last - 1], is_given(existing_out_view) ? existing_out_view.strides[last - 1] : 0};
  const int64_t matrix = rows.group - group_offset;
  if (group_sizes && (rows.group == group_count || matrix < 0 || matrix >= rhs_view.shape[0])) return store_nothing(store, height, columns);
  const LeftRows<Lhs, BLOCK_K> lhs{static_cast<const Lhs*>(lhs_view.data) + place(lhs_view, rows.begin), lhs_view.strides[last - 1]};
  const Rhs* rhs = static_cast<const Rhs*>(rhs_view.data) + (last == 3 ? place(rhs_view, 0) : matrix * rhs_view.strides[0]);
  const int64_t stride = rhs_view.strides[last == 3 ? 2 : 1];
  float* scratch = static_cast<float*>(group.shared);
  if (transpose_rhs)
    multiply_block<Shape>(lhs, RightColumns<Rhs, Shape::WIDTH>{rhs + column * stride, stride}, height, columns, depth, scratch, store);
  else
    multiply_block<Shape>(lhs, RightRows<Rhs, Shape::WIDTH>{rhs + column, stride}, height, columns, depth, scratch, store);
}
