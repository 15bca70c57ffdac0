// tgmm on AMX tiles: a block of the matrix of one group, summed over the group's bf16 rows.
#include "device/cpu.h"
#include "device/matrix/grouped_block.h"
#include "device/matrix/product_amx.h"

using Out = ${ctype(O)};
constexpr int64_t BLOCK_M = ${block_m};  // rows of out a work item
constexpr int64_t BLOCK_N = ${block_n};  // columns of out a work item
constexpr int64_t BLOCK_K = ${block_k};  // most rows of lhs and dout between two visits of a tile
using Store = BlockStore<Out, 32>;

static void tgmm(${parameters('tgmm')}, const Group& group) {
  const auto multiply = [&](const bfloat16* left, int64_t left_stride, const bfloat16* right, int64_t right_stride, int64_t rows,
                            int64_t columns, int64_t steps, const Store& store) {
    multiply_block_amx<BLOCK_K>(AmxOperand<false, true>{left, left_stride}, AmxOperand<false, false>{right, right_stride}, rows, columns,
                                steps, static_cast<float*>(group.shared), store);
  };
  const ProductCall call{group_sizes, group_count, row_count, out_columns, group_offset};
  multiply_transposed<bfloat16, bfloat16, Store, BLOCK_M, BLOCK_N>(group, call, transpose_rhs, lhs_view, dout_view, out_view, multiply,
                                                                   static_cast<Out*>(nullptr));
}
