// grouped_matmul, forward, packed: a block of rows of one group times a block of columns, in register tiles.
#include "device/cpu.h"
#include "device/matrix/grouped_block.h"
#include "device/matrix/product.h"

using Lhs = ${ctype(E)};
using Rhs = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int64_t BLOCK_M = ${block_m};  // rows a work item, at most
constexpr int64_t BLOCK_N = ${block_n};  // columns a work item
constexpr int64_t BLOCK_K = ${block_k};  // most steps between two visits of a register tile
using Shape = ProductShape<${panel}, ${vectors}, BLOCK_K>;
using Store = BlockStore<Out, Shape::WIDTH>;

static void grouped_matmul(${parameters('grouped_matmul')}, const Group& group) {
  const int64_t depth = lhs_view.shape[lhs_view.rank - 1];
  const auto multiply = [&](const Lhs* lhs, int64_t lhs_stride, const Rhs* rhs, int64_t rhs_stride, int64_t column, int64_t rows,
                            int64_t columns, const Store& store) {
    const LeftRows<Lhs, BLOCK_K> left{lhs, lhs_stride};
    float* scratch = static_cast<float*>(group.shared);
    if (transpose_rhs)
      multiply_block<Shape>(left, RightColumns<Rhs, Shape::WIDTH>{rhs + column * rhs_stride, rhs_stride}, rows, columns, depth, scratch,
                            store);
    else
      multiply_block<Shape>(left, RightRows<Rhs, Shape::WIDTH>{rhs + column, rhs_stride}, rows, columns, depth, scratch, store);
  };
  const ProductCall call{group_sizes, group_count, row_count, column_count, group_offset};
  multiply_rows<Lhs, Rhs, Store, BLOCK_M, BLOCK_N, Shape::ROWS>(group, call, lhs_view, rhs_view, existing_out_view, out_view, multiply,
                                                                static_cast<Out*>(nullptr));
}
