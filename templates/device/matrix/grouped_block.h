// CPU vocabulary: which block of which matrices a work item of grouped_matmul or tgmm computes, whatever multiplies it.
#pragma once
#include "device/matrix/matrix_groups.h"
#include "device/number/narrow.h"
#include "device/matrix/product_pack.h"

// A block of a result: finished tiles of `WIDTH` floats a row go to `out`, with what exists added.
template <class Out, int64_t WIDTH>
struct BlockStore {
  Out* out;
  int64_t stride;
  const Out* existing;
  int64_t existing_stride;

  void operator()(int64_t row, int64_t column, int64_t rows, int64_t columns, const float* c) const {
    for (int64_t i = 0; i < rows; ++i, c += WIDTH) {
      Out* to = out + (row + i) * stride + column;
      const Out* from = existing ? existing + (row + i) * existing_stride + column : nullptr;
      for (int64_t j = 0; j < columns; j += LANES) {
        const Floats sum = load_floats(c + j);
        store_some(to + j, from ? sum + load_some(from + j, columns - j) : sum, columns - j);
      }
    }
  }

  // Where nothing is multiplied.
  void zeros(int64_t rows, int64_t columns) const {
    constexpr float none[WIDTH] = {};
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; column += WIDTH) (*this)(row, column, 1, least_of(WIDTH, columns - column), none);
  }
};

// The matrices of a call: [.., rows, columns], by the group's number, or in the batched form by the batch's groups counted through.
struct Matrices {
  const View& view;
  int64_t groups;

  int64_t stride() const { return view.strides[view.rank - 2]; }
  int64_t at(int64_t matrix) const {
    if (view.rank == 2) return 0;
    return view.rank == 3 ? matrix * view.strides[0] : matrix / groups * view.strides[0] + matrix % groups * view.strides[1];
  }
  template <class T>
  T* data(int64_t matrix) const {
    return static_cast<T*>(view.data) + at(matrix);
  }
};

// What a call of grouped_matmul is, beside its matrices.
struct ProductCall {
  const int32_t* sizes;  // null: the batched form
  int64_t groups, rows, columns, offset;
};

// Item (x, y, z): block x of columns, block y of rows; batched form: of matrix z. multiply(lhs, its stride, rhs, its stride, first column,
// rows, columns, store) computes a block; lhs points at its first row, rhs at its matrix.
template <class Lhs, class Rhs, class Store, int64_t BLOCK_M, int64_t BLOCK_N, int64_t UNIT, class Out, class Multiply>
static void multiply_rows(const Group& item, const ProductCall& call, const View& lhs_view, const View& rhs_view, const View& existing_view,
                          const View& out_view, const Multiply& multiply, Out*) {
  RowBlock rows{0, 0, 0};
  if (!call.sizes)
    rows = RowGroups::part({0, call.rows, 0}, item.y, item.grid_y, UNIT);
  else if (!RowGroups{call.sizes, call.groups, call.rows}.find_block(item.y, BLOCK_M, UNIT, rows))
    return;
  const Matrices lhs{lhs_view, call.groups}, rhs{rhs_view, call.groups}, out{out_view, call.groups};
  const int64_t column = item.x * BLOCK_N, columns = least_of(BLOCK_N, call.columns - column), height = rows.end - rows.begin;
  Store store{out.template data<Out>(item.z) + rows.begin * out.stride() + column, out.stride(), nullptr, 0};
  if (is_given(existing_view)) {
    const Matrices existing{existing_view, call.groups};
    store.existing_stride = existing.stride();
    store.existing = existing.template data<const Out>(item.z) + rows.begin * existing.stride() + column;
  }
  const int64_t matrix = call.sizes ? rows.group - call.offset : item.z;
  if (call.sizes && (rows.group == call.groups || matrix < 0 || matrix >= rhs_view.shape[0])) return store.zeros(height, columns);
  multiply(lhs.template data<const Lhs>(item.z) + rows.begin * lhs.stride(), lhs.stride(), rhs.template data<const Rhs>(matrix),
           rhs.stride(), column, height, columns, store);
}

// Item (x, y, z): block x of columns and y of rows of matrix z of tgmm's out. multiply(left, its stride, right, its stride, rows, columns,
// steps, store): `left` has the block's rows side by side, `right` its columns, and `steps` rows of both are summed over.
template <class Lhs, class Dout, class Store, int64_t BLOCK_M, int64_t BLOCK_N, class Out, class Multiply>
static void multiply_transposed(const Group& item, const ProductCall& call, bool transposed, const View& lhs_view, const View& dout_view,
                                const View& out_view, const Multiply& multiply, Out*) {
  const RowBlock rows = call.sizes ? RowGroups{call.sizes, call.groups, call.rows}[item.z + call.offset] : RowBlock{0, call.rows, 0};
  const Matrices lhs{lhs_view, call.groups}, dout{dout_view, call.groups}, out{out_view, call.groups};
  const int64_t row = item.y * BLOCK_M, column = item.x * BLOCK_N, steps = rows.end - rows.begin;
  const int64_t height = least_of(BLOCK_M, out_view.shape[out_view.rank - 2] - row), width = least_of(BLOCK_N, call.columns - column);
  const Store store{out.template data<Out>(item.z) + row * out.stride() + column, out.stride(), nullptr, 0};
  const Lhs* from_lhs = lhs.template data<const Lhs>(item.z) + rows.begin * lhs.stride();
  const Dout* from_dout = dout.template data<const Dout>(item.z) + rows.begin * dout.stride();
  if (transposed)
    multiply(from_dout + row, dout.stride(), from_lhs + column, lhs.stride(), height, width, steps, store);
  else
    multiply(from_lhs + row, lhs.stride(), from_dout + column, dout.stride(), height, width, steps, store);
}
