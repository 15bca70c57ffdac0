// rnn, forward, on CPUs: the inputs' products for all tokens, blocked; then the steps in one cooperative launch, whose items share out
// features and rows and meet after each step. An item has all gates of its features, so a step is one product and the cell.
#include "device/cpu.h"
#include "rnn/rnn_cell.h"

using Element = ${ctype(E)};
constexpr int64_t WIDTH = ${vectors} * (${arch.vector_bytes} / 4);  // features a panel
#include "rnn/rnn_columns.h"
#include "rnn/rnn_panel.h"
#include "device/matrix/product.h"
#include "device/tile/grid_barrier.h"

constexpr int64_t BLOCK_M = ${block_m}, BLOCK_N = ${block_n};  // of the inputs' products, an item
using Shape = ProductShape<${panel_rows}, 3, 512>;
constexpr int64_t STEP_ROWS = ${step_rows}, DEPTH = ${depth};  // of a register tile of a step; steps of a panel between two visits of it
constexpr int64_t UNIT_ROWS = ${unit_rows};                   // of the batch a unit of work

// products[direction][token][panel][row of the batch][COLUMNS]: x w_ih^T and the biases; of a GRU's n b_ih alone.
static void inputs(${parameters('inputs')}, const Group& group) {
  const int64_t direction = group.z, batch = x_view.shape[0], features = w_hh_view.shape[2], panels = (features + WIDTH - 1) / WIDTH;
  const int64_t first_row = group.y * BLOCK_M, first_column = group.x * BLOCK_N, all_rows = batch * x_view.shape[1];
  const int64_t rows = least_of(BLOCK_M, all_rows - first_row), columns = least_of(BLOCK_N, panels * COLUMNS - first_column);
  const LayerWeights<Element> weights{static_cast<const Element*>(w_ih_view.data) + direction * w_ih_view.strides[0], w_ih_view.strides[1], features};
  const Element* biases[2] = {};
  if (is_given(b_ih_view)) biases[0] = static_cast<const Element*>(b_ih_view.data) + direction * b_ih_view.strides[0];
  if (is_given(b_hh_view)) biases[1] = static_cast<const Element*>(b_hh_view.data) + direction * b_hh_view.strides[0];

  const auto finish = [&](int64_t row, int64_t column, int64_t height, int64_t width, const float* sums) {
    for (int64_t v = 0; v < width; v += LANES) {
      const int64_t at = first_column + column + v;
      const ColumnVector found(at, features);
      Floats bias = {};
      for (int of = 0; of < 2; ++of)
        if (biases[of] && !(GRU && of == 1 && found.gate == 2)) bias += load_part(biases[of] + found.gate * features + found.feature, found.count);
      for (int64_t p = 0; p < height; ++p) {
        const int64_t number = first_row + row + p, token = number / batch, b = number % batch;
        float* to = products + (((direction * x_view.shape[1] + token) * panels + at / COLUMNS) * batch + b) * COLUMNS + at % COLUMNS;
        store_floats(to, load_floats(sums + p * Shape::WIDTH + v) + bias);
      }
    }
  };
  multiply_block<Shape>(InputRows<Element, Shape::DEPTH>{x_view, first_row}, LayerColumns<Element, Shape::WIDTH>{weights, first_column}, rows,
                        columns, x_view.shape[2], static_cast<float*>(group.shared), finish);
}

// Some rows of the batch, for a panel's features in one direction.
struct Unit {
  int64_t direction, panel, first, rows;
  Unit(int64_t number, int64_t panels, int64_t row_blocks, int64_t batch)
      : direction(number / row_blocks / panels), panel(number / row_blocks % panels), first(number % row_blocks * UNIT_ROWS),
        rows(least_of(UNIT_ROWS, batch - first)) {}
};

struct Layer {
  int64_t batch, tokens, features, panels, directions;
  const int32_t* lengths;  // null: all tokens
  float* states;           // [2][directions][batch][features]: before steps of even and of odd number
  float* memory;           // [directions][batch][features]

  int64_t length_of(int64_t row) const { return lengths ? lengths[row] : tokens; }
  float* states_before(int64_t step, int64_t direction) const { return states + (step % 2 * directions + direction) * batch * features; }
};

static float* row_of(const View& view, int64_t direction, int64_t row) {
  return static_cast<float*>(view.data) + direction * view.strides[0] + row * view.strides[1];
}

// h0 or c0 of a unit's features, or zeros.
static void start(const View& view, const Layer& layer, const Unit& unit, float* to) {
  for (int64_t b = unit.first; b < unit.first + unit.rows; ++b)
    for (int64_t j = unit.panel * WIDTH; j < least_of((unit.panel + 1) * WIDTH, layer.features); ++j)
      to[b * layer.features + j] = is_given(view) ? row_of(view, unit.direction, b)[j] : 0.0f;
}

static void end(const View& view, const Layer& layer, const Unit& unit, const float* from) {
  for (int64_t b = unit.first; b < unit.first + unit.rows; ++b)
    for (int64_t j = unit.panel * WIDTH; j < least_of((unit.panel + 1) * WIDTH, layer.features); ++j)
      row_of(view, unit.direction, b)[j] = from[b * layer.features + j];
}

// The cell for one row and vector of features. `sums`: what the state before brings, by gate, WIDTH apart; `in`: the input, likewise.
static inline Floats cell_of(const float* sums, const float* in, const Element* recurrent_bias, Floats before, Floats& memory, int64_t count) {
  Floats brought[GATES], back[GATES];
  for (int g = 0; g < GATES; ++g) brought[g] = load_floats(in + g * WIDTH), back[g] = load_floats(sums + g * WIDTH);
  return next_state(brought, back, before, GRU && recurrent_bias ? load_part(recurrent_bias, count) : Floats{}, memory);
}

// One token of a unit. in: the inputs' products of the panel; recurrent_bias: of a GRU's n, or null.
static void advance(const Layer& layer, const Unit& unit, int64_t step, int64_t token, const Element* panel, const float* in,
                    const Element* recurrent_bias, const View& y, float* sums) {
  const int64_t features = layer.features;
  const float* before = layer.states_before(step, unit.direction) + unit.first * features;
  float* after = layer.states_before(step + 1, unit.direction) + unit.first * features;
  float* memory = LSTM ? layer.memory + (unit.direction * layer.batch + unit.first) * features : nullptr;
  multiply_panel<STEP_ROWS, DEPTH>(before, features, unit.rows, panel, features, sums);
  for (int64_t p = 0; p < unit.rows; ++p) {
    const bool valid = token < layer.length_of(unit.first + p);
    Element* out = static_cast<Element*>(y.data) + (unit.first + p) * y.strides[0] + token * y.strides[1] + unit.direction * features;
    for (int64_t v = 0; v < WIDTH; v += LANES) {
      const int64_t feature = unit.panel * WIDTH + v, count = features - feature, at = p * features + feature;
      if (count <= 0) break;
      Floats state = load_part(before + at, count);
      if (valid) {
        Floats kept = LSTM ? load_part(memory + at, count) : Floats{};
        state = cell_of(sums + p * COLUMNS + v, in + (unit.first + p) * COLUMNS + v, recurrent_bias ? recurrent_bias + feature : nullptr, state,
                        kept, count);
        if (LSTM) store_part(memory + at, kept, count);
      }
      store_part(after + at, state, count);
      store_part(out + feature, valid ? state : Floats{}, count);
    }
  }
}

static void steps(${parameters('steps')}, const Group& group) {
  const Layer layer{x_view.shape[0], x_view.shape[1], w_hh_view.shape[2], (w_hh_view.shape[2] + WIDTH - 1) / WIDTH,
                    bidirectional ? 2 : 1, lengths, states, memory};
  const int64_t row_blocks = (layer.batch + UNIT_ROWS - 1) / UNIT_ROWS, all_panels = layer.directions * layer.panels;
  const int64_t units = all_panels * row_blocks, panel_size = layer.features * COLUMNS;
  Element* const weights_by_panel = reinterpret_cast<Element*>(packed);
  const int64_t first = units * group.x / group.grid_x, last = units * (group.x + 1) / group.grid_x;
  for (int64_t i = all_panels * group.x / group.grid_x; i < all_panels * (group.x + 1) / group.grid_x; ++i) {
    const LayerWeights<Element> weights{static_cast<const Element*>(w_hh_view.data) + i / layer.panels * w_hh_view.strides[0],
                                        w_hh_view.strides[1], layer.features};
    for (int64_t c = 0; c < COLUMNS; c += LANES)
      weights.pack_vector(weights_by_panel + i * panel_size + c, COLUMNS, i % layer.panels * COLUMNS + c, 0, layer.features);
  }
  for (int64_t i = first; i < last; ++i) {
    const Unit unit(i, layer.panels, row_blocks, layer.batch);
    start(h0_view, layer, unit, layer.states_before(0, unit.direction));
    if (LSTM) start(c0_view, layer, unit, layer.memory + unit.direction * layer.batch * layer.features);
  }
  grid_barrier();
  for (int64_t step = 0; step < layer.tokens; ++step) {
    for (int64_t i = first; i < last; ++i) {
      const Unit unit(i, layer.panels, row_blocks, layer.batch);
      const int64_t token = unit.direction == 1 ? layer.tokens - 1 - step : step;
      const float* in = products + ((unit.direction * layer.tokens + token) * layer.panels + unit.panel) * layer.batch * COLUMNS;
      const Element* bias = GRU && is_given(b_hh_view)
                                ? static_cast<const Element*>(b_hh_view.data) + unit.direction * b_hh_view.strides[0] + 2 * layer.features
                                : nullptr;
      advance(layer, unit, step, token, weights_by_panel + (unit.direction * layer.panels + unit.panel) * panel_size, in, bias, y_view,
              static_cast<float*>(group.shared));
    }
    grid_barrier();
  }
  for (int64_t i = first; i < last; ++i) {
    const Unit unit(i, layer.panels, row_blocks, layer.batch);
    end(h_n_view, layer, unit, layer.states_before(layer.tokens, unit.direction));
    if (LSTM && is_given(c_n_view)) end(c_n_view, layer, unit, layer.memory + unit.direction * layer.batch * layer.features);
  }
}
