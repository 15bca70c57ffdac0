// grouped_matmul, forward, on GPUs with matrix instructions, of warps or of waves: a block makes a tile of out, of one group's rows. 16-bit
// types, everything aligned to 16 bytes.
#include "device/gpu.h"
$if by_waves
#include "device/matrix/wave_product.h"
$else
#include "device/matrix/mma_product.h"
$end
#include "device/matrix/grouped_walk.h"

using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCK_M = ${block_m}, BLOCK_N = ${block_n};  // rows and columns of a tile
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched}, ADDS = ${adds};
constexpr int TOGETHER = 8;  // bands of a group whose tiles come one after another
$if by_waves
using Product = BlockProduct<Element, BLOCK_M, BLOCK_N, ${depth}, ${waves_m}, ${waves_n}, true, TRANSPOSED>;
$else
using Product = BlockProduct<Element, BLOCK_M, BLOCK_N, ${depth}, ${stages}, ${warps_m}, ${warps_n}, true, TRANSPOSED>;
$end

KERNEL(Product::THREADS, ${blocks}) grouped_matmul(${parameters('grouped_matmul')}) {
  GroupWalk<16, TOGETHER> walk(group_sizes, static_cast<int>(group_count), static_cast<int>(M), static_cast<int>(column_blocks), BLOCK_M);
  GroupTile tile;
  if (!walk.find(block_x(), tile)) return;
  const int batch = BATCHED ? tile.group / static_cast<int>(G) : 0, group = tile.group - batch * static_cast<int>(G);
  const bool held_here = BATCHED || (tile.group >= group_offset && tile.group < group_offset + held);
  const int64_t first_column = static_cast<int64_t>(tile.column) * BLOCK_N, columns = N - first_column;
  const int rows = tile.end - tile.row;
  const Element* const left = lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + tile.row * lhs_stride;
  const Element* const right =
      rhs + batch * rhs_batch + (group - (BATCHED ? 0 : group_offset)) * rhs_group + first_column * (TRANSPOSED ? rhs_stride : 1);

  Product product;
  product.run({left, lhs_stride, rows}, {right, rhs_stride, columns}, held_here ? K : 0);
  const Out* const there = ADDS ? existing_out + batch * existing_batch + (BATCHED ? group * existing_group : 0) + tile.row * existing_stride + first_column : nullptr;
  product.store<ADDS>(out + batch * out_batch + (BATCHED ? group * out_group : 0) + tile.row * out_stride + first_column, out_stride, there,
                      existing_stride, rows, columns);
}
