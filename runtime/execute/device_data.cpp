// Copies what a view spans to the host.
#include "execute/device_data.hpp"

namespace ejk {

const void* DeviceData::of(const TensorView& view) {
  auto* memory = backend_.memory();
  if (view.device.type == DeviceType::cpu || !memory || view.elements() == 0) return view.data;
  std::int64_t low = 0, high = 1;
  for (int i = 0; i < view.rank; ++i) {
    const auto reach = view.strides[i] * (view.shape[i] - 1);
    (reach < 0 ? low : high) += reach;
  }
  const auto size = size_of(view.type), bytes = (high - low) * size;
  auto& copy = copies_.emplace_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)));
  memory->synchronize(device_);
  memory->copy_to_host(device_, copy.get(), static_cast<const std::byte*>(view.data) + low * size, bytes);
  return copy.get() - low * size;
}

}  // namespace ejk
