// grouped_matmul, forward, on GPUs: any types and strides, products and sums in f32 as they are. A block makes a square tile of out.
#include "device/matrix/square_product.h"
#include "device/matrix/grouped_walk.h"

$require tile % 64 == 0
using Left = ${ctype(E)};
using Right = ${ctype(F)};
using Out = ${ctype(O)};
constexpr int TILE = ${tile};
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};
constexpr int TOGETHER = 8;  // bands of a group whose tiles come one after another

KERNEL(SQUARE_THREADS, 1) grouped_matmul(${parameters('grouped_matmul')}) {
  GroupWalk<4, TOGETHER> walk(group_sizes, static_cast<int>(group_count), static_cast<int>(M), static_cast<int>(column_blocks), TILE);
  GroupTile tile;
  if (!walk.find(block_x(), tile)) return;
  const int batch = BATCHED ? tile.group / static_cast<int>(G) : 0, group = tile.group - batch * static_cast<int>(G);
  const bool held_here = BATCHED || (tile.group >= group_offset && tile.group < group_offset + held);
  const int64_t first_column = static_cast<int64_t>(tile.column) * TILE, columns = N - first_column, depths = held_here ? K : 0;
  const int rows = tile.end - tile.row;
  Mover<Left, TILE, true> left{lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + tile.row * lhs_stride, lhs_stride, rows, {}};
  Mover<Right, TILE, TRANSPOSED> right{
      rhs + batch * rhs_batch + (group - (BATCHED ? 0 : group_offset)) * rhs_group + first_column * (TRANSPOSED ? rhs_stride : 1), rhs_stride,
      columns, {}};
  SquareSums<TILE> sums = {};
  multiply_square<TILE>(sums, left, right, depths);
  Out* const to = out + batch * out_batch + (BATCHED ? group * out_group : 0) + tile.row * out_stride + first_column;
  const Out* const there =
      existing_out ? existing_out + batch * existing_batch + (BATCHED ? group * existing_group : 0) + tile.row * existing_stride + first_column : nullptr;
  store_square<TILE>(sums, to, out_stride, there, existing_stride, rows, columns);
}
