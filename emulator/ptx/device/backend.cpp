// The backend: CUDA's own, over the emulator's driver and compiler.
#include "backends/cuda/cuda.hpp"
#include "emulator/ptx.hpp"
#include "emulator/ptx/device/driver.hpp"
#include "emulator/ptx/run/run.hpp"

namespace ejk {

Backend& ptx_backend() {
  static auto* const backend = cuda::make_backend(ptx::driver, ptx::compiler).release();  // never destroyed, as CUDA's own
  return *backend;
}

std::string ptx_missing_compiler() { return ptx::compiler().why_not; }

void ptx_set_pace(PtxPace pace) { ptx::set_pace(pace == PtxPace::eager ? ptx::Pace::eager : ptx::Pace::lazy); }

}  // namespace ejk
