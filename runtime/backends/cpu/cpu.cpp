// The CPU backend: probe, compile, load and launch, each a call into its own file.
#include <fmt/format.h>

#include <cstring>

#include "backends/backend.h"
#include "backends/cpu/cooperative_grid.hpp"
#include "backends/cpu/cpu_compile.hpp"
#include "backends/cpu/cpu_features.hpp"
#include "backends/cpu/grid_pool.hpp"
#include "backends/cpu/host_workspace.hpp"
#include "backends/cpu/shared_object.hpp"

namespace ejk {
namespace {

std::set<std::string> usable_features() {
  auto features = cpu_features();
  if (features.contains("amx_tile") && !request_amx()) std::erase_if(features, [](const auto& name) { return name.starts_with("amx"); });
  return features;
}

void add_cache(Probe& probe, const char* property, int level) {
  if (const auto bytes = cpu_cache_bytes(level)) probe.properties.emplace_back(property, bytes);
}

class CpuBackend final : public Backend {
 public:
  std::string platform() const override { return "cpu"; }
  DeviceType device_type() const override { return DeviceType::cpu; }

  Probe probe(std::span<const spec::Arch* const> archs, int) override {
    Probe probe;
    const auto features = usable_features();
    const auto machine = cpu_machine();
    probe.features.assign(features.begin(), features.end());
    probe.archs = runnable_archs({archs.begin(), archs.end()}, machine, features);
    probe.available = !probe.archs.empty();
    if (!probe.available) probe.why_not = fmt::format("none of the {} CPU archs fits this {} machine", archs.size(), machine);
    const int threads = cpu_threads();
    probe.description = fmt::format("{}, {} thread{}", cpu_model(), threads, threads == 1 ? "" : "s");
    const auto best = probe.available ? probe.archs.front().substr(probe.archs.front().find(':') + 1) : machine;
    probe.fingerprint = fmt::format("cpu-{}-{}t", best, threads);
    probe.properties.emplace_back("threads", std::int64_t{threads});
    add_cache(probe, "l1_bytes", 1);
    add_cache(probe, "l2_bytes", 2);
    return probe;
  }

  bool can_compile(const spec::Arch& arch, std::string& why_not) override {
    const auto compiler = system_compiler(arch.machine);
    why_not = compiler->why_not;
    return compiler->found();
  }

  CompileResult compile(const spec::Image& image, const spec::Arch& arch) override {
    const auto compiler = system_compiler(arch.machine);
    if (compiler->found()) return compile_cpu_image(*compiler, image);
    CompileResult result;
    result.transient = true;
    result.log = compiler->why_not;
    return result;
  }

  std::string compiler(const spec::Arch& arch) override { return system_compiler(arch.machine)->description; }

  std::unique_ptr<Module> load_bytes(const std::string& binary, const spec::Image& image) override {
    return load_shared_object_bytes(binary, image.id);
  }

  void launch(const LaunchRequest& request, void*) override { request.cooperative ? run_cooperative_grid(request) : run_grid(request); }
  std::int64_t resident_blocks(const LaunchRequest&) override { return most_cooperative_items; }
  const void* grid_barrier() override { return &cpu_grid_barrier(); }
  void* acquire_workspace(int, void*, std::int64_t bytes) override { return host_workspace(bytes); }
  void release_workspace(int, void*, void*) noexcept override {}
  void zero(int, void*, void* memory, std::int64_t bytes) override { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }
  std::string source_extension() const override { return "cpp"; }
  std::string binary_extension() const override { return "so"; }
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace ejk
