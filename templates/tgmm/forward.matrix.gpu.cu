// tgmm, forward, on GPUs with matrix instructions, of warps or of waves: a block makes a tile of one group's matrix, summed over the group's
// rows. 16-bit types, everything aligned to 16 bytes.
#include "device/gpu.h"
$if by_waves
#include "device/matrix/wave_product.h"
$else
#include "device/matrix/mma_product.h"
$end
#include "tgmm/group_rows.h"

using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCK_M = ${block_m}, BLOCK_N = ${block_n};  // rows and columns of a tile of out
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};
$if by_waves
using Product = BlockProduct<Element, BLOCK_M, BLOCK_N, ${depth}, ${waves_m}, ${waves_n}, false, false>;
$else
using Product = BlockProduct<Element, BLOCK_M, BLOCK_N, ${depth}, ${stages}, ${warps_m}, ${warps_n}, false, false>;
$end

// Block x: tile x of all matrices that out holds, matrix after matrix.
KERNEL(Product::THREADS, ${blocks}) tgmm(${parameters('tgmm')}) {
  const int across = static_cast<int>(blocks_n), tiles = static_cast<int>(blocks_m) * across;
  const int matrix = block_x() / tiles, tile = block_x() - matrix * tiles;
  const int batch = BATCHED ? matrix / static_cast<int>(G) : 0, group = BATCHED ? matrix - batch * static_cast<int>(G) : matrix;
  const GroupRows rows = rows_of_group(group_sizes, group + static_cast<int>(group_offset), static_cast<int>(M));
  const int64_t first_m = static_cast<int64_t>(tile / across) * BLOCK_M, first_n = static_cast<int64_t>(tile % across) * BLOCK_N;
  // out = left^T right; transposed, the factors change places.
  const int64_t first_of_lhs = TRANSPOSED ? first_n : first_m, first_of_dout = TRANSPOSED ? first_m : first_n;
  const Factor<Element> of_lhs{lhs + batch * lhs_batch + (BATCHED ? group * lhs_group : 0) + rows.begin * lhs_stride + first_of_lhs, lhs_stride,
                               K - first_of_lhs};
  const Factor<Element> of_dout{dout + batch * dout_batch + (BATCHED ? group * dout_group : 0) + rows.begin * dout_stride + first_of_dout,
                                dout_stride, N - first_of_dout};
  const Factor<Element> left = TRANSPOSED ? of_dout : of_lhs, right = TRANSPOSED ? of_lhs : of_dout;
  Product product;
  product.run(left, right, rows.end - rows.begin);
  product.template store<false, Out>(out + batch * out_batch + group * out_group + first_m * out_stride + first_n, out_stride, nullptr, 0,
                                     left.across, right.across);
}
