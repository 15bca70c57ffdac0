// grouped_matmul, forward, plain: one row of out at a time, by the definition. Takes every legal call.
#include "device/cpu.h"

using Lhs = ${ctype(E)};
using Rhs = ${ctype(F)};
using Out = ${ctype(O)};

// The group of a row of lhs, -1: none. A size below 0 counts as 0.
static int64_t group_of(int64_t row, const int32_t* sizes, int64_t groups) {
  int64_t end = 0;
  for (int64_t group = 0; group < groups; ++group) {
    end += sizes[group] > 0 ? sizes[group] : 0;
    if (row < end) return group;
  }
  return -1;
}

// sums[n] += lhs[k] * rhs[k][n], over all k.
static void add_product(double* sums, const Lhs* lhs, const Rhs* rhs, int64_t depth, int64_t width, int64_t k_stride, int64_t n_stride) {
  for (int64_t k = 0; k < depth; ++k) {
    const double factor = to_float(lhs[k]);
    for (int64_t n = 0; n < width; ++n) sums[n] += factor * to_float(rhs[k * k_stride + n * n_stride]);
  }
}

// Item (x, y, z): row x; in the batched form of group y of z.
static void grouped_matmul(${parameters('grouped_matmul')}, const Group& group) {
  double* sums = static_cast<double*>(group.shared);
  const int last = static_cast<int>(lhs_view.rank) - 1;
  const int64_t depth = lhs_view.shape[last], width = out_view.shape[last];
  const auto at = [&](const View& view, int64_t row) {
    return (last == 3 ? group.z * view.strides[0] + group.y * view.strides[1] : 0) + row * view.strides[last - 1];
  };
  for (int64_t n = 0; n < width; ++n) sums[n] = 0;
  const int64_t global = group_sizes ? group_of(group.x, group_sizes, group_count) : 0;
  const int64_t matrix = global - group_offset, matrices = rhs_view.shape[0];
  if (!group_sizes || (global >= 0 && matrix >= 0 && matrix < matrices)) {
    const Rhs* rhs = static_cast<const Rhs*>(rhs_view.data) + (group_sizes ? matrix * rhs_view.strides[0] : at(rhs_view, 0));
    const int64_t row_stride = rhs_view.strides[last == 3 ? 2 : 1];
    add_product(sums, static_cast<const Lhs*>(lhs_view.data) + at(lhs_view, group.x), rhs, depth, width, transpose_rhs ? 1 : row_stride,
                transpose_rhs ? row_stride : 1);
  }
  if (is_given(existing_out_view)) {
    const Out* existing = static_cast<const Out*>(existing_out_view.data) + at(existing_out_view, group.x);
    for (int64_t n = 0; n < width; ++n) sums[n] += to_float(existing[n]);
  }
  Out* out = static_cast<Out*>(out_view.data) + at(out_view, group.x);
  for (int64_t n = 0; n < width; ++n) out[n] = from_float<Out>(static_cast<float>(sums[n]));
}
