// The backend: images by the system's C++ compiler, launches on the calling thread, memory of the host that only the device may name.
#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>

#include "backends/cpu/cpu_compile.hpp"
#include "backends/cpu/shared_object.hpp"
#include "emulator/launch.hpp"
#include "emulator/numbers.hpp"
#include "emulator/sanitizer.hpp"
#include "emulator/simt.hpp"

namespace ejk {
namespace simt {
namespace {

std::atomic<SimtOrder> current_order{SimtOrder::forwards};
constexpr std::align_val_t device_alignment{256};

// Products and sums as written, and memory read under any type, as GPU compilers allow. g++ cannot put variables of inline functions
// and of others into one section unless the former are no weak symbols; clang can.
std::vector<std::string> compile_flags(const SystemCompiler& compiler) {
  std::vector<std::string> flags = {"-ffp-contract=off", "-fno-strict-aliasing"};
  if (compiler.description.find("clang") == std::string::npos) flags.emplace_back("-fno-weak");
  return flags;
}

class SimtModule final : public Module {
 public:
  SimtModule(std::unique_ptr<Module> object, std::string image) : object_(std::move(object)), image_(std::move(image)) {
    using Bind = void (*)(const SimtHost*, SimtImage*);
    const auto bind = reinterpret_cast<Bind>(object_->entry("simt_bind"));
    if (!bind)
      throw std::runtime_error(fmt::format("cannot load {}: it has no ejk_simt_bind: its template must #include \"device/gpu.h\"", image_));
    bind(&host(), &memory_);
    using BindBarrier = void (*)(void (*)());
    if (const auto barrier = reinterpret_cast<BindBarrier>(object_->entry("simt_bind_grid_barrier"))) barrier(meet_at_grid_barrier);
  }
  // The address sanitizer looks at the variables of every object there ever was: those must stay.
  ~SimtModule() override {
    if (!sanitized) return;
    static std::mutex mutex;
    static std::vector<std::unique_ptr<Module>> kept;
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(object_));
  }
  void* entry(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    auto& entry = entries_[name];
    using Function = void (*)(void* const*);
    if (!entry.function) entry = {image_, name, reinterpret_cast<Function>(object_->entry(name)), &memory_};
    return entry.function ? &entry : nullptr;
  }

 private:
  std::unique_ptr<Module> object_;
  std::string image_;
  SimtImage memory_{};
  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

class SimtMemory final : public DeviceMemory {
 public:
  void* allocate(int, std::int64_t bytes) override {
    if (bytes < 0) throw std::runtime_error(fmt::format("simt: cannot allocate {} bytes", bytes));
    void* memory = ::operator new(static_cast<std::size_t>(bytes), device_alignment, std::nothrow);
    if (!memory) throw std::runtime_error(fmt::format("simt: no memory for {} bytes", bytes));
    make_undefined(memory, static_cast<std::size_t>(bytes));
    return memory;
  }
  void free(int, void* memory) noexcept override { ::operator delete(memory, device_alignment); }
  void copy_to_device(int, void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void copy_to_host(int, void* to, const void* from, std::int64_t bytes) override { copy(to, from, bytes); }
  void synchronize(int) override {}

 private:
  static void copy(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};

// Devices, by their archs: 0 is NVIDIA's warp, the others AMD's waves.
constexpr const char* devices[] = {"warp32", "cdna", "rdna3", "rdna4"};

bool is_of_device(const spec::Arch& arch, int device) {
  const std::string name = devices[device];
  return arch.name == (sanitized ? name + "_sanitized" : name);
}

class SimtBackend final : public Backend {
 public:
  std::string platform() const override { return "simt"; }
  DeviceType device_type() const override { return DeviceType::extension; }

  int device_count() override { return static_cast<int>(std::size(devices)); }
  Probe probe(std::span<const spec::Arch* const> archs, int device) override {
    Probe probe;
    for (const auto* arch : archs)
      if (is_of_device(*arch, device)) probe.archs.push_back(arch->full_name());
    probe.available = !probe.archs.empty();
    if (!probe.available)
      probe.why_not =
          fmt::format("none of the store's {} simt archs is {}{}", archs.size(), devices[device], sanitized ? "_sanitized" : "");
    probe.description = fmt::format("SIMT emulator as {}{}", devices[device], sanitized ? ", with sanitizers" : "");
    probe.fingerprint = fmt::format("simt-{}", devices[device]);
    return probe;
  }

  bool can_compile(const spec::Arch& arch, std::string& why_not) override {
    const auto compiler = system_compiler(arch.machine);
    why_not = compiler->why_not;
    return compiler->found();
  }

  CompileResult compile(const spec::Image& image, const spec::Arch& arch) override {
    const auto compiler = system_compiler(arch.machine);
    if (compiler->found()) return compile_shared_object(*compiler, image, compile_flags(*compiler));
    CompileResult result;
    result.transient = true;
    result.log = compiler->why_not;
    return result;
  }

  std::string compiler(const spec::Arch& arch) override { return system_compiler(arch.machine)->description; }

  std::unique_ptr<Module> load_bytes(const std::string& binary, const spec::Image& image) override {
    return std::make_unique<SimtModule>(load_shared_object_bytes(binary, image.id), image.id);
  }

  void launch(const LaunchRequest& request, void*) override { simt::launch(request, current_order); }
  std::int64_t resident_blocks(const LaunchRequest& request) override { return most_cooperative_threads / request.block[0]; }
  void* acquire_workspace(int device, void*, std::int64_t bytes) override { return memory_.allocate(device, bytes); }
  void release_workspace(int device, void*, void* workspace) noexcept override { memory_.free(device, workspace); }
  void zero(int, void*, void* memory, std::int64_t bytes) override { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }
  DeviceMemory* memory() override { return &memory_; }
  std::string source_extension() const override { return "cpp"; }
  std::string binary_extension() const override { return "so"; }

 private:
  SimtMemory memory_;
};

}  // namespace
}  // namespace simt

Backend& simt_backend() {
  static simt::SimtBackend backend;
  return backend;
}

void simt_set_order(SimtOrder order) { simt::current_order = order; }
SimtOrder simt_order() { return simt::current_order; }

}  // namespace ejk
