// rnn_bwd on Hopper: products on wgmma, and the steps between them. Factors' outermost dim is the direction, in f32 first the part.
#include "device/sm90/sm90_product.h"
#include "rnn/rnn_gates.h"

using Element = ${ctype(E)};
#include "rnn/rnn_sweep.h"
$if split
#include "rnn/rnn_split.h"
$else
#include "rnn/rnn_hopper.h"
$end

struct LayerTile { int row, column, direction, kind, steps; };

static inline int tiles_of(int size, int tile) { return (size + tile - 1) / tile; }

// What products have in common. Rows of tokens are b * tokens + t.
struct LayerSizes {
  int rows, inputs, features, directions;
  static int depths(int count) { return tiles_of(count, HOPPER_DEPTH); }
  int outer(int part, int direction) const { return part * directions + direction; }
};

// remade[direction][row][KEPT][feature]: gates before their functions. A tile is of one kind.
struct Gates {
  const TensorMap &xs, &before, &w_ih, &w_hh;
  const View &b_ih, &b_hh;
  float* remade;
  LayerSizes size;
  int across() const { return tiles_of(size.features, TILE_N); }
  int down() const { return tiles_of(size.rows, HOPPER_M); }
  int tiles() const { return down() * across() * KINDS * size.directions; }
  static bool of_x(int kind) { return !(GRU && kind == 3); }
  static bool of_state(int kind) { return !(GRU && kind == 2); }
  static int gate_of(int kind) { return GRU && kind == 3 ? 2 : kind; }
  LayerTile tile(int i) const {
    const HopperPlace place(i, down(), across() * KINDS * size.directions);
    const int kind = place.n / across() % KINDS;
    const int steps = (of_x(kind) ? size.depths(size.inputs) : 0) + (of_state(kind) ? size.depths(size.features) : 0);
    return {place.m * HOPPER_M, place.n % across() * TILE_N, place.n / across() / KINDS, kind, steps};
  }
  // Steps over x come first: how many are left of the state's.
  int step_of_state(const LayerTile& tile, int step) const { return step - (of_x(tile.kind) ? size.depths(size.inputs) : 0); }
  void copy_left(const LayerTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    const int of = step_of_state(tile, step), row = tile.row + 64 * box;
    if (of < 0)
      load_tile(to, xs, full, {step * HOPPER_DEPTH, row, part});
    else
      load_tile(to, before, full, {of * HOPPER_DEPTH, row, size.outer(part, tile.direction)});
  }
  void copy_right(const LayerTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    const int of = step_of_state(tile, step), line = gate_of(tile.kind) * size.features + tile.column + 64 * box;
    if (of < 0)
      load_tile(to, w_ih, full, {step * HOPPER_DEPTH, line, size.outer(part, tile.direction)});
    else
      load_tile(to, w_hh, full, {of * HOPPER_DEPTH, line, size.outer(part, tile.direction)});
  }
  float bias(const View& view, const LayerTile& tile, int column) const {
    if (!is_given(view) || tile.column + column >= size.features) return 0;
    return to_float(static_cast<const Element*>(view.data)[tile.direction * view.strides[0] + gate_of(tile.kind) * size.features + tile.column + column]);
  }
  void store(const LayerTile& tile, int part, TileSums& sums) const {
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * j + lane() % 4 * 2 + i;
        const float both = (of_x(tile.kind) ? bias(b_ih, tile, column) : 0.0f) + (of_state(tile.kind) ? bias(b_hh, tile, column) : 0.0f);
        sums[4 * j + i] += both, sums[4 * j + 2 + i] += both;
      }
    const int64_t columns = static_cast<int64_t>(KEPT) * size.features;
    store_tile(sums, part, remade + (static_cast<int64_t>(tile.direction) * size.rows + tile.row) * columns + tile.kind * size.features + tile.column, columns,
                      size.rows - tile.row, size.features - tile.column);
  }
};

KERNEL(TILE_THREADS, 1) gates(${parameters('gates')}) {
  const LayerSizes size{static_cast<int>(row_count), static_cast<int>(w_ih_view.shape[2]), static_cast<int>(w_hh_view.shape[2]), static_cast<int>(w_hh_view.shape[0])};
  multiply_tiles<true, true>(Gates{xs_map, before_map, ${split ? 'parts_ih' : 'w_ih'}_map, ${split ? 'parts_hh' : 'w_hh'}_map, b_ih_view, b_hh_view, remade, size});
}

// dx = the gates' gradients times w_ih, both directions'. Past the gates w_ih has zeros: a GRU's last kind counts for nothing.
struct InputGradient {
  const TensorMap &da, &w_ih;
  const View& dx;
  LayerSizes size;
  int64_t stride;
  int down() const { return tiles_of(size.rows, HOPPER_M); }
  int across() const { return tiles_of(size.inputs, TILE_N); }
  int tiles() const { return down() * across(); }
  int steps_a_direction() const { return size.depths(GATES * size.features); }
  LayerTile tile(int i) const {
    const HopperPlace place(i, down(), across());
    return {place.m * HOPPER_M, place.n * TILE_N, 0, 0, steps_a_direction() * size.directions};
  }
  void copy_left(const LayerTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    load_tile(to, da, full, {step % steps_a_direction() * HOPPER_DEPTH, tile.row + 64 * box, size.outer(part, step / steps_a_direction())});
  }
  void copy_right(const LayerTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    load_tile(to, w_ih, full, {tile.column + 64 * box, step % steps_a_direction() * HOPPER_DEPTH, size.outer(part, step / steps_a_direction())});
  }
  void store(const LayerTile& tile, int part, TileSums& sums) const {
    store_tile(sums, part, static_cast<Element*>(dx.data) + tile.row * stride + tile.column, stride, size.rows - tile.row, size.inputs - tile.column);
  }
};

KERNEL(TILE_THREADS, 1) inputs(${parameters('inputs')}) {
  const LayerSizes size{static_cast<int>(row_count), static_cast<int>(w_ih_view.shape[2]), static_cast<int>(w_hh_view.shape[2]), static_cast<int>(w_hh_view.shape[0])};
  multiply_tiles<true, false>(InputGradient{da_map, ${split ? 'parts_ih' : 'w_ih'}_map, dx_view, size, row_stride});
}

// Gradients of w_ih and w_hh: sums over all tokens. A tile is of one gate.
struct WeightGradients {
  const TensorMap &da, &xs, &before;
  const View &dw_ih, &dw_hh;
  LayerSizes size;
  int down() const { return GATES * tiles_of(size.features, HOPPER_M); }
  int across_x() const { return tiles_of(size.inputs, TILE_N); }
  int across() const { return across_x() + tiles_of(size.features, TILE_N); }
  int tiles() const { return down() * across() * size.directions; }
  LayerTile tile(int i) const {
    const int a_gate = tiles_of(size.features, HOPPER_M);
    const HopperPlace place(i % (down() * across()), down(), across());
    return {place.m % a_gate * HOPPER_M, place.n * TILE_N, i / (down() * across()), place.m / a_gate, size.depths(size.rows)};
  }
  bool is_recurrent(const LayerTile& tile) const { return tile.column >= across_x() * TILE_N; }
  int column_of(const LayerTile& tile) const { return tile.column - (is_recurrent(tile) ? across_x() * TILE_N : 0); }
  void copy_left(const LayerTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    const int kind = GRU && is_recurrent(tile) && tile.kind == 2 ? 3 : tile.kind;
    load_tile(to, da, full, {kind * size.features + tile.row + 64 * box, step * HOPPER_DEPTH, size.outer(part, tile.direction)});
  }
  void copy_right(const LayerTile& tile, int step, int box, uint32_t to, uint32_t full, int part = 0) const {
    const int column = column_of(tile) + 64 * box;
    if (is_recurrent(tile))
      load_tile(to, before, full, {column, step * HOPPER_DEPTH, size.outer(part, tile.direction)});
    else
      load_tile(to, xs, full, {column, step * HOPPER_DEPTH, part});
  }
  void store(const LayerTile& tile, int part, TileSums& sums) const {
    const View& to = is_recurrent(tile) ? dw_hh : dw_ih;
    store_tile(sums, part, static_cast<Element*>(to.data) + tile.direction * to.strides[0] + (tile.kind * size.features + tile.row) * to.strides[1] + column_of(tile),
                      to.strides[1], size.features - tile.row, to.shape[2] - column_of(tile));
  }
};

KERNEL(TILE_THREADS, 1) weights(${parameters('weights')}) {
  const LayerSizes size{static_cast<int>(row_count), static_cast<int>(dw_ih_view.shape[2]), static_cast<int>(dw_hh_view.shape[2]), static_cast<int>(dw_hh_view.shape[0])};
  multiply_tiles<false, false>(WeightGradients{da_map, xs_map, before_map, dw_ih_view, dw_hh_view, size});
}
$if split

// The parts of both weights, a row a block.
KERNEL(128, 1) split(${parameters('split')}) {
  const int64_t of_x = w_ih_view.shape[0] * w_ih_view.shape[1];
  if (block_x() < of_x)
    split_weights_row(parts_ih, w_ih_view, block_x());
  else
    split_weights_row(parts_hh, w_hh_view, block_x() - of_x);
}
$end
