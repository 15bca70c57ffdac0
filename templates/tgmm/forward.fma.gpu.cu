// tgmm, forward, on GPUs: any types and strides, products and sums in f32 as they are. A block makes a square tile of one group's matrix.
#include "device/matrix/square_product.h"
#include "tgmm/group_rows.h"

$require tile % 64 == 0
using Out = ${ctype(O)};
constexpr int TILE = ${tile};
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};

// Block x: tile x of all matrices that out holds, matrix after matrix.
KERNEL(SQUARE_THREADS, 1) tgmm(${parameters('tgmm')}) {
  const int across = static_cast<int>(blocks_n), tiles = static_cast<int>(blocks_m) * across;
  const int matrix = block_x() / tiles, tile = block_x() - matrix * tiles;
  const int batch = BATCHED ? matrix / static_cast<int>(G) : 0, group = BATCHED ? matrix - batch * static_cast<int>(G) : matrix;
  const GroupRows found = rows_of_group(group_sizes, group + static_cast<int>(group_offset), static_cast<int>(M));
  const int64_t first_m = static_cast<int64_t>(tile / across) * TILE, first_n = static_cast<int64_t>(tile % across) * TILE;
  const int64_t first_k = TRANSPOSED ? first_n : first_m, first_of_dout = TRANSPOSED ? first_m : first_n;
  const int rows = found.end - found.begin;
  Mover<${ctype(E)}, TILE, false> of_lhs{lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + found.begin * lhs_stride + first_k, lhs_stride,
                                K - first_k, {}};
  Mover<${ctype(F)}, TILE, false> of_dout{dout + batch * dout_batch + (BATCHED ? group * dout_group : 0) + found.begin * dout_stride + first_of_dout,
                                 dout_stride, N - first_of_dout, {}};
  SquareSums<TILE> sums = {};
  if constexpr (TRANSPOSED)
    multiply_square<TILE>(sums, of_dout, of_lhs, rows);
  else
    multiply_square<TILE>(sums, of_lhs, of_dout, rows);
  store_square<TILE, Out>(sums, out + batch * out_batch + group * out_group + first_m * out_stride + first_n, out_stride, nullptr, 0,
                          (TRANSPOSED ? N : K) - first_m, (TRANSPOSED ? K : N) - first_n);
}
