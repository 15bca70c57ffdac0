// CPU vocabulary: rows that the next tile takes are asked for between the products of this one, a row at a time: asked for at once they wait for each other.
#pragma once
#include "device/attention/attention_tile.h"

template <class Element> struct RowsAhead {
  Heads<const Element> q, dout;
  const float* dq;  // [row][COLUMNS]
  int64_t batch, first_query, first_head, together, row, end;

  // The next row, if one is left.
  template <int64_t D, int64_t DV, int64_t COLUMNS> void ask() {
    if (row >= end) return;
    const int64_t token = first_query + row / together, head = first_head + row % together;
    ask_line<D>(q.row(batch, token, head)), ask_line<DV>(dout.row(batch, token, head)), ask_line<COLUMNS>(dq + row * COLUMNS);
    ++row;
  }

 private:
  template <int64_t COUNT, class T> static void ask_line(const T* from) {
    for (int64_t i = 0; i < COUNT; i += 64 / sizeof(T)) __builtin_prefetch(from + i, 0, 2);
  }
};
