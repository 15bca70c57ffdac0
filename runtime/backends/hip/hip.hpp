// The HIP backend over given libraries and compilers, so that tests can stand in for a driver or take a compiler away.
#pragma once
#include <memory>
#include <string>

#include "backends/backend.h"
#include "backends/gpu/gpu_platform.hpp"
#include "backends/hip/hip_driver.hpp"
#include "backends/hip/hiprtc.hpp"
#include "backends/process/compiler_run.hpp"

namespace ejk::hip {

// Each is called when first needed.
struct Finders {
  Driver (*driver)();
  std::shared_ptr<const SystemCompiler> (*clang)(const std::string& arch);
  const Hiprtc& (*hiprtc)();
};
std::unique_ptr<Backend> make_backend(const Finders& finders);

// Checks the bytes before the driver sees them: whole, a bare code object, for the image's arch, which a device here runs. Throws
// std::runtime_error (the binary is of no use) or DeviceError.
std::unique_ptr<ejk::Module> load_code_object(Platform& platform, const std::string& bytes, const spec::Image& image);

}  // namespace ejk::hip
