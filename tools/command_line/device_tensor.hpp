// A host tensor's whole block (elements, gaps and margins) in a device's memory, element 0 as well aligned as on the host.
#pragma once
#include "backends/backend.h"
#include "reference/host_tensor.hpp"

namespace ejk::tools {

class DeviceTensor {
 public:
  // Copies the block. The backend must have memory(). Throws std::runtime_error with the driver's words.
  DeviceTensor(Backend& backend, int device, const reference::HostTensor& tensor);
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  DeviceTensor(DeviceTensor&& other) noexcept;
  ~DeviceTensor();

  const TensorView& view() const { return view_; }
  std::byte* block() const { return static_cast<std::byte*>(block_); }  // the copy of HostTensor::block()
  void copy_from(const reference::HostTensor& tensor);                  // the tensor it was made of, changed
  void copy_to(reference::HostTensor& tensor) const;                    // waits for the device

 private:
  Backend* backend_;
  int device_;
  void* block_ = nullptr;
  TensorView view_;
};

}  // namespace ejk::tools
