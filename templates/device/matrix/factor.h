// GPU vocabulary: a factor of a block's product, as device/matrix/mma_product.h and device/matrix/wave_product.h take it.
#pragma once
#include "device/gpu.h"

template <class T> struct Factor {
  const T* first;  // the block's first element
  int64_t stride;  // from row to row of the matrix, a multiple of 8
  int64_t across;  // rows, or columns, of the product that the factor has from there on
};
