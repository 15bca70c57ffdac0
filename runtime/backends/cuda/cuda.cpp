// The CUDA backend: probe, compile, load and launch, each a call into its own file.
#include "backends/cuda/cuda.hpp"

#include <fmt/format.h>

#include "backends/cuda/cuda_arch.hpp"
#include "backends/cuda/cuda_compile.hpp"
#include "backends/cuda/cuda_module.hpp"
#include "backends/cuda/cuda_parts.hpp"
#include "backends/cuda/cuda_tensor_map.hpp"
#include "backends/cuda/nvtx.hpp"
#include "backends/gpu/gpu_backend.hpp"

namespace ejk::cuda {
namespace {

std::string cuda_version(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

// PTX, so that the driver makes it for whatever device this is.
constexpr char nothing_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

class CudaBackend final : public GpuBackend {
 public:
  CudaBackend(Driver (*find_driver)(), const Nvrtc& (*find_nvrtc)()) : GpuBackend(nvidia(), find_driver), find_nvrtc_(find_nvrtc) {}

  DeviceType device_type() const override { return DeviceType::cuda; }

  std::vector<std::pair<std::string, std::string>> libraries() override {
    const auto& driver = devices().driver;
    const auto& compiler = find_nvrtc_();
    return {{"driver", driver.found() ? fmt::format("{}, {}", driver.path, driver_text(driver)) : driver.why_not},
            {"compiler", compiler.found() ? fmt::format("{}, {}", compiler.path, compiler.description) : compiler.why_not},
            {"profiler", profiler_ranges().listening() ? profiler_ranges().found : profiler_ranges().why_not}};
  }

  bool can_compile(const spec::Arch& arch, std::string& why_not) override { return compiles_for(find_nvrtc_(), arch, why_not); }
  CompileResult compile(const spec::Image& image, const spec::Arch&) override { return compile_cuda_image(find_nvrtc_(), image); }
  CompileResult compile_soon(const spec::Image& image, const spec::Arch&) override { return compile_cuda_parts(find_nvrtc_(), image); }
  std::string compiler(const spec::Arch&) override {
    const auto& found = find_nvrtc_();
    return found.found() ? found.description : "";
  }

  std::unique_ptr<ejk::Module> load_bytes(const std::string& binary, const spec::Image& image) override {
    return load_cubin(devices(), binary, image);
  }
  void encode_tensor_map(const TensorMapRequest& request, void* map) override { cuda::encode_tensor_map(devices(), request, map); }
  void set_tensor_map_address(int device, void* map, void* address) override {
    cuda::set_tensor_map_address(devices(), device, map, address);
  }
  std::string source_extension() const override { return "cu"; }
  std::string binary_extension() const override { return "cubin"; }

 protected:
  std::string device_text(const DeviceFacts& facts) const override {
    return fmt::format("{}, compute capability {}.{}, {} SMs", facts.name, facts.major, facts.minor, facts.sms);
  }
  std::string arch_text(const DeviceFacts& facts) const override {
    return fmt::format("has compute capability {}.{}", facts.major, facts.minor);
  }
  std::vector<std::string> archs_on(std::span<const spec::Arch* const> archs, const DeviceFacts& facts) const override {
    return runnable_archs(archs, facts.major, facts.minor);
  }
  std::string driver_text(const Driver& driver) const override {
    return fmt::format("driver {}{}", driver.release.empty() ? "" : driver.release + ", ", cuda_version(driver.version));
  }
  std::string empty_kernel(const DeviceFacts&) const override { return nothing_ptx; }

 private:
  const Nvrtc& (*const find_nvrtc_)();
};

}  // namespace

std::unique_ptr<Backend> make_backend(Driver (*find_driver)(), const Nvrtc& (*find_nvrtc)()) {
  return std::make_unique<CudaBackend>(find_driver, find_nvrtc);
}

}  // namespace ejk::cuda

namespace ejk {

Backend& cuda_backend() {
  static Backend* backend = cuda::make_backend([] { return cuda::load_driver(cuda::driver_candidates()); }, cuda::nvrtc).release();
  return *backend;  // never destroyed: work may be in flight until the process ends
}

}  // namespace ejk
