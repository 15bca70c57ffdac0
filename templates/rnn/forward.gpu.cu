// rnn, forward, on GPUs, products in f32: the inputs' products for all tokens by square tiles; then the steps. A block has all gates of
// FEATURES features of a direction. Persistent: one cooperative launch, each block with its weights in shared memory, which meet after
// each step; otherwise a launch a step, whose blocks read their weights from the L2 cache.
#include "device/matrix/square_product.h"
#include "rnn/rnn_gates.h"
#include "rnn/rnn_kept.h"
#include "rnn/rnn_state_in.h"
$if persistent
#include "device/tile/grid_barrier.h"
$end

using Element = ${ctype(E)};
constexpr bool KEEPS_LINES = ${persistent};
constexpr int THREADS = ${threads}, FEATURES = ${features}, PARTS = ${parts}, ROWS = ${rows}, LINES_A_THREAD = GATES;
constexpr int TILE = 64;  // of the inputs' products
#include "rnn/rnn_step.h"

static inline int64_t features_of(const View& w_hh) { return w_hh.shape[2]; }

// products[direction][b * T + t][gate][feature]: x w_ih^T and the biases; of a GRU's n b_ih alone. Rows of x at `inner` steps of inner_stride
// and block_z % outer steps of outer_stride; those of products at inner_rows and outer_rows.
KERNEL(SQUARE_THREADS, 1) inputs(${parameters('inputs')}) {
  const int64_t direction = block_z() / outer, turn = block_z() % outer, features = features_of(w_hh_view), all = GATES * features;
  const int64_t first_row = static_cast<int64_t>(block_x()) * TILE, first_column = static_cast<int64_t>(block_y()) * TILE;
  Mover<Element, TILE, true> left{static_cast<const Element*>(x_view.data) + turn * outer_stride + first_row * inner_stride, inner_stride,
                                  inner - first_row, {}};
  Mover<Element, TILE, true> right{static_cast<const Element*>(w_ih_view.data) + direction * w_ih_view.strides[0] + first_column * w_ih_view.strides[1],
                                   w_ih_view.strides[1], all - first_column, {}};
  SquareSums<TILE> sums = {};
  multiply_square<TILE>(sums, left, right, x_view.shape[2]);
  const Element* const b_ih = is_given(b_ih_view) ? static_cast<const Element*>(b_ih_view.data) + direction * b_ih_view.strides[0] : nullptr;
  const Element* const b_hh = is_given(b_hh_view) ? static_cast<const Element*>(b_hh_view.data) + direction * b_hh_view.strides[0] : nullptr;
  float* const to = products + direction * x_view.shape[0] * x_view.shape[1] * all;
#pragma unroll
  for (int n = 0; n < TILE / 16; ++n) {
    const int64_t column = first_column + thread_x() % 16 * 4 + n;
    if (column >= all) continue;
    float bias = b_ih ? to_float(b_ih[column]) : 0;
    if (b_hh && !(GRU && column >= 2 * features)) bias += to_float(b_hh[column]);
#pragma unroll
    for (int m = 0; m < TILE / 16; ++m) {
      const int64_t row = first_row + thread_x() / 16 * 4 + m;
      if (row < inner) to[(turn * outer_rows + row * inner_rows) * all + column] = sums[m][n] + bias;
    }
  }
}

// states[parity of the step][direction][b][feature], memory[direction][b][feature].
struct Layer {
  int64_t batch, tokens, features, directions;
  int64_t place(int64_t direction, int64_t row, int64_t feature) const { return (direction * batch + row) * features + feature; }
  int64_t size() const { return directions * batch * features; }
};

// h0 and c0, an element a thread.
KERNEL(256, 1) start(${parameters('start')}) {
  const int64_t i = static_cast<int64_t>(block_x()) * 256 + thread_x(), features = features_of(w_hh_view), batch = h_n_view.shape[1];
  if (i >= h_n_view.shape[0] * batch * features) return;
  const int64_t direction = i / features / batch, row = i / features % batch, feature = i % features;
  states[i] = is_given(h0_view) ? *state_in(h0_view, direction, row, feature) : 0.0f;
  if (LSTM) memory[i] = is_given(c0_view) ? *state_in(c0_view, direction, row, feature) : 0.0f;
}

// h_n and c_n.
KERNEL(256, 1) finish(${parameters('finish')}) {
  const int64_t i = static_cast<int64_t>(block_x()) * 256 + thread_x(), batch = h_n_view.shape[1], features = h_n_view.shape[2];
  const int64_t size = h_n_view.shape[0] * batch * features;
  if (i >= size) return;
  const int64_t direction = i / features / batch, row = i / features % batch, feature = i % features;
  *state_in(h_n_view, direction, row, feature) = states[last_parity * size + i];
  if (LSTM && is_given(c_n_view)) *state_in(c_n_view, direction, row, feature) = memory[i];
}

// What a step of a block needs besides its weights.
struct Step {
  Layer layer;
  const int32_t* lengths;
  const View& y;
  const Element* recurrent_bias;  // of a GRU's n, or null
  const View* gates;              // [directions][batch][tokens][KEPT and features], or null
  const float* products;
  float *states, *memory;

  // What the gradient takes of a token; past a row's length zeros.
  void keep_gates(float* to, bool valid, const float (&in)[GATES], const float (&back)[GATES], float bias, float c) const {
#pragma unroll
    for (int g = 0; g < GATES; ++g) to[g * layer.features] = !valid ? 0.0f : GRU && g == 2 ? in[g] : in[g] + back[g];
    if (GRU) to[3 * layer.features] = valid ? back[GATES - 1] + bias : 0.0f;
    if (LSTM) to[4 * layer.features] = valid ? c : 0.0f;
  }

  // Rows first_row.. of the batch, features first_feature.. of a direction.
  template <class Line>
  void take(int64_t number, int64_t direction, int64_t first_feature, int64_t first_row, const Element* kept, int pitch, const Line& line) const {
    const float* const before = states + number % 2 * layer.size();
    float* const after = states + (number + 1) % 2 * layer.size();
    float sums[ROWS][GATES];
    multiply_lines(sums, before + layer.place(direction, 0, 0), layer.features, first_row, layer.batch, layer.features, kept, pitch, line);
    const int64_t feature = first_feature + feature_of_thread(), token = direction == 1 ? layer.tokens - 1 - number : number;
    if (part_of_thread() != 0 || feature >= layer.features) return;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int64_t row = first_row + row_of_thread() + r * ROWS_AT_ONCE, at = layer.place(direction, row, feature);
      if (row >= layer.batch) continue;
      const bool valid = !lengths || token < lengths[row];
      const float bias = GRU && recurrent_bias ? to_float(recurrent_bias[feature]) : 0.0f;
      float state = before[at], in[GATES] = {}, kept_memory = 0;
      if (valid) {
        const float* const from = products + ((direction * layer.batch + row) * layer.tokens + token) * GATES * layer.features + feature;
#pragma unroll
        for (int g = 0; g < GATES; ++g) in[g] = from[g * layer.features];
        if (LSTM) kept_memory = memory[at];
        state = next_state(in, sums[r], state, bias, kept_memory);
        if (LSTM) memory[at] = kept_memory;
      }
      if (KEPT > 0 && gates) keep_gates(gates_in(*gates, direction, row, token) + feature, valid, in, sums[r], bias, kept_memory);
      after[at] = state;
      static_cast<Element*>(y.data)[row * y.strides[0] + token * y.strides[1] + direction * layer.features + feature] =
          from_float<Element>(valid ? state : 0.0f);
    }
  }
};

// Block x: FEATURES features of a direction; y: TILE_ROWS rows of the batch, or persistent, all of them.
KERNEL(THREADS, 1) steps(${parameters('steps')}) {
  const int64_t features = features_of(w_hh_view), slices = (features + FEATURES - 1) / FEATURES;
  const int64_t direction = block_x() / slices, first_feature = block_x() % slices * FEATURES;
  const Layer layer{x_view.shape[0], x_view.shape[1], features, bidirectional ? 2 : 1};
  const Element* const weights = static_cast<const Element*>(w_hh_view.data) + direction * w_hh_view.strides[0];
  const auto line = [&](int number) -> const Element* {
    const int64_t feature = first_feature + number % FEATURES;
    return feature < features ? weights + (number / FEATURES * features + feature) * w_hh_view.strides[1] : nullptr;
  };
  const Element* const bias =
      GRU && is_given(b_hh_view) ? static_cast<const Element*>(b_hh_view.data) + direction * b_hh_view.strides[0] + 2 * features : nullptr;
  const Step one{layer, lengths, y_view, bias, keeps ? &gates_view : nullptr, products, states, memory};
$if persistent
  Element* const kept = reinterpret_cast<Element*>(dynamic_shared());
  const int pitch = static_cast<int>(kept_pitch);
  load_lines(kept, pitch, 0, features, line);  // a product begins with a barrier
  for (int64_t number = 0; number < layer.tokens; ++number) {
    for (int64_t row = 0; row < layer.batch; row += TILE_ROWS) one.take(number, direction, first_feature, row, kept, pitch, line);
    grid_barrier();
  }
$else
  one.take(step, direction, first_feature, static_cast<int64_t>(block_y()) * TILE_ROWS, nullptr, 0, line);
$end
}
