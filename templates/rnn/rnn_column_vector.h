// CPU vocabulary: a vector of columns of a recurrent layer's product (rnn/rnn_columns.h says their order). Needs COLUMNS and WIDTH before it.
#pragma once

// Where a vector of columns comes from: features `feature`.. of a gate; `count` of them are there, 0 or less: none.
struct ColumnVector {
  int64_t gate, feature, count;
  ColumnVector(int64_t column, int64_t features)
      : gate(column % COLUMNS / WIDTH), feature(column / COLUMNS * WIDTH + column % WIDTH), count(features - feature) {}
};
