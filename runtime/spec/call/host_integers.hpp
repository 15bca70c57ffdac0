// Integer tensors in host memory, as the rules that look at data see them.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "spec/call/binding.hpp"

namespace ejk::spec {

// A tensor of a call and where its elements lie; data null: not readable here.
struct NamedData {
  std::string_view name;
  const TensorFacts* facts = nullptr;
  const void* data = nullptr;
};

// Elements of an integer tensor of `rank` dimensions, 1 or 2, or (0) of any number. Throws ExpressionError naming function and tensor if it
// is another tensor, or has elements that cannot be read.
class HostIntegers {
 public:
  HostIntegers(const NamedData& tensor, std::string_view function, std::size_t rank = 1);
  std::int64_t count(std::size_t axis = 0) const { return facts_.shape[axis]; }
  std::int64_t operator[](std::int64_t i) const { return read(i * facts_.strides[0]); }
  // The first element not in [low, high] in words ("x[3, 0] is -1"), or ''.
  std::string outside(std::string_view name, std::int64_t low, std::int64_t high) const;
  std::int64_t at(std::int64_t row, std::int64_t column) const { return read(row * facts_.strides[0] + column * facts_.strides[1]); }

 private:
  std::int64_t read(std::int64_t element) const;
  const TensorFacts& facts_;
  const void* data_;
};

// outside_rows(table, counts, per, last, low, high, count), the last four or five in `rest`: see binding.hpp.
Value outside_rows(const NamedData& table, const NamedData& counts, std::span<const Value> rest);

}  // namespace ejk::spec
