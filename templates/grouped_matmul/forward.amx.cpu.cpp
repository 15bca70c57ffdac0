// grouped_matmul, forward, on AMX tiles: bf16 rows of one group times a block of bf16 columns.
#include "device/cpu.h"
#include "device/matrix/grouped_block.h"
#include "device/matrix/product_amx.h"

using Out = ${ctype(O)};
constexpr int64_t BLOCK_M = ${block_m};  // rows a work item, at most
constexpr int64_t BLOCK_N = ${block_n};  // columns a work item
constexpr int64_t BLOCK_K = ${block_k};  // most steps between two visits of a tile
using Store = BlockStore<Out, 32>;

static void grouped_matmul(${parameters('grouped_matmul')}, const Group& group) {
  const int64_t depth = lhs_view.shape[lhs_view.rank - 1];
  const auto multiply = [&](const bfloat16* lhs, int64_t lhs_stride, const bfloat16* rhs, int64_t rhs_stride, int64_t column, int64_t rows,
                            int64_t columns, const Store& store) {
    const AmxOperand<true, true> left{lhs, lhs_stride};
    float* scratch = static_cast<float*>(group.shared);
    if (transpose_rhs)
      multiply_block_amx<BLOCK_K>(left, AmxOperand<true, false>{rhs + column * rhs_stride, rhs_stride}, rows, columns, depth, scratch,
                                  store);
    else
      multiply_block_amx<BLOCK_K>(left, AmxOperand<false, false>{rhs + column, rhs_stride}, rows, columns, depth, scratch, store);
  };
  const ProductCall call{group_sizes, group_count, row_count, column_count, group_offset};
  multiply_rows<bfloat16, bfloat16, Store, BLOCK_M, BLOCK_N, 32>(group, call, lhs_view, rhs_view, existing_out_view, out_view, multiply,
                                                                 static_cast<Out*>(nullptr));
}
