// ejk_tensor (a DLTensor) to TensorView.
#pragma once
#include <string>

#include "ejk/ejk.h"
#include "ejk/tensor.hpp"

namespace ejk {

// Throws CallError naming `name` for more than one lane, an unknown type or device, or a rank over 8.
TensorView view_of(const std::string& name, const ejk_tensor& tensor);

struct DLType {
  std::uint8_t code, bits;
};
DLType dlpack_type(DType type);

}  // namespace ejk
