// The CUDA backend over given libraries, so that tests can stand in for a driver or take the compiler away.
#pragma once
#include <memory>

#include "backends/backend.h"
#include "backends/cuda/cuda_driver.hpp"
#include "backends/cuda/nvrtc.hpp"

namespace ejk::cuda {

// Both are called when first needed, once.
std::unique_ptr<Backend> make_backend(Driver (*find_driver)(), const Nvrtc& (*find_nvrtc)());

}  // namespace ejk::cuda
