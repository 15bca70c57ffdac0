// Vocabulary of every backend: where rnn's output gates has a token's numbers for the gradient.
#pragma once

static inline float* gates_in(const View& gates, int64_t direction, int64_t row, int64_t token) {
  return static_cast<float*>(gates.data) + direction * gates.strides[0] + row * gates.strides[1] + token * gates.strides[2];
}
