// CPU vocabulary: weights of a recurrent layer by panels. A panel holds all gates of WIDTH features side by side: column c of a layer's
// product is feature c / COLUMNS * WIDTH + c % WIDTH of gate c % COLUMNS / WIDTH, where COLUMNS = GATES * WIDTH. A template defines GATES
// and WIDTH, a multiple of LANES, before.
#pragma once
#include "rnn/rnn_some.h"

constexpr int64_t COLUMNS = GATES * WIDTH;
#include "rnn/rnn_panel.h"
#include "rnn/rnn_column_vector.h"

// Packs a panel of weights [GATES * features, steps] of one direction, rows `stride` apart; zeros where there is no feature or step.
template <class T> static void pack_panel(T* panel, const T* weights, int64_t stride, int64_t number, int64_t features, int64_t steps) {
  for (int64_t column = 0; column < COLUMNS; column += LANES) {
    const ColumnVector found(number * COLUMNS + column, features);
    const T* from = weights + (found.gate * features + found.feature) * stride;
    for (int64_t s = 0; s < steps; s += LANES) {
      Floats block[LANES];
      for (int64_t line = 0; line < LANES; ++line) block[line] = line < found.count ? load_part(from + line * stride + s, steps - s) : Floats{};
      transpose(block);
      for (int64_t step = 0; step < least_of(LANES, steps - s); step += 2)
        store_two_steps(panel, s + step, column, block[step], block[step + 1]);
    }
  }
}
