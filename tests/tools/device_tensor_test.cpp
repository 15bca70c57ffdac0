// Tensors on a device are whole copies of the host's: elements, gaps and margins, as well aligned.
#include "command_line/device_tensor.hpp"

#include <gtest/gtest.h>

#include "emulator/simt.hpp"

namespace ejk::tools {
namespace {

using reference::HostTensor;
using reference::Layout;

TEST(DeviceTensor, LiesAsTheHostTensorDoes) {
  reference::Rng rng(3);
  for (const bool unaligned : {false, true}) {
    const HostTensor tensor("x", DType::f16, {3, 5, 7}, Layout{.padded = true, .permuted = true, .unaligned = unaligned}, &rng);
    const DeviceTensor copy(simt_backend(), 0, tensor);
    const auto view = copy.view();
    EXPECT_EQ(view.device, (Device{DeviceType::extension, 0}));
    EXPECT_NE(view.data, tensor.view().data);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 64, reinterpret_cast<std::uintptr_t>(tensor.data()) % 64);
    EXPECT_TRUE(std::equal(view.strides, view.strides + 3, tensor.strides().begin()));
  }
}

TEST(DeviceTensor, AWriteBesideTheElementsComesBack) {
  reference::Rng rng(4);
  HostTensor tensor("out", DType::f32, {4, 6}, Layout{.padded = true}, &rng);
  const DeviceTensor copy(simt_backend(), 0, tensor);
  auto* data = static_cast<float*>(copy.view().data);
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t j = 0; j < 6; ++j) data[i * copy.view().strides[0] + j] = 1;
  copy.copy_to(tensor);
  EXPECT_EQ(tensor.unwritten(), 0);
  EXPECT_TRUE(tensor.surroundings_intact());
  data[-1] = 1;
  copy.copy_to(tensor);
  EXPECT_FALSE(tensor.surroundings_intact());
}

}  // namespace
}  // namespace ejk::tools
