// Reading a caller's host tensors: checked, of any strides.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/guard.hpp"
#include "ejk/tensor.hpp"

namespace ejk::helpers {

[[noreturn]] inline void refuse(const std::string& message) { throw CodedError(ErrorCode::bad_input, message); }

// That a view is given, on the host, of the type and one of the ranks.
void check(const TensorView& view, const char* name, DType type, int least_rank, int most_rank);

// Elements in row-major order. The view has been checked.
template <class T>
std::vector<T> elements(const TensorView& view) {
  std::vector<T> found;
  found.reserve(static_cast<std::size_t>(view.elements()));
  std::int64_t place[max_rank] = {};
  for (std::int64_t left = view.elements(); left > 0; --left) {
    std::int64_t at = 0;
    for (int d = 0; d < view.rank; ++d) at += place[d] * view.strides[d];
    found.push_back(static_cast<const T*>(view.data)[at]);
    for (int d = view.rank - 1; d >= 0 && ++place[d] == view.shape[d]; --d) place[d] = 0;
  }
  return found;
}

// A new tensor of these elements.
template <class T>
Tensor made(DType type, std::span<const std::int64_t> shape, const std::vector<T>& values) {
  Tensor tensor(type, shape);
  std::copy(values.begin(), values.end(), tensor.data<T>());
  return tensor;
}

// A size of the caller's: least to 2^31 - 1.
void check_size(std::int64_t value, const char* name, std::int64_t least);

// cum_seqlens, checked: they begin with 0 and do not fall.
std::vector<std::int32_t> offsets_of(const TensorView& cum_seqlens, const char* name = "cum_seqlens");

}  // namespace ejk::helpers
