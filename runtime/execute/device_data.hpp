// EJKERNEL_CHECK: data of tensors on a device, read by rules of legal input. Waits for the device, so a call cannot be captured meanwhile.
#pragma once
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "ejk/tensor.hpp"

namespace ejk {

class DeviceData {
 public:
  DeviceData(Backend& backend, int device) : backend_(backend), device_(device) {}
  // Where the host can read element 0 of the view, laid out as there, as long as this lives. Throws std::runtime_error in the driver's
  // words.
  const void* of(const TensorView& view);

 private:
  Backend& backend_;
  int device_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace ejk
