// tgmm, plain: one row of a matrix of out at a time, by the definition. Takes every legal call.
#include "device/cpu.h"

using Lhs = ${ctype(E)};
using Dout = ${ctype(F)};
using Out = ${ctype(O)};

struct Rows {
  int64_t begin, end;
};

// The rows of a group, cut at `rows`. A size below 0 counts as 0.
static Rows rows_of(int64_t group, const int32_t* sizes, int64_t rows) {
  int64_t begin = 0;
  for (int64_t before = 0; before < group; ++before) begin += sizes[before] > 0 ? sizes[before] : 0;
  const int64_t end = begin + (sizes[group] > 0 ? sizes[group] : 0);
  return {begin < rows ? begin : rows, end < rows ? end : rows};
}

// sums[j] += column[m] * wide[m][j], over the rows.
template <class Column, class Wide>
static void add_product(double* sums, const Column* column, int64_t column_stride, const Wide* wide, int64_t wide_stride, Rows rows,
                        int64_t width) {
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    const double factor = to_float(column[m * column_stride]);
    for (int64_t j = 0; j < width; ++j) sums[j] += factor * to_float(wide[m * wide_stride + j]);
  }
}

// Item (x, y, z): row x of the matrix of group y of z.
static void tgmm(${parameters('tgmm')}, const Group& group) {
  double* sums = static_cast<double*>(group.shared);
  const int last = static_cast<int>(lhs_view.rank) - 1, out_last = static_cast<int>(out_view.rank) - 1;
  const int64_t width = out_view.shape[out_last];
  const auto matrix = [&](const View& view) { return last == 3 ? group.z * view.strides[0] + group.y * view.strides[1] : 0; };
  for (int64_t j = 0; j < width; ++j) sums[j] = 0;
  const Rows rows = group_sizes ? rows_of(group.y + group_offset, group_sizes, row_count) : Rows{0, row_count};
  const Lhs* lhs = static_cast<const Lhs*>(lhs_view.data) + matrix(lhs_view);
  const Dout* dout = static_cast<const Dout*>(dout_view.data) + matrix(dout_view);
  const int64_t lhs_stride = lhs_view.strides[last - 1], dout_stride = dout_view.strides[last - 1];
  if (transpose_rhs)
    add_product(sums, dout + group.x, dout_stride, lhs, lhs_stride, rows, width);
  else
    add_product(sums, lhs + group.x, lhs_stride, dout, dout_stride, rows, width);
  Out* out = static_cast<Out*>(out_view.data) + (last == 3 ? matrix(out_view) : group.y * out_view.strides[0]) +
             group.x * out_view.strides[out_last - 1];
  for (int64_t j = 0; j < width; ++j) out[j] = from_float<Out>(static_cast<float>(sums[j]));
}
