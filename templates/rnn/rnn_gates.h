// GPU vocabulary: a recurrent cell's gates. CELL: 0 LSTM (gates i, f, g, o), 1 GRU (r, z, n), 2 tanh, 3 relu.
#pragma once
#include "device/attention/exact_tanh.h"

$require cell <= 3
constexpr int CELL = ${cell}, GATES = CELL == 0 ? 4 : CELL == 1 ? 3 : 1;
constexpr bool LSTM = CELL == 0, GRU = CELL == 1;
// Numbers of a feature and token that are kept for the gradient: what gates take, of a GRU's n first from the input and then from the state,
// and an LSTM's c behind them.
constexpr int KEPT = LSTM ? 5 : GRU ? 4 : 0;

static inline float sigmoid_of(float x) { return reciprocal(1 + exp2_of(x * -LOG2_E)); }

// The state after a step. in: what the input brings to each gate, with both biases, but a GRU's n has recurrent_bias beside it; back: what
// the state before brings. An LSTM's memory is updated.
static inline float next_state(const float (&in)[GATES], const float (&back)[GATES], float before, float recurrent_bias, float& memory) {
  if constexpr (LSTM) {
    memory = sigmoid_of(in[1] + back[1]) * memory + sigmoid_of(in[0] + back[0]) * exact_tanh_of(in[2] + back[2]);
    return sigmoid_of(in[3] + back[3]) * exact_tanh_of(memory);
  } else if constexpr (GRU) {
    const float z = sigmoid_of(in[1] + back[1]);
    const float n = exact_tanh_of(in[2] + sigmoid_of(in[0] + back[0]) * (back[2] + recurrent_bias));
    return n + z * (before - n);
  } else {
    const float sum = in[0] + back[0];
    return CELL == 2 ? exact_tanh_of(sum) : sum < 0 ? 0 : sum;
  }
}
