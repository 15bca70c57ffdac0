// Blocks of tensors on a device.
#include "command_line/device_tensor.hpp"

#include <utility>

namespace ejk::tools {

DeviceTensor::DeviceTensor(Backend& backend, int device, const reference::HostTensor& tensor)
    : backend_(&backend), device_(device), view_(tensor.view()) {
  const auto block = tensor.block();
  block_ = backend.memory()->allocate(device, static_cast<std::int64_t>(block.size()));
  view_.data = static_cast<std::byte*>(block_) + (static_cast<const std::byte*>(tensor.data()) - block.data());
  view_.device = {backend.device_type(), device};
  try {
    copy_from(tensor);
  } catch (...) {
    backend.memory()->free(device, block_);
    throw;
  }
}

DeviceTensor::DeviceTensor(DeviceTensor&& other) noexcept
    : backend_(other.backend_), device_(other.device_), block_(std::exchange(other.block_, nullptr)), view_(other.view_) {}

DeviceTensor::~DeviceTensor() {
  if (block_) backend_->memory()->free(device_, block_);
}

void DeviceTensor::copy_from(const reference::HostTensor& tensor) {
  const auto block = tensor.block();
  backend_->memory()->copy_to_device(device_, block_, block.data(), static_cast<std::int64_t>(block.size()));
}

void DeviceTensor::copy_to(reference::HostTensor& tensor) const {
  const auto block = tensor.block();
  backend_->memory()->copy_to_host(device_, block.data(), block_, static_cast<std::int64_t>(block.size()));
}

}  // namespace ejk::tools
