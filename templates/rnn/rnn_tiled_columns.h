// CPU vocabulary: rnn/rnn_tiles.h of weights by panels that hold all gates of WIDTH features (rnn/rnn_columns.h). A template defines GATES and
// WIDTH before.
#pragma once
#include "device/cpu.h"

constexpr int64_t COLUMNS = GATES * WIDTH;
#include "rnn/rnn_column_vector.h"
#include "rnn/rnn_tiles.h"

// Packs a panel of weights [GATES * features, steps] of one direction, rows `stride` apart; zeros where there is no feature or step.
static void pack_panel(bfloat16* panel, const bfloat16* weights, int64_t stride, int64_t number, int64_t features, int64_t steps) {
  for (int64_t column = 0; column < COLUMNS; column += LANES) {
    const ColumnVector found(number * COLUMNS + column, features);
    const bfloat16* from = weights + (found.gate * features + found.feature) * stride;
    for (int64_t s = 0; s < steps; s += TILE_STEPS)
      pack_lines(reinterpret_cast<float*>(tiled_at(panel, column, s, steps)), from + s, stride, found.count, steps - s, true);
  }
}
