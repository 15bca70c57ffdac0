// rnn_bwd on GPUs, products in f32: as backward.cpu.cpp, whose buffers these are. Products over all tokens by square tiles; a launch a step
// between them, whose blocks read w_hh's columns from the L2 cache.
#include "device/matrix/square_product.h"
#include "rnn/rnn_gates.h"
#include "rnn/rnn_kept.h"

using Element = ${ctype(E)};
constexpr bool KEEPS_LINES = false;
constexpr int THREADS = 256, FEATURES = ${features}, PARTS = ${parts}, ROWS = ${rows}, LINES_A_THREAD = 1;
constexpr int TILE = 64;
#include "rnn/rnn_step.h"

static inline const Element* elements(const View& view, int64_t outer, int64_t row) {
  return static_cast<const Element*>(view.data) + outer * view.strides[0] + row * view.strides[1];
}
static inline float* floats(const View& view, int64_t direction, int64_t row) {
  return static_cast<float*>(view.data) + direction * view.strides[0] + row * view.strides[1];
}

struct Layer {
  int64_t batch, tokens, features, directions;
  const int32_t* lengths;
  int64_t length_of(int64_t row) const { return lengths ? lengths[row] : tokens; }
  int64_t rows() const { return batch * tokens; }
  int64_t place(int64_t direction, int64_t token, int64_t row, int64_t width) const {
    return ((direction * tokens + token) * batch + row) * width;
  }
  int64_t states() const { return directions * batch * features; }
};

// A row of x and the states before it a block.
KERNEL(128, 1) gather(${parameters('gather')}) {
  const int64_t batch = x_view.shape[0], tokens = x_view.shape[1], inputs = x_view.shape[2], features = w_hh_view.shape[2];
  const int64_t token = block_x() / batch, row = block_x() % batch, length = lengths ? lengths[row] : tokens;
  for (int64_t i = thread_x(); i < inputs; i += 128)
    xs[block_x() * inputs + i] = token < length ? to_float(elements(x_view, row, token)[i]) : 0.0f;
  for (int64_t d = 0; d < (bidirectional ? 2 : 1); ++d) {
    const int64_t previous = d == 1 ? token + 1 : token - 1;
    const bool inside = previous >= 0 && previous < length;
    for (int64_t j = thread_x(); j < features; j += 128) {
      float state = 0;
      if (token < length && inside) state = to_float(elements(y_view, row, previous)[d * features + j]);
      if (token < length && !inside && is_given(h0_view)) state = floats(h0_view, d, row)[j];
      before[(d * tokens * batch + block_x()) * features + j] = state;
    }
  }
}

// columns[direction][feature][gate's row]: w_hh by its columns; what is carried: the gradients of the last states.
KERNEL(256, 1) start(${parameters('start')}) {
  const int64_t i = static_cast<int64_t>(block_x()) * 256 + thread_x(), features = w_hh_view.shape[2], all = GATES * features;
  const int64_t directions = w_hh_view.shape[0], batch = y_view.shape[0];
  if (i < directions * all * features) {
    const int64_t direction = i / features / all, row = i / features % all, feature = i % features;
    reinterpret_cast<Element*>(columns)[(direction * features + feature) * all + row] = elements(w_hh_view, direction, row)[feature];
  }
  if (i < directions * batch * features) {
    const int64_t direction = i / features / batch, row = i / features % batch, feature = i % features;
    carried[i] = is_given(dh_n_view) ? floats(dh_n_view, direction, row)[feature] : 0.0f;
    if (LSTM) carried_memory[i] = is_given(dc_n_view) ? floats(dc_n_view, direction, row)[feature] : 0.0f;
  }
}

// to[row][column] = sums + bias of a block's tile.
static inline void put_gates(const SquareSums<TILE>& sums, float* to, int64_t all, const Element* b, const Element* more, int64_t rows,
                             int64_t columns) {
#pragma unroll
  for (int n = 0; n < TILE / 16; ++n) {
    const int64_t column = thread_x() % 16 * 4 + n;
    if (column >= columns) continue;
    const float bias = (b ? to_float(b[column]) : 0.0f) + (more ? to_float(more[column]) : 0.0f);
#pragma unroll
    for (int m = 0; m < TILE / 16; ++m) {
      const int64_t row = thread_x() / 16 * 4 + m;
      if (row < rows) to[row * all + column] = sums[m][n] + bias;
    }
  }
}

KERNEL(SQUARE_THREADS, 1) gates(${parameters('gates')}) {
  const int64_t direction = block_z(), features = w_hh_view.shape[2], inputs = w_ih_view.shape[2], all = GATES * features;
  const int64_t first_row = static_cast<int64_t>(block_x()) * TILE, first_column = static_cast<int64_t>(block_y()) * TILE;
  const int64_t rows = row_count - first_row, columns = all - first_column, at = (direction * row_count + first_row) * all + first_column;
  const Element* const b_ih = is_given(b_ih_view) ? static_cast<const Element*>(b_ih_view.data) + direction * b_ih_view.strides[0] + first_column : nullptr;
  const Element* const b_hh = is_given(b_hh_view) ? static_cast<const Element*>(b_hh_view.data) + direction * b_hh_view.strides[0] + first_column : nullptr;
  SquareSums<TILE> sums = {};
  Mover<float, TILE, true> x{xs + first_row * inputs, inputs, rows, {}};
  Mover<Element, TILE, true> of_x{elements(w_ih_view, direction, first_column), w_ih_view.strides[1], columns, {}};
  multiply_square<TILE>(sums, x, of_x, inputs);
  if constexpr (GRU) {
    put_gates(sums, da + at, all, b_ih, nullptr, rows, columns);
#pragma unroll
    for (int m = 0; m < TILE / 16; ++m)
#pragma unroll
      for (int n = 0; n < TILE / 16; ++n) sums[m][n] = 0;
  }
  Mover<float, TILE, true> state{before + (direction * row_count + first_row) * features, features, rows, {}};
  Mover<Element, TILE, true> of_state{elements(w_hh_view, direction, first_column), w_hh_view.strides[1], columns, {}};
  multiply_square<TILE>(sums, state, of_state, features);
  put_gates(sums, (GRU ? du : da) + at, all, GRU ? nullptr : b_ih, b_hh, rows, columns);
}

// An LSTM's c before a token.
static inline float memory_before(const Layer& layer, const float* memories, const View& c0, int64_t direction, int64_t token, int64_t row, int64_t j) {
  const int64_t previous = direction == 1 ? token + 1 : token - 1;
  if (previous >= 0 && previous < layer.length_of(row)) return memories[layer.place(direction, previous, row, layer.features) + j];
  return is_given(c0) ? floats(c0, direction, row)[j] : 0.0f;
}

// The gates themselves, and an LSTM's c: a feature of a row a thread, token by token.
KERNEL(256, 1) activate(${parameters('activate')}) {
  const Layer layer{y_view.shape[0], y_view.shape[1], w_hh_view.shape[2], bidirectional ? 2 : 1, lengths};
  const int64_t i = static_cast<int64_t>(block_x()) * 256 + thread_x(), features = layer.features, all = GATES * features;
  if (i >= layer.states()) return;
  const int64_t direction = i / features / layer.batch, row = i / features % layer.batch, j = i % features;
  for (int64_t step = 0; step < layer.tokens; ++step) {
    const int64_t token = direction == 1 ? layer.tokens - 1 - step : step;
    if (token >= layer.length_of(row)) continue;
    float* const gate = da + layer.place(direction, token, row, all) + j;
    const float* const from = saved ? gates_in(gates_view, direction, row, token) + j : gate;
    if constexpr (LSTM) {
      const float in = sigmoid_of(from[0]), keep = sigmoid_of(from[features]), cell = exact_tanh_of(from[2 * features]);
      gate[0] = in, gate[features] = keep, gate[2 * features] = cell, gate[3 * features] = sigmoid_of(from[3 * features]);
      memories[layer.place(direction, token, row, features) + j] =
          keep * memory_before(layer, memories, c0_view, direction, token, row, j) + in * cell;
    } else if constexpr (GRU) {
      float* const recurrent = du + layer.place(direction, token, row, all) + j;
      const float reset = sigmoid_of(saved ? from[0] : gate[0] + recurrent[0]);
      if (saved) recurrent[2 * features] = from[3 * features];
      gate[features] = sigmoid_of(saved ? from[features] : gate[features] + recurrent[features]);
      gate[2 * features] = exact_tanh_of(from[2 * features] + reset * recurrent[2 * features]);
      gate[0] = reset;
    }
  }
}

// Launch `step` of tokens + 1 goes back from step tokens - 1 - step, block (x, y) for features and rows as in forward.gpu.cu; the last one
// gives the gradients of the first states.
KERNEL(THREADS, 1) sweep(${parameters('sweep')}) {
  const Layer layer{y_view.shape[0], y_view.shape[1], w_hh_view.shape[2], bidirectional ? 2 : 1, lengths};
  const int64_t features = layer.features, all = GATES * features, slices = (features + FEATURES - 1) / FEATURES;
  const int64_t direction = block_x() / slices, first_feature = block_x() % slices * FEATURES, number = layer.tokens - 1 - step;
  const int64_t first_row = static_cast<int64_t>(block_y()) * TILE_ROWS, token = direction == 1 ? layer.tokens - 1 - number : number;
  const Element* const weights = reinterpret_cast<const Element*>(columns) + direction * features * all;
  const auto line = [&](int wanted) -> const Element* {
    const int64_t feature = first_feature + wanted;
    return feature < features ? weights + feature * all : nullptr;
  };
  float sums[ROWS][1] = {};
  if (step > 0) {  // by way of the gates of the step behind
    const int64_t behind = direction == 1 ? token - 1 : token + 1;
    multiply_lines(sums, (GRU ? du : da) + layer.place(direction, behind, 0, all), all, first_row, layer.batch, all, nullptr, 0, line);
  }
  const int64_t j = first_feature + feature_of_thread();
  if (part_of_thread() != 0 || j >= features) return;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const int64_t row = first_row + row_of_thread() + r * ROWS_AT_ONCE;
    if (row >= layer.batch) continue;
    const int64_t own = (direction * layer.batch + row) * features + j;
    float dstate = carried[own] + sums[r][0];
    if (number < 0) {
      if (is_given(dh0_view)) floats(dh0_view, direction, row)[j] = dstate;
      if (LSTM && is_given(dc0_view)) floats(dc0_view, direction, row)[j] = carried_memory[own];
      continue;
    }
    float* const gate = da + layer.place(direction, token, row, all) + j;
    float* const recurrent = GRU ? du + layer.place(direction, token, row, all) + j : nullptr;
    if (token >= layer.length_of(row)) {
      for (int g = 0; g < GATES; ++g) {
        gate[g * features] = 0;
        if (GRU) recurrent[g * features] = 0;
      }
      carried[own] = dstate;
      continue;
    }
    dstate += to_float(elements(dy_view, row, token)[direction * features + j]);
    float past = 0;
    if constexpr (LSTM) {
      const float in = gate[0], keep = gate[features], cell = gate[2 * features], out = gate[3 * features];
      const float memory = memories[layer.place(direction, token, row, features) + j], bent = exact_tanh_of(memory);
      const float dmemory = carried_memory[own] + dstate * out * tanh_slope_of(memory);
      gate[0] = dmemory * cell * in * (1 - in);
      gate[features] = dmemory * memory_before(layer, memories, c0_view, direction, token, row, j) * keep * (1 - keep);
      gate[2 * features] = dmemory * in * (1 - cell * cell);
      gate[3 * features] = dstate * bent * out * (1 - out);
      carried_memory[own] = dmemory * keep;
    } else if constexpr (GRU) {
      const float reset = gate[0], update = gate[features], fresh = gate[2 * features];
      const float dn = dstate * (1 - update) * (1 - fresh * fresh), dr = dn * recurrent[2 * features] * reset * (1 - reset);
      const float dz = dstate * (before[layer.place(direction, token, row, features) + j] - fresh) * update * (1 - update);
      gate[0] = dr, gate[features] = dz, gate[2 * features] = dn;
      recurrent[0] = dr, recurrent[features] = dz, recurrent[2 * features] = dn * reset;
      past = dstate * update;
    } else {
      const float state = to_float(elements(y_view, row, token)[direction * features + j]);
      gate[0] = CELL == 2 ? dstate * (1 - state * state) : state > 0 ? dstate : 0.0f;
    }
    carried[own] = past;
  }
}

KERNEL(SQUARE_THREADS, 1) inputs(${parameters('inputs')}) {
  const int64_t all = w_ih_view.shape[1], batch = dx_view.shape[0], row_count = batch * dx_view.shape[1];
  const int64_t first_row = static_cast<int64_t>(block_x()) * TILE, first_column = static_cast<int64_t>(block_y()) * TILE;
  SquareSums<TILE> sums = {};
  for (int64_t d = 0; d < (bidirectional ? 2 : 1); ++d) {
    Mover<float, TILE, true> left{da + (d * row_count + first_row) * all, all, row_count - first_row, {}};
    Mover<Element, TILE, false> right{elements(w_ih_view, d, 0) + first_column, w_ih_view.strides[1], dx_view.shape[2] - first_column, {}};
    multiply_square<TILE>(sums, left, right, all);
  }
#pragma unroll
  for (int m = 0; m < TILE / 16; ++m) {
    const int64_t row = first_row + thread_x() / 16 * 4 + m;
    if (row >= row_count) continue;
    Element* const to = const_cast<Element*>(elements(dx_view, row % batch, row / batch));
#pragma unroll
    for (int n = 0; n < TILE / 16; ++n) {
      const int64_t column = first_column + thread_x() % 16 * 4 + n;
      if (column < dx_view.shape[2]) to[column] = from_float<Element>(sums[m][n]);
    }
  }
}

// Gradients of w_ih (even z) and w_hh.
KERNEL(SQUARE_THREADS, 1) weights(${parameters('weights')}) {
  const bool recurrent = block_z() % 2 == 1;
  const View& to = recurrent ? dw_hh_view : dw_ih_view;
  const int64_t direction = block_z() / 2, all = to.shape[1], width = to.shape[2];
  const int64_t first_row = static_cast<int64_t>(block_x()) * TILE, first_column = static_cast<int64_t>(block_y()) * TILE;
  if (first_column >= width) return;
  Mover<float, TILE, false> left{(GRU && recurrent ? du : da) + direction * row_count * all + first_row, all, all - first_row, {}};
  Mover<float, TILE, false> right{(recurrent ? before + direction * row_count * width : xs) + first_column, width, width - first_column, {}};
  SquareSums<TILE> sums = {};
  multiply_square<TILE>(sums, left, right, row_count);
  store_square<TILE, Element>(sums, const_cast<Element*>(elements(to, direction, first_row)) + first_column, to.strides[1], nullptr, 0,
                              all - first_row, width - first_column);
}

// Gradients of the biases: 32 columns a block, whose rows 8 groups of threads share.
KERNEL(256, 1) biases(${parameters('biases')}) {
  __shared__ float parts[8][32];
  const int64_t column = static_cast<int64_t>(block_x()) * 32 + thread_x() % 32, direction = block_y();
  const int group = thread_x() / 32;
  for (int of = 0; of < 2; ++of) {
    const View& to = of ? db_hh_view : db_ih_view;
    if (!is_given(to)) continue;
    const float* const from = (GRU && of ? du : da) + direction * row_count * column_count + column;
    float sum = 0;
    for (int64_t row = group; column < column_count && row < row_count; row += 8) sum += from[row * column_count];
    parts[group][thread_x() % 32] = sum;
    sync_block();
    if (group == 0 && column < column_count) {
      for (int i = 1; i < 8; ++i) sum += parts[i][thread_x()];
      static_cast<Element*>(to.data)[direction * to.strides[0] + column] = from_float<Element>(sum);
    }
    sync_block();
  }
}
