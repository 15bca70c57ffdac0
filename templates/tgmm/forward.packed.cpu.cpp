// tgmm, packed: a block of the matrix of one group, summed over the group's rows in register tiles.
#include "device/cpu.h"
#include "device/matrix/grouped_block.h"
#include "device/matrix/product.h"

using Lhs = ${ctype(E)};
using Dout = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int64_t BLOCK_M = ${block_m};  // rows of out a work item
constexpr int64_t BLOCK_N = ${block_n};  // columns of out a work item
constexpr int64_t BLOCK_K = ${block_k};  // most rows of lhs and dout between two visits of a register tile
using Shape = ProductShape<${panel}, ${vectors}, BLOCK_K>;
using Store = BlockStore<Out, Shape::WIDTH>;

static void tgmm(${parameters('tgmm')}, const Group& group) {
  const auto multiply = [&]<class Left, class Right>(const Left* left, int64_t left_stride, const Right* right, int64_t right_stride,
                                                     int64_t rows, int64_t columns, int64_t steps, const Store& store) {
    multiply_block<Shape>(LeftColumns<Left, Shape::ROWS, BLOCK_K>{left, left_stride}, RightRows<Right, Shape::WIDTH>{right, right_stride},
                          rows, columns, steps, static_cast<float*>(group.shared), store);
  };
  const ProductCall call{group_sizes, group_count, row_count, out_columns, group_offset};
  multiply_transposed<Lhs, Dout, Store, BLOCK_M, BLOCK_N>(group, call, transpose_rhs, lhs_view, dout_view, out_view, multiply,
                                                          static_cast<Out*>(nullptr));
}
