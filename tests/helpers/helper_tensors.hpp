// Tensors of a few numbers, and their elements as vectors.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ejk/tensor.hpp"

namespace ejk {

using Numbers = std::vector<std::int32_t>;
using Sizes = std::vector<std::int64_t>;

inline Tensor numbers(const Sizes& shape, const Numbers& values) {
  Tensor tensor(DType::i32, shape);
  std::copy(values.begin(), values.end(), tensor.data<std::int32_t>());
  return tensor;
}

inline Tensor numbers(const Numbers& values) { return numbers({static_cast<std::int64_t>(values.size())}, values); }

inline Tensor bools(const Sizes& shape, const Numbers& values) {
  Tensor tensor(DType::boolean, shape);
  std::copy(values.begin(), values.end(), tensor.data<std::uint8_t>());
  return tensor;
}

inline Sizes shape_of(const Tensor& tensor) { return {tensor.view().shape, tensor.view().shape + tensor.view().rank}; }

inline Numbers values_of(const Tensor& tensor) {
  const std::int64_t count = tensor.view().elements();
  if (tensor.view().type == DType::boolean) return {tensor.data<std::uint8_t>(), tensor.data<std::uint8_t>() + count};
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + count};
}

}  // namespace ejk
