// GPU vocabulary of the chunked recurrence on matrix instructions of a wave: a state in memory with a row a column. After chunk_wave_products.h's
// StateMemory.
#pragma once

// A state in memory whose rows are the wave's columns.
struct TurnedStateMemory : StateMemory {
  TurnedStateMemory(const View& view, int64_t sequence, int64_t head, int64_t first_column) : StateMemory(view, sequence, head, first_column) {
    if (!data) return;
    const int64_t column = first_column + matrix_column();
    data += column * (stride - 1);
    stride = 1, keys = static_cast<int>(view.shape[3]), exists = column < view.shape[2];
  }
};
