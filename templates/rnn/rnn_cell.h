// CPU vocabulary: a recurrent cell's gates. CELL: 0 LSTM (gates i, f, g, o), 1 GRU (r, z, n), 2 tanh, 3 relu.
#pragma once
#include "device/number/math.h"

$require cell <= 3
constexpr int CELL = ${cell}, GATES = CELL == 0 ? 4 : CELL == 1 ? 3 : 1;
constexpr bool LSTM = CELL == 0, GRU = CELL == 1;
// Numbers of a feature and token that are kept for the gradient: what gates take, of a GRU's n first from the input and then from the state,
// and an LSTM's c behind them.
constexpr int KEPT = LSTM ? 5 : GRU ? 4 : 0;

// 1 / (1 + exp(-x)).
static inline Floats sigmoid_of(Floats x) {
  const Floats power = x * -LOG2_E;
  return 1.0f / (1.0f + exp2_of(power > splat(126.0f) ? splat(126.0f) : power));
}
static inline Floats positive_of(Floats x) { return x < splat(0.0f) ? Floats{} : x; }

// The state after a step, of one vector of features. in: what the input brings to each gate, with both biases, but a GRU's n has
// recurrent_bias beside it; back: what the state before brings. An LSTM's memory is updated.
static inline Floats next_state(const Floats (&in)[GATES], const Floats (&back)[GATES], Floats before, Floats recurrent_bias, Floats& memory) {
  if constexpr (LSTM) {
    memory = sigmoid_of(in[1] + back[1]) * memory + sigmoid_of(in[0] + back[0]) * tanh_of(in[2] + back[2]);
    return sigmoid_of(in[3] + back[3]) * tanh_of(memory);
  } else if constexpr (GRU) {
    const Floats z = sigmoid_of(in[1] + back[1]);
    const Floats n = tanh_of(in[2] + sigmoid_of(in[0] + back[0]) * (back[2] + recurrent_bias));
    return n + z * (before - n);
  } else {
    return CELL == 2 ? tanh_of(in[0] + back[0]) : positive_of(in[0] + back[0]);
  }
}
