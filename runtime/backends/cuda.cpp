// The CUDA backend: probe, compile, load and launch, each a call into its own file.
#include "backends/cuda.hpp"

#include <fmt/format.h>

#include <cctype>
#include <fstream>
#include <iterator>

#include "backends/cuda_arch.hpp"
#include "backends/cuda_compile.hpp"
#include "backends/cuda_launch.hpp"
#include "backends/cuda_memory.hpp"
#include "backends/cuda_module.hpp"
#include "backends/cuda_tensor_map.hpp"
#include "backends/cuda_timer.hpp"
#include "backends/nvtx.hpp"

namespace ejk::cuda {
namespace {

// "cuda-nvidia-h200-132sm"
std::string fingerprint_of(const DeviceFacts& facts) {
  std::string name;
  for (const char c : facts.name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte))
      name += static_cast<char>(std::tolower(byte));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return fmt::format("cuda-{}{}{}sm", name, name.ends_with('-') ? "" : "-", facts.sms);
}

std::string cuda_version(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

std::string driver_text(const Driver& driver) {
  return fmt::format("driver {}{}", driver.release.empty() ? "" : driver.release + ", ", cuda_version(driver.version));
}

std::string description_of(const DeviceFacts& facts, const Driver& driver) {
  return fmt::format("{}, compute capability {}.{}, {} SMs, {:.0f} GiB, {} MHz, {}", facts.name, facts.major, facts.minor, facts.sms,
                     static_cast<double>(facts.memory_bytes) / (std::int64_t{1} << 30), facts.clock_khz / 1000, driver_text(driver));
}

std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(Driver (*find_driver)(), const Nvrtc& (*find_nvrtc)()) : find_driver_(find_driver), find_nvrtc_(find_nvrtc) {}

  std::string platform() const override { return "cuda"; }
  DeviceType device_type() const override { return DeviceType::cuda; }
  int device_count() override { return devices().count(); }

  Probe probe(std::span<const spec::Arch* const> archs, int ordinal) override {
    Probe probe;
    auto& all = devices();
    if (all.count() == 0) {
      probe.why_not = all.why_not();
      return probe;
    }
    const auto& facts = all.device(ordinal).facts;
    probe.description = description_of(facts, all.driver);
    probe.fingerprint = fingerprint_of(facts);
    probe.archs = runnable_archs(archs, facts.major, facts.minor);
    probe.available = !probe.archs.empty();
    if (!probe.available)
      probe.why_not = fmt::format("{} has compute capability {}.{}, which none of the {} CUDA archs is for", facts.name, facts.major,
                                  facts.minor, archs.size());
    probe.properties = {{"sms", facts.sms},
                        {"shared_memory", facts.shared_memory},
                        {"l2_bytes", facts.l2_bytes},
                        {"memory_bytes", facts.memory_bytes},
                        {"clock_khz", facts.clock_khz},
                        {"memory_clock_khz", facts.memory_clock_khz},
                        {"memory_bus_bits", facts.bus_bits}};
    return probe;
  }

  std::vector<std::pair<std::string, std::string>> libraries() override {
    const auto& driver = devices().driver;
    const auto& compiler = find_nvrtc_();
    return {{"driver", driver.found() ? fmt::format("{}, {}", driver.path, driver_text(driver)) : driver.why_not},
            {"compiler", compiler.found() ? fmt::format("{}, {}", compiler.path, compiler.description) : compiler.why_not},
            {"profiler", profiler_ranges().listening() ? profiler_ranges().found : profiler_ranges().why_not}};
  }

  bool can_compile(const spec::Arch& arch, std::string& why_not) override { return compiles_for(find_nvrtc_(), arch, why_not); }
  CompileResult compile(const spec::Image& image, const spec::Arch&) override { return compile_cuda_image(find_nvrtc_(), image); }
  std::string compiler(const spec::Arch&) override {
    const auto& found = find_nvrtc_();
    return found.found() ? found.description : "";
  }

  std::unique_ptr<Module> load(const std::filesystem::path& binary, const spec::Image& image) override {
    return load_cubin(devices(), file_bytes(binary), image);
  }
  std::unique_ptr<Module> load_bytes(const std::string& binary, const spec::Image& image) override {
    return load_cubin(devices(), binary, image);
  }

  void launch(const LaunchRequest& request, void* stream) override { cuda::launch(devices(), request, stream); }
  void* acquire_workspace(int device, void* stream, std::int64_t bytes) override {
    return cuda::acquire_workspace(devices(), device, stream, bytes);
  }
  void release_workspace(int device, void* stream, void* workspace) noexcept override {
    cuda::release_workspace(devices(), device, stream, workspace);
  }
  void encode_tensor_map(const TensorMapRequest& request, void* map) override { cuda::encode_tensor_map(devices(), request, map); }
  void set_tensor_map_address(int device, void* map, void* address) override {
    cuda::set_tensor_map_address(devices(), device, map, address);
  }
  DeviceMemory* memory() override {
    devices();
    return memory_.get();
  }
  std::unique_ptr<DeviceTimer> timer(int device) override { return make_timer(devices(), device); }
  std::string source_extension() const override { return "cu"; }
  std::string binary_extension() const override { return "cubin"; }

 private:
  Platform& devices() {
    if (auto* known = known_.load(std::memory_order_acquire)) return *known;
    std::call_once(once_, [this] {
      devices_ = std::make_unique<Platform>(find_driver_());
      memory_ = std::make_unique<CudaMemory>(*devices_);
      known_.store(devices_.get(), std::memory_order_release);
    });
    return *devices_;
  }

  Driver (*const find_driver_)();
  const Nvrtc& (*const find_nvrtc_)();
  std::once_flag once_;
  std::atomic<Platform*> known_{nullptr};
  std::unique_ptr<Platform> devices_;
  std::unique_ptr<CudaMemory> memory_;
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
