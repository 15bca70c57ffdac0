// rnn, forward, on CPUs, in one cooperative launch whose items share out features and rows and meet after each step. An item has all gates
// of its features, so a step is one product and the cell. Before every CHUNK of steps come the inputs' products of all its tokens: the same
// product, of more rows.
#include "device/cpu.h"
#include "rnn/rnn_cell.h"
#include "rnn/rnn_kept.h"

using Element = ${ctype(E)};
constexpr int64_t WIDTH = ${vectors} * (${arch.vector_bytes} / 4);  // features a panel
$if tiles
#include "rnn/rnn_tiled_columns.h"
$else
#include "rnn/rnn_columns.h"
$end
#include "device/tile/grid_barrier.h"

$if tiles
constexpr int64_t STEP_ROWS = PAIR_ROWS;
$else
constexpr int64_t STEP_ROWS = ${step_rows}, DEPTH = ${depth};  // of a register tile; steps of a panel between two visits of it
using Factor = ${pairs ? 'bfloat16' : 'float'};               // what rows of x and of states are, where weights multiply them
static inline int64_t whole_steps(int64_t count) { return ${pairs ? '(count + 1) / 2 * 2' : 'count'}; }
$end
constexpr int64_t UNIT_ROWS = ${unit_rows};                   // of the batch a unit of work

// Some rows of the batch, for a panel's features in one direction.
struct Unit {
  int64_t direction, panel, first, rows;
  Unit(int64_t number, int64_t panels, int64_t row_blocks, int64_t batch)
      : direction(number / row_blocks / panels), panel(number / row_blocks % panels), first(number % row_blocks * UNIT_ROWS),
        rows(least_of(UNIT_ROWS, batch - first)) {}
};

struct Layer {
  int64_t batch, tokens, inputs, features, panels, directions;
  int64_t chunk, input_pitch, pitch;  // steps; floats from one row of xs or of states to the next
  const int32_t* lengths;             // null: all tokens
  const View* gates;                  // [directions][batch][tokens][KEPT and features], or null
$if tiles
  bfloat16* xs;                       // [directions][chunk and batch]: x, as rows of tiles
  float* products;                    // [directions][panels][chunk and batch, whole pairs of tiles][COLUMNS]: x w_ih^T and the biases; of a GRU's n b_ih alone
  bfloat16 *packed_ih, *packed_hh;    // [directions][panels]
  bfloat16* tiles;                    // [2][directions][batch]: states, as rows of tiles
$else
  Factor* xs;                         // [directions][chunk][batch][input_pitch]: x
  float* products;                    // [directions][panels][chunk][batch][COLUMNS]: x w_ih^T and the biases; of a GRU's n b_ih alone
  Element *packed_ih, *packed_hh;     // [directions][panels][even number of steps][COLUMNS]
$if pairs
  bfloat16* rounded;                  // as states
$end
$end
  float* states;                      // [2][directions][batch][pitch]: before steps of even and of odd number
  float* memory;                      // [directions][batch][features]

  int64_t length_of(int64_t row) const { return lengths ? lengths[row] : tokens; }
  int64_t token(int64_t direction, int64_t step) const { return direction == 1 ? tokens - 1 - step : step; }
  float* states_before(int64_t step, int64_t direction) const { return states + (step % 2 * directions + direction) * batch * pitch; }
$if tiles
  bfloat16* panel_ih(int64_t number) const { return packed_ih + number * whole_tiles(inputs) * COLUMNS; }
  bfloat16* panel_hh(int64_t number) const { return packed_hh + number * whole_tiles(features) * COLUMNS; }
  bfloat16* xs_of(int64_t direction) const { return xs + direction * whole_tiles(chunk * batch) * whole_tiles(inputs); }
  bfloat16* tiles_before(int64_t step, int64_t direction) const { return tiles + (step % 2 * directions + direction) * whole_tiles(batch) * whole_tiles(features); }
  float* products_of(int64_t direction, int64_t panel, int64_t row) const {
    return products + ((direction * panels + panel) * whole_tiles(chunk * batch) + row) * COLUMNS;
  }
$else
$if pairs
  bfloat16* factors_before(int64_t step, int64_t direction) const { return rounded + (step % 2 * directions + direction) * batch * pitch; }
$else
  const float* factors_before(int64_t step, int64_t direction) const { return states_before(step, direction); }
$end
  Element* panel_ih(int64_t number) const { return packed_ih + number * ((inputs + 1) / 2 * 2) * COLUMNS; }
  Element* panel_hh(int64_t number) const { return packed_hh + number * ((features + 1) / 2 * 2) * COLUMNS; }
  float* products_of(int64_t direction, int64_t panel, int64_t row) const {
    return products + ((direction * panels + panel) * chunk * batch + row) * COLUMNS;
  }
$end
};

// An item's share of `count` things: those from first to last.
struct Share {
  int64_t first, last;
  Share(const Group& group, int64_t count) : first(count * group.x / group.grid_x), last(count * (group.x + 1) / group.grid_x) {}
};

$if not tiles
static inline void copy_factors(float* to, const Element* from, int64_t count) { copy_row(to, from, count, count); }
$if pairs
static inline void copy_factors(bfloat16* to, const bfloat16* from, int64_t count) {
  __builtin_memcpy(to, from, count * sizeof(bfloat16));
  if (count % 2) to[count] = from_float<bfloat16>(0.0f);
}
$end

$end
// x of a chunk's tokens, row by row as its products take them.
static void gather(const Layer& layer, const View& x, int64_t first_step, int64_t count, const Group& group) {
  const Share rows(group, layer.directions * count * layer.batch);
  for (int64_t i = rows.first; i < rows.last; ++i) {
    const int64_t direction = i / (count * layer.batch), row = i % (count * layer.batch);
    const int64_t token = layer.token(direction, first_step + row / layer.batch);
$if tiles
    copy_tiled_row(layer.xs_of(direction), row, static_cast<const Element*>(x.data) + row % layer.batch * x.strides[0] + token * x.strides[1], layer.inputs);
$else
    copy_factors(layer.xs + (direction * layer.chunk * layer.batch + row) * layer.input_pitch,
                 static_cast<const Element*>(x.data) + row % layer.batch * x.strides[0] + token * x.strides[1], layer.inputs);
$end
  }
}

// The biases of a panel beside the inputs' products.
static void sum_biases(const Layer& layer, const View& b_ih, const View& b_hh, int64_t direction, int64_t panel, float* to) {
  const View* const biases[] = {&b_ih, &b_hh};
  for (int64_t column = 0; column < COLUMNS; column += LANES) {
    const ColumnVector found(panel * COLUMNS + column, layer.features);
    Floats sum = {};
    for (int of = 0; of < 2; ++of) {
      const View& bias = *biases[of];
      if (!is_given(bias) || found.count <= 0 || (GRU && of == 1 && found.gate == 2)) continue;
      sum += load_part(static_cast<const Element*>(bias.data) + direction * bias.strides[0] + found.gate * layer.features + found.feature,
                       found.count);
    }
    store_floats(to + column, sum);
  }
}

// The inputs' products of `row_count` rows of a chunk, shared out by panels, and where those are too few, by blocks of rows: whole register
// tiles, so that sums do not depend on how many share them.
static void multiply_inputs(const Layer& layer, const View& b_ih, const View& b_hh, int64_t row_count, float* wide, const Group& group) {
  const int64_t panels = layer.directions * layer.panels, most = (row_count + 47) / 48, wanted = (4 * group.grid_x + panels - 1) / panels;
  const int64_t blocks = least_of(most, wanted), tiles = (row_count + STEP_ROWS - 1) / STEP_ROWS;
  const Share share(group, panels * blocks);
  for (int64_t i = share.first; i < share.last; ++i) {
    const int64_t direction = i / blocks / layer.panels, panel = i / blocks % layer.panels, block = i % blocks;
    const int64_t first = tiles * block / blocks * STEP_ROWS, rows = least_of(tiles * (block + 1) / blocks * STEP_ROWS, row_count) - first;
    float bias[COLUMNS];
    sum_biases(layer, b_ih, b_hh, direction, panel, bias);
    float* const to = layer.products_of(direction, panel, first);
    for (int64_t p = 0; p < rows; ++p) __builtin_memcpy(to + p * COLUMNS, bias, sizeof bias);
$if tiles
    multiply_tiled(layer.xs_of(direction), first, rows, layer.panel_ih(i / blocks), layer.inputs, to, false);
$else
    add_panel<STEP_ROWS, DEPTH>(layer.xs + (direction * layer.chunk * layer.batch + first) * layer.input_pitch, layer.input_pitch, rows,
                                layer.panel_ih(i / blocks), whole_steps(layer.inputs), to, wide);
$end
  }
}

static float* row_of(const View& view, int64_t direction, int64_t row) {
  return static_cast<float*>(view.data) + direction * view.strides[0] + row * view.strides[1];
}

// h0 or c0 of a unit's features, or zeros.
static void start(const View& view, const Layer& layer, const Unit& unit, float* to, int64_t pitch) {
  for (int64_t b = unit.first; b < unit.first + unit.rows; ++b)
    for (int64_t j = unit.panel * WIDTH; j < least_of((unit.panel + 1) * WIDTH, layer.features); ++j)
      to[b * pitch + j] = is_given(view) ? row_of(view, unit.direction, b)[j] : 0.0f;
}

$if tiles
// States of a unit before the first step, as tiles; zeros where no feature is, before all steps.
static void start_tiles(const Layer& layer, const Unit& unit) {
  const int64_t last = unit.panel + 1 == layer.panels ? whole_tiles(layer.features) : (unit.panel + 1) * WIDTH;
  for (int64_t row = unit.first; row < unit.first + unit.rows; ++row)
    for (int64_t j = unit.panel * WIDTH; j < last; ++j)
      for (int64_t step = 0; step < 2; ++step)
        *tiled_at(layer.tiles_before(step, unit.direction), row, j, layer.features) =
            from_float<bfloat16>(step == 0 && j < layer.features ? layer.states_before(0, unit.direction)[row * layer.pitch + j] : 0.0f);
}

$end
$if pairs
// States of a unit before the first step as products take them; zeros where an odd number of features ends, before all steps.
static void start_factors(const Layer& layer, const Unit& unit) {
  for (int64_t row = unit.first; row < unit.first + unit.rows; ++row)
    for (int64_t j = unit.panel * WIDTH; j < least_of((unit.panel + 1) * WIDTH, whole_steps(layer.features)); ++j)
      for (int64_t step = 0; step < 2; ++step)
        layer.factors_before(step, unit.direction)[row * layer.pitch + j] =
            from_float<bfloat16>(step == 0 && j < layer.features ? layer.states_before(0, unit.direction)[row * layer.pitch + j] : 0.0f);
}

$end
static void end(const View& view, const Layer& layer, const Unit& unit, const float* from, int64_t pitch) {
  for (int64_t b = unit.first; b < unit.first + unit.rows; ++b)
    for (int64_t j = unit.panel * WIDTH; j < least_of((unit.panel + 1) * WIDTH, layer.features); ++j)
      row_of(view, unit.direction, b)[j] = from[b * pitch + j];
}

// The cell for one row and vector of features. `sums`: what the state before brings, by gate, WIDTH apart; `in`: the input, likewise.
static inline Floats cell_of(const float* sums, const float* in, const Element* recurrent_bias, Floats before, Floats& memory, int64_t count) {
  Floats brought[GATES], back[GATES];
  for (int g = 0; g < GATES; ++g) brought[g] = load_floats(in + g * WIDTH), back[g] = load_floats(sums + g * WIDTH);
  return next_state(brought, back, before, GRU && recurrent_bias ? load_part(recurrent_bias, count) : Floats{}, memory);
}

// What the gradient takes of a row and vector of features; sums and in as above.
static void keep_gates(const Layer& layer, float* to, const float* sums, const float* in, const Element* recurrent_bias, Floats memory, int64_t count) {
  const int64_t features = layer.features;
  for (int g = 0; g < GATES; ++g) {
    const Floats brought = load_floats(in + g * WIDTH), back = load_floats(sums + g * WIDTH);
    store_part(to + g * features, GRU && g == 2 ? brought : brought + back, count);
    if (GRU && g == 2) store_part(to + 3 * features, recurrent_bias ? back + load_part(recurrent_bias, count) : back, count);
  }
  if (LSTM) store_part(to + 4 * features, memory, count);
}

// One token of a unit. in: the inputs' products of its rows; recurrent_bias: of a GRU's n, or null.
static void advance(const Layer& layer, const Unit& unit, int64_t step, const float* in, const Element* recurrent_bias, const View& y, float* sums,
                    float* wide) {
  const int64_t features = layer.features, token = layer.token(unit.direction, step);
  const float* before = layer.states_before(step, unit.direction) + unit.first * layer.pitch;
  float* after = layer.states_before(step + 1, unit.direction) + unit.first * layer.pitch;
  float* memory = LSTM ? layer.memory + (unit.direction * layer.batch + unit.first) * features : nullptr;
$if tiles
  multiply_tiled(layer.tiles_before(step, unit.direction), unit.first, unit.rows, layer.panel_hh(unit.direction * layer.panels + unit.panel), features, sums, true);
$else
  __builtin_memset(sums, 0, unit.rows * COLUMNS * sizeof(float));
  add_panel<STEP_ROWS, DEPTH>(layer.factors_before(step, unit.direction) + unit.first * layer.pitch, layer.pitch, unit.rows,
                              layer.panel_hh(unit.direction * layer.panels + unit.panel), whole_steps(features), sums, wide);
$end
  for (int64_t p = 0; p < unit.rows; ++p) {
    const bool valid = token < layer.length_of(unit.first + p);
    Element* out = static_cast<Element*>(y.data) + (unit.first + p) * y.strides[0] + token * y.strides[1] + unit.direction * features;
    for (int64_t v = 0; v < WIDTH; v += LANES) {
      const int64_t feature = unit.panel * WIDTH + v, count = features - feature;
      if (count <= 0) break;
      Floats state = load_part(before + p * layer.pitch + feature, count);
      float* const gates = KEPT > 0 && layer.gates ? gates_in(*layer.gates, unit.direction, unit.first + p, token) + feature : nullptr;
      if (gates && !valid)
        for (int g = 0; g < KEPT; ++g) store_part(gates + g * features, Floats{}, count);
      if (valid) {
        float* const kept_at = LSTM ? memory + p * features + feature : nullptr;
        Floats kept = LSTM ? load_part(kept_at, count) : Floats{};
        const Element* const bias = recurrent_bias ? recurrent_bias + feature : nullptr;
        state = cell_of(sums + p * COLUMNS + v, in + p * COLUMNS + v, bias, state, kept, count);
        if (gates) keep_gates(layer, gates, sums + p * COLUMNS + v, in + p * COLUMNS + v, bias, kept, count);
        if (LSTM) store_part(kept_at, kept, count);
      }
      store_part(after + p * layer.pitch + feature, state, count);
$if tiles
      store_part(tiled_at(layer.tiles_before(step + 1, unit.direction), unit.first + p, feature, features), state, count);
$end
$if pairs
      store_part(layer.factors_before(step + 1, unit.direction) + (unit.first + p) * layer.pitch + feature, state, count);
$end
      store_part(out + feature, valid ? state : Floats{}, count);
    }
  }
}

static void pack_panels(const Layer& layer, const View& weights, bool recurrent, const Group& group) {
  const Share panels(group, layer.directions * layer.panels);
  for (int64_t i = panels.first; i < panels.last; ++i)
    pack_panel(recurrent ? layer.panel_hh(i) : layer.panel_ih(i),
               static_cast<const Element*>(weights.data) + i / layer.panels * weights.strides[0], weights.strides[1], i % layer.panels,
               layer.features, weights.shape[2]);
}

static void layer(${parameters('layer')}, const Group& group) {
  const Layer layer{x_view.shape[0], x_view.shape[1], x_view.shape[2], w_hh_view.shape[2], (w_hh_view.shape[2] + WIDTH - 1) / WIDTH,
                    bidirectional ? 2 : 1, chunk, input_pitch, state_pitch, lengths, keeps ? &gates_view : nullptr, xs, products, reinterpret_cast<Element*>(packed_ih),
                    reinterpret_cast<Element*>(packed_hh), ${tiles ? 'tiles_of_states, ' : pairs ? 'rounded_states, ' : ''}states, memory};
$if tiles
  amx_configure();
$end
  const int64_t row_blocks = (layer.batch + UNIT_ROWS - 1) / UNIT_ROWS;
  const Share units(group, layer.directions * layer.panels * row_blocks);
  float *const sums = static_cast<float*>(group.shared), *const wide = sums + UNIT_ROWS * COLUMNS;
  const auto for_units = [&](const auto& act) {
    for (int64_t i = units.first; i < units.last; ++i) act(Unit(i, layer.panels, row_blocks, layer.batch));
  };
  const auto memory_of = [&](const Unit& unit) { return layer.memory + unit.direction * layer.batch * layer.features; };
  pack_panels(layer, w_ih_view, false, group);
  pack_panels(layer, w_hh_view, true, group);
  for_units([&](const Unit& unit) {
    start(h0_view, layer, unit, layer.states_before(0, unit.direction), layer.pitch);
$if tiles
    start_tiles(layer, unit);
$end
$if pairs
    start_factors(layer, unit);
$end
    if (LSTM) start(c0_view, layer, unit, memory_of(unit), layer.features);
  });
  for (int64_t first = 0; first < layer.tokens; first += layer.chunk) {
    const int64_t count = least_of(layer.chunk, layer.tokens - first);
    gather(layer, x_view, first, count, group);
    grid_barrier();
    multiply_inputs(layer, b_ih_view, b_hh_view, count * layer.batch, wide, group);
    grid_barrier();
    for (int64_t step = first; step < first + count; ++step) {
      for_units([&](const Unit& unit) {
        const Element* bias = nullptr;
        if (GRU && is_given(b_hh_view))
          bias = static_cast<const Element*>(b_hh_view.data) + unit.direction * b_hh_view.strides[0] + 2 * layer.features;
        advance(layer, unit, step, layer.products_of(unit.direction, unit.panel, (step - first) * layer.batch + unit.first), bias, y_view, sums,
                wide);
      });
      grid_barrier();
    }
  }
  for_units([&](const Unit& unit) {
    end(h_n_view, layer, unit, layer.states_before(layer.tokens, unit.direction), layer.pitch);
    if (LSTM && is_given(c_n_view)) end(c_n_view, layer, unit, memory_of(unit), layer.features);
  });
$if tiles
  amx_release();
$end
}
