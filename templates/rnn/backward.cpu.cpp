// rnn_bwd on CPUs. y has every state, so an LSTM's and a GRU's gates are made again by products over all tokens at once. Then one
// cooperative launch goes through the steps from the last, its items sharing out features and rows; the gradients of x and of the weights
// are products over all tokens again. Rows of what has a row a token are t * B + b; those past a row's length are 0.
//
//   da   [directions][rows][GATES * H]: what gates take from x, then the gates, then their gradients
//   du   of a GRU the same of what they take from the state, whose n the gate r multiplies; otherwise da is both
#include "device/cpu.h"
#include "rnn/rnn_cell.h"
#include "rnn/rnn_kept.h"

using Element = ${ctype(E)};
constexpr int64_t WIDTH = ${vectors} * (${arch.vector_bytes} / 4), COLUMNS = WIDTH;  // features a panel of the steps
$if tiles
#include "device/tile/grid_barrier.h"
#include "rnn/rnn_tiles.h"
$else
#include "device/matrix/product.h"
#include "rnn/rnn_some.h"
#include "device/tile/grid_barrier.h"
#include "rnn/rnn_panel.h"
$end

constexpr int64_t BLOCK_M = ${block_m}, BLOCK_N = ${block_n};  // of products over all tokens, an item
$if tiles
constexpr int64_t PRODUCT_DEPTH = 512, UNIT_ROWS = ${unit_rows};
$else
constexpr int PANEL_ROWS = ${panel_rows};
using Shape = ProductShape<PANEL_ROWS, 3, 512>;
constexpr int64_t STEP_ROWS = ${step_rows}, DEPTH = ${depth}, UNIT_ROWS = ${unit_rows};  // as forward.cpu.cpp has them
$end

static inline const Element* elements(const View& view, int64_t outer, int64_t row) {
  return static_cast<const Element*>(view.data) + outer * view.strides[0] + row * view.strides[1];
}
static inline float* floats(const View& view, int64_t direction, int64_t row) {
  return static_cast<float*>(view.data) + direction * view.strides[0] + row * view.strides[1];
}

$if tiles
static void copy_floats(bfloat16* to, const bfloat16* from, int64_t count) { __builtin_memcpy(to, from, count * sizeof(bfloat16)); }
$else
static void copy_floats(float* to, const Element* from, int64_t count) { copy_row(to, from, count, count); }
$end

// xs[t * B + b]: x; before[direction][t * B + b]: the state before the token. Item (t, b).
static void gather(${parameters('gather')}, const Group& group) {
  const int64_t token = group.x, row = group.y, tokens = x_view.shape[1], batch = x_view.shape[0], inputs = x_view.shape[2];
  const int64_t features = w_hh_view.shape[2], directions = bidirectional ? 2 : 1, length = lengths ? lengths[row] : tokens;
  const int64_t place = token * batch + row;
  if (token < length)
    copy_floats(xs + place * inputs, elements(x_view, row, token), inputs);
  else
    __builtin_memset(xs + place * inputs, 0, inputs * sizeof(${tiles ? 'bfloat16' : 'float'}));
  for (int64_t d = 0; d < directions; ++d) {
    ${tiles ? 'bfloat16' : 'float'}* to = before + (d * tokens * batch + place) * features;
    const int64_t previous = d == 1 ? token + 1 : token - 1;
    if (token < length && previous >= 0 && previous < length)
      copy_floats(to, elements(y_view, row, previous) + d * features, features);
    else if (token < length && is_given(h0_view))
$if tiles
      for (int64_t j = 0; j < features; ++j) to[j] = from_float<bfloat16>(floats(h0_view, d, row)[j]);
$else
      __builtin_memcpy(to, floats(h0_view, d, row), features * sizeof(float));
$end
    else
      __builtin_memset(to, 0, features * sizeof(${tiles ? 'bfloat16' : 'float'}));
  }
}

// What x and the state bring to an LSTM's or a GRU's gates.
static void gates(${parameters('gates')}, const Group& group) {
  const int64_t direction = group.z, features = w_hh_view.shape[2], all = GATES * features;
  const int64_t first_row = group.y * BLOCK_M, first_column = group.x * BLOCK_N;
  const int64_t rows = least_of(BLOCK_M, row_count - first_row), columns = least_of(BLOCK_N, all - first_column);
  float* const scratch = static_cast<float*>(group.shared);
  const auto multiply = [&](const ${tiles ? 'bfloat16' : 'float'}* left, const View& weights, const View& bias, float* to, bool adds) {
    const Element* of_bias = is_given(bias) ? static_cast<const Element*>(bias.data) + direction * bias.strides[0] + first_column : nullptr;
    const int64_t depth = weights.shape[2];
    to += (direction * row_count + first_row) * all + first_column;
    const auto finish = [&](int64_t row, int64_t column, int64_t height, int64_t width, const float* sums) {
      for (int64_t p = 0; p < height; ++p)
        for (int64_t v = 0; v < width; v += LANES) {
          float* at = to + (row + p) * all + column + v;
          Floats sum = load_floats(sums + p * ${tiles ? '32' : 'Shape::WIDTH'} + v);
          if (of_bias) sum += load_part(of_bias + column + v, width - v);
          if (adds) sum += load_part(at, width - v);
          store_part(at, sum, width - v);
        }
    };
$if tiles
    multiply_block_amx<PRODUCT_DEPTH>(AmxOperand<true, true>{left + first_row * depth, depth}, AmxOperand<true, false>{elements(weights, direction, first_column), weights.strides[1]},
                                      rows, columns, depth, scratch, finish);
$else
    multiply_block<Shape>(LeftRows<float, Shape::DEPTH>{left + first_row * depth, depth},
                          RightColumns<Element, Shape::WIDTH>{elements(weights, direction, first_column), weights.strides[1]}, rows, columns, depth,
                          scratch, finish);
$end
  };
  multiply(xs, w_ih_view, b_ih_view, da, false);
  multiply(before + direction * row_count * features, w_hh_view, b_hh_view, GRU ? du : da, LSTM);
}

// Some rows of the batch and features of a direction.
struct Unit {
  int64_t direction, feature, first, rows;
};

struct Layer {
  int64_t batch, tokens, features, panels, directions;
  const int32_t* lengths;
  const View* saved;                // [directions][batch][tokens][KEPT and features], or null
  float *da, *du, *memories;        // memories: an LSTM's c after each token
  const ${tiles ? 'bfloat16' : 'float'}* before;
$if tiles
  bfloat16 *rounded_da, *rounded_du;  // da's and du's gradients
  bfloat16* tiles;                    // [2][directions][batch]: du's of a step, as rows of tiles; gates begin whole tiles apart
$end
  float *carried, *carried_memory;  // [directions][batch][features]: gradients of the state and of c on their way to the token before

  int64_t length_of(int64_t row) const { return lengths ? lengths[row] : tokens; }
  int64_t token(int64_t direction, int64_t step) const { return direction == 1 ? tokens - 1 - step : step; }
  // Of a buffer that has `width` numbers for each direction, token and row of the batch.
  int64_t place(int64_t direction, int64_t token, int64_t row, int64_t width) const {
    return ((direction * tokens + token) * batch + row) * width;
  }
$if tiles
  int64_t gate_pitch() const { return whole_tiles(features); }
  bfloat16* tiles_of(int64_t step, int64_t direction) const { return tiles + (step % 2 * directions + direction) * whole_tiles(batch) * GATES * gate_pitch(); }
  bfloat16* tiled(int64_t step, int64_t direction, int64_t row, int64_t gate, int64_t feature) const {
    return tiled_at(tiles_of(step, direction), row, gate * gate_pitch() + feature, GATES * gate_pitch());
  }
  // A vector of gradients of a gate at a token, and what of it the state takes, as products take them.
  void round(int64_t direction, int64_t token, int64_t row, int64_t gate, int64_t feature, Floats of_x, Floats of_state) const {
    const int64_t at = place(direction, token, row, GATES * features) + gate * features + feature, count = features - feature;
    store_part(rounded_da + at, of_x, count);
    if (GRU) store_part(rounded_du + at, of_state, count);
    store_part(tiled(token, direction, row, gate, feature), of_state, count);
  }
$end
  // c before a token: of the token before it, or where there is none, c0.
  Floats memory_before(const View& c0, int64_t direction, int64_t token, int64_t row, int64_t feature, int64_t count) const {
    const int64_t previous = direction == 1 ? token + 1 : token - 1;
    if (previous >= 0 && previous < length_of(row)) return load_part(memories + place(direction, previous, row, features) + feature, count);
    return is_given(c0) ? load_part(floats(c0, direction, row) + feature, count) : Floats{};
  }
};

// The gates themselves, and an LSTM's c.
static void activate(const Layer& layer, const Unit& unit, const View& c0) {
  const int64_t features = layer.features, all = GATES * features;
  for (int64_t step = 0; step < layer.tokens; ++step)
    for (int64_t b = unit.first; b < unit.first + unit.rows; ++b) {
      const int64_t token = layer.token(unit.direction, step);
      if (token >= layer.length_of(b)) continue;
      float* const gate = layer.da + layer.place(unit.direction, token, b, all);
      float* const recurrent = GRU ? layer.du + layer.place(unit.direction, token, b, all) : nullptr;
      const float* const saved = layer.saved ? gates_in(*layer.saved, unit.direction, b, token) : nullptr;
      for (int64_t j = unit.feature; j < least_of(unit.feature + WIDTH, features); j += LANES) {
        const int64_t count = features - j;
        Floats of[GATES];
        for (int g = 0; g < GATES; ++g) {
          of[g] = load_part((saved ? saved : gate) + g * features + j, count);
          if (GRU && !saved && g < 2) of[g] += load_part(recurrent + g * features + j, count);
        }
        if (GRU && saved) store_part(recurrent + 2 * features + j, load_part(saved + 3 * features + j, count), count);
        if constexpr (LSTM) {
          for (int g = 0; g < GATES; ++g) of[g] = g == 2 ? tanh_of(of[g]) : sigmoid_of(of[g]);
          const Floats memory = of[1] * layer.memory_before(c0, unit.direction, token, b, j, count) + of[0] * of[2];
          store_part(layer.memories + layer.place(unit.direction, token, b, features) + j, memory, count);
        } else if constexpr (GRU) {
          for (int g = 0; g < 2; ++g) of[g] = sigmoid_of(of[g]);
          of[2] = tanh_of(of[2] + of[0] * load_part(recurrent + 2 * features + j, count));
        }
        for (int g = 0; g < GATES; ++g) store_part(gate + g * features + j, of[g], count);
      }
    }
}

// A vector of features of a row at a token: the gates' gradients from the state's, dstate; returns what of it flows past the gates.
static Floats step_back(const Layer& layer, const Unit& unit, int64_t token, int64_t b, int64_t j, Floats dstate, const View& c0, const Element* y) {
  const int64_t features = layer.features, all = GATES * features, count = features - j;
  float* const to = layer.da + layer.place(unit.direction, token, b, all) + j;
  Floats of[GATES], d[GATES], past = {};
  for (int g = 0; g < GATES; ++g) of[g] = load_part(to + g * features, count);
  if constexpr (LSTM) {
    float* const carried = layer.carried_memory + (unit.direction * layer.batch + b) * features + j;
    const Floats bent = tanh_of(load_part(layer.memories + layer.place(unit.direction, token, b, features) + j, count));
    const Floats dmemory = load_part(carried, count) + dstate * of[3] * (1.0f - bent * bent);
    d[0] = dmemory * of[2] * of[0] * (1.0f - of[0]);
    d[1] = dmemory * layer.memory_before(c0, unit.direction, token, b, j, count) * of[1] * (1.0f - of[1]);
    d[2] = dmemory * of[0] * (1.0f - of[2] * of[2]);
    d[3] = dstate * bent * of[3] * (1.0f - of[3]);
    store_part(carried, dmemory * of[1], count);
  } else if constexpr (GRU) {
    float* const recurrent = layer.du + layer.place(unit.direction, token, b, all) + j;
    const Floats was = load_part(layer.before + layer.place(unit.direction, token, b, features) + j, count);
    d[2] = dstate * (1.0f - of[1]) * (1.0f - of[2] * of[2]);
    d[0] = d[2] * load_part(recurrent + 2 * features, count) * of[0] * (1.0f - of[0]);
    d[1] = dstate * (was - of[2]) * of[1] * (1.0f - of[1]);
    past = dstate * of[1];
    store_part(recurrent, d[0], count), store_part(recurrent + features, d[1], count);
    store_part(recurrent + 2 * features, d[2] * of[0], count);
  } else {
    const Floats state = load_part(y + j, count);
    d[0] = CELL == 2 ? dstate * (1.0f - state * state) : (state > splat(0.0f) ? dstate : Floats{});
  }
  for (int g = 0; g < GATES; ++g) store_part(to + g * features, d[g], count);
$if tiles
  for (int g = 0; g < GATES; ++g) layer.round(unit.direction, token, b, g, j, d[g], GRU && g == 2 ? d[g] * of[0] : d[g]);
$end
  return past;
}

static void clear(const Layer& layer, const Unit& unit, int64_t token, int64_t b, int64_t j) {
  const int64_t features = layer.features, at = layer.place(unit.direction, token, b, GATES * features) + j;
  for (int g = 0; g < GATES; ++g) {
    store_part(layer.da + at + g * features, Floats{}, features - j);
    if (GRU) store_part(layer.du + at + g * features, Floats{}, features - j);
$if tiles
    layer.round(unit.direction, token, b, g, j, Floats{}, Floats{});
$end
  }
}

static void sweep(${parameters('sweep')}, const Group& group) {
  const int64_t features = w_hh_view.shape[2], panels = (features + WIDTH - 1) / WIDTH, all = GATES * features;
  const Layer layer{y_view.shape[0], y_view.shape[1], features, panels, bidirectional ? 2 : 1, lengths, KEPT > 0 && saved ? &gates_view : nullptr, da, GRU ? du : da, memories, before,
$if tiles
                    rounded_da, rounded_du, tiles_of_gradients, carried, carried_memory};
  amx_configure();
$else
                    carried, carried_memory};
$end
  const int64_t row_blocks = (layer.batch + UNIT_ROWS - 1) / UNIT_ROWS, all_panels = layer.directions * panels, units = all_panels * row_blocks;
  const int64_t first = units * group.x / group.grid_x, last = units * (group.x + 1) / group.grid_x;
  const auto unit_of = [&](int64_t i) {
    const int64_t row = i % row_blocks * UNIT_ROWS;
    return Unit{i / row_blocks / panels, i / row_blocks % panels * WIDTH, row, least_of(UNIT_ROWS, layer.batch - row)};
  };
  Element* const weights = reinterpret_cast<Element*>(packed);  // [direction][panel][GATES * H, even][WIDTH]
$if tiles
  const int64_t steps = GATES * layer.gate_pitch(), panel_size = steps * WIDTH;
  for (int64_t i = all_panels * group.x / group.grid_x; i < all_panels * (group.x + 1) / group.grid_x; ++i)
    for (int64_t g = 0; g < GATES; ++g)
      for (int64_t s = 0; s < features; s += TILE_STEPS)
        for (int64_t v = 0; v < WIDTH; v += LANES) {
          const int64_t feature = i % panels * WIDTH + v;
          pack_steps(reinterpret_cast<float*>(tiled_at(weights + i * panel_size, v, g * layer.gate_pitch() + s, steps)),
                     elements(w_hh_view, i / panels, g * features + s) + feature, w_hh_view.strides[1], features - feature, features - s, false);
        }
  for (int64_t i = first; i < last; ++i) {  // where no feature is
    const Unit unit = unit_of(i);
    for (int64_t b = unit.first; b < unit.first + unit.rows; ++b)
      for (int64_t g = 0; g < GATES; ++g)
        for (int64_t j = unit.feature; j < least_of(unit.feature + WIDTH, layer.gate_pitch()); ++j)
          *layer.tiled(0, unit.direction, b, g, j) = *layer.tiled(1, unit.direction, b, g, j) = from_float<bfloat16>(0.0f);
  }
$else
  const int64_t panel_size = (all + 1) / 2 * 2 * WIDTH;
  for (int64_t i = all_panels * group.x / group.grid_x; i < all_panels * (group.x + 1) / group.grid_x; ++i)
    for (int64_t s = 0; s < all; s += 2)
      for (int64_t v = 0; v < WIDTH; v += LANES) {
        const int64_t feature = i % panels * WIDTH + v;
        const auto line = [&](int64_t of) {
          return of < all && feature < features ? load_part(elements(w_hh_view, i / panels, of) + feature, features - feature) : Floats{};
        };
        store_two_steps(weights + i * panel_size, s, v, line(s), line(s + 1));
      }
$end
  for (int64_t i = first; i < last; ++i) {
    const Unit unit = unit_of(i);
    if (LSTM || GRU) activate(layer, unit, c0_view);
    for (int64_t b = unit.first; b < unit.first + unit.rows; ++b)
      for (int64_t j = unit.feature; j < least_of(unit.feature + WIDTH, features); ++j) {
        const int64_t at = (unit.direction * layer.batch + b) * features + j;
        carried[at] = is_given(dh_n_view) ? floats(dh_n_view, unit.direction, b)[j] : 0.0f;
        if (LSTM) carried_memory[at] = is_given(dc_n_view) ? floats(dc_n_view, unit.direction, b)[j] : 0.0f;
      }
  }
  grid_barrier();
$if tiles
  float* const sums = static_cast<float*>(group.shared);
$else
  float *const sums = static_cast<float*>(group.shared), *const wide = sums + UNIT_ROWS * WIDTH;
$end
  // The gradient of the state after step - 1: by way of the gates of `step`, and what is carried past them.
  const auto product = [&](const Unit& unit, int64_t step) {
$if tiles
    multiply_tiled(layer.tiles_of(layer.token(unit.direction, step), unit.direction), unit.first, unit.rows,
                   weights + (unit.direction * panels + unit.feature / WIDTH) * panel_size, steps, sums, true);
$else
    const float* rows = layer.du + layer.place(unit.direction, layer.token(unit.direction, step), unit.first, all);
    const Element* const panel = weights + (unit.direction * panels + unit.feature / WIDTH) * panel_size;
    __builtin_memset(sums, 0, unit.rows * WIDTH * sizeof(float));
    add_panel<STEP_ROWS, DEPTH>(rows, all, unit.rows, panel, all, sums, wide);
$end
  };
  for (int64_t step = layer.tokens - 1; step >= 0; --step) {
    for (int64_t i = first; i < last; ++i) {
      const Unit unit = unit_of(i);
      const int64_t token = layer.token(unit.direction, step);
      if (step + 1 < layer.tokens)
        product(unit, step + 1);
      else
        __builtin_memset(sums, 0, unit.rows * WIDTH * sizeof(float));
      for (int64_t p = 0; p < unit.rows; ++p) {
        const int64_t b = unit.first + p;
        for (int64_t j = unit.feature; j < least_of(unit.feature + WIDTH, features); j += LANES) {
          const int64_t count = features - j;
          float* const to = carried + (unit.direction * layer.batch + b) * features + j;
          Floats dstate = load_part(to, count) + load_floats(sums + p * WIDTH + j - unit.feature);
          if (token < layer.length_of(b)) {
            dstate += load_part(elements(dy_view, b, token) + unit.direction * features + j, count);
            dstate = step_back(layer, unit, token, b, j, dstate, c0_view, elements(y_view, b, token) + unit.direction * features);
          } else {
            clear(layer, unit, token, b, j);
          }
          store_part(to, dstate, count);
        }
      }
    }
    grid_barrier();
  }
  for (int64_t i = first; i < last; ++i) {
    const Unit unit = unit_of(i);
    if (layer.tokens > 0)
      product(unit, 0);
    else
      __builtin_memset(sums, 0, unit.rows * WIDTH * sizeof(float));
    for (int64_t p = 0; p < unit.rows; ++p)
      for (int64_t j = unit.feature; j < least_of(unit.feature + WIDTH, features); ++j) {
        const int64_t b = unit.first + p, at = (unit.direction * layer.batch + b) * features + j;
        if (is_given(dh0_view)) floats(dh0_view, unit.direction, b)[j] = carried[at] + sums[p * WIDTH + j - unit.feature];
        if (LSTM && is_given(dc0_view)) floats(dc0_view, unit.direction, b)[j] = carried_memory[at];
      }
  }
$if tiles
  amx_release();
$end
}

// dx: the gates' gradients times w_ih, of both directions.
static void inputs(${parameters('inputs')}, const Group& group) {
  const int64_t batch = dx_view.shape[0], features = w_ih_view.shape[1] / GATES, all = GATES * features, directions = bidirectional ? 2 : 1;
  const int64_t first_row = group.y * BLOCK_M, first_column = group.x * BLOCK_N, row_count = batch * dx_view.shape[1];
  const int64_t rows = least_of(BLOCK_M, row_count - first_row), columns = least_of(BLOCK_N, dx_view.shape[2] - first_column);
  float *const held = static_cast<float*>(group.shared), *const scratch = held + BLOCK_M * BLOCK_N;
  for (int64_t d = 0; d < directions; ++d) {
    const auto finish = [&](int64_t row, int64_t column, int64_t height, int64_t width, const float* sums) {
      for (int64_t p = 0; p < height; ++p)
        for (int64_t v = 0; v < width; v += LANES) {
          float* const of_first = held + (row + p) * BLOCK_N + column + v;
          Floats sum = load_floats(sums + p * ${tiles ? '32' : 'Shape::WIDTH'} + v);
          if (d > 0) sum += load_floats(of_first);
          if (d + 1 < directions) {
            store_floats(of_first, sum);
            continue;
          }
          const int64_t number = first_row + row + p;
          Element* to = static_cast<Element*>(dx_view.data) + number % batch * dx_view.strides[0] + number / batch * dx_view.strides[1];
          store_part(to + first_column + column + v, sum, width - v);
        }
    };
$if tiles
    multiply_block_amx<PRODUCT_DEPTH>(AmxOperand<true, true>{rounded_da + (d * row_count + first_row) * all, all},
                                      AmxOperand<false, false>{elements(w_ih_view, d, 0) + first_column, w_ih_view.strides[1]}, rows, columns, all, scratch, finish);
$else
    multiply_block<Shape>(LeftRows<float, Shape::DEPTH>{da + (d * row_count + first_row) * all, all},
                          RightRows<Element, Shape::WIDTH>{elements(w_ih_view, d, 0) + first_column, w_ih_view.strides[1]}, rows, columns, all, scratch,
                          finish);
$end
  }
}

// Gradients of w_ih (items of even z) and w_hh.
static void weights(${parameters('weights')}, const Group& group) {
  const bool recurrent = group.z % 2 == 1;
  const View& to = recurrent ? dw_hh_view : dw_ih_view;
  const int64_t direction = group.z / 2, all = to.shape[1], width = to.shape[2], first_row = group.y * BLOCK_M, first_column = group.x * BLOCK_N;
  const int64_t rows = least_of(BLOCK_M, all - first_row), columns = least_of(BLOCK_N, width - first_column);
  if (columns <= 0) return;
  const ${tiles ? 'bfloat16' : 'float'}* const left = (GRU && recurrent ? ${tiles ? 'rounded_' : ''}du : ${tiles ? 'rounded_' : ''}da) + direction * row_count * all + first_row;
  const ${tiles ? 'bfloat16' : 'float'}* const right = recurrent ? before + direction * row_count * width : xs;
  Element* const out = const_cast<Element*>(elements(to, direction, first_row)) + first_column;
  const auto finish = [&](int64_t row, int64_t column, int64_t height, int64_t count, const float* sums) {
    for (int64_t p = 0; p < height; ++p)
      for (int64_t v = 0; v < count; v += LANES)
        store_part(out + (row + p) * to.strides[1] + column + v, load_floats(sums + p * ${tiles ? '32' : 'Shape::WIDTH'} + v), count - v);
  };
$if tiles
  multiply_block_amx<PRODUCT_DEPTH>(AmxOperand<false, true>{left, all}, AmxOperand<false, false>{right + first_column, width}, rows, columns, row_count,
                                    static_cast<float*>(group.shared), finish);
$else
  multiply_block<Shape>(LeftColumns<float, PANEL_ROWS, Shape::DEPTH>{left, all}, RightRows<float, Shape::WIDTH>{right + first_column, width}, rows,
                        columns, row_count, static_cast<float*>(group.shared), finish);
$end
}

// Gradients of the biases: 64 columns an item, 256 rows at once.
static void biases(${parameters('biases')}, const Group& group) {
  const int64_t first = group.x * 64, count = least_of(64, column_count - first), direction = group.y;
  constexpr bool both[] = {false, true};
  for (const bool recurrent : both) {
    const View* const to = recurrent ? &db_hh_view : &db_ih_view;
    if (!is_given(*to)) continue;
    const float* const from = (GRU && recurrent ? du : da) + direction * row_count * column_count + first;
    float sums[64] = {};
    for (int64_t block = 0; block < row_count; block += 256) {
      float part[64] = {};
      for (int64_t row = block; row < least_of(block + 256, row_count); ++row)
        for (int64_t c = 0; c < count; ++c) part[c] += from[row * column_count + c];
      for (int64_t c = 0; c < count; ++c) sums[c] += part[c];
    }
    for (int64_t c = 0; c < count; ++c) static_cast<Element*>(to->data)[direction * to->strides[0] + first + c] = from_float<Element>(sums[c]);
  }
}
