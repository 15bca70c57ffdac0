// Tensor maps: what the tensor memory accelerator is told of a tensor (sm_90 and later).
#pragma once
#include "backends/gpu/gpu_platform.hpp"

namespace ejk::cuda {

using namespace gpu;

// Throws DeviceError naming the rule that the tensor or its box breaks (CUDA driver API, cuTensorMapEncodeTiled).
void encode_tensor_map(Platform& platform, const TensorMapRequest& request, void* map);
void set_tensor_map_address(Platform& platform, int device, void* map, void* address);

}  // namespace ejk::cuda
