// The tensors of a mapped call: the view that each of its calls gets, and the mapped axis.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "ejk/batch.hpp"
#include "execute/library_state.hpp"

namespace ejk {

struct MappedTensor {
  TensorView one;  // of the first call: without the axis
  bool mapped = false;
  std::int64_t stride = 0;  // elements from one call to the next
  TensorView at(std::int64_t index) const;
  std::int64_t alignment() const;  // bytes, at most 64: the least of all calls
};

struct Mapped {
  std::int64_t calls = 0;
  std::map<std::string, MappedTensor> tensors;
  std::map<std::string, TensorView> at(std::int64_t index) const;
};

// Throws CodedError: an axis that is not there, sizes that differ, an output that is not mapped or whose calls would write the same memory.
Mapped map_tensors(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors, const Axes& axes);

}  // namespace ejk
