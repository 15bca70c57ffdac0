// The HIP backend: what it says and does otherwise than CUDA's. Code objects by clang, or by hipRTC where clang is not.
#include "backends/hip/hip.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "backends/gpu/gpu_backend.hpp"
#include "backends/gpu/gpu_module.hpp"
#include "backends/hip/hip_compile.hpp"

namespace ejk::hip {
namespace {

constexpr char nothing_source[] = "extern \"C\" __attribute__((global)) void nothing() {}\n";

CheckedBinary checked(Platform& platform, const std::string& bytes, const spec::Image& image) {
  CodeObjectFacts facts;
  if (const auto wrong = read_code_object(bytes, facts); !wrong.empty())
    throw std::runtime_error(fmt::format("the binary of {} cannot be used: {}", image.id, wrong));
  if (facts.arch != arch_name(image))
    throw std::runtime_error(fmt::format("the binary of {} is for {}, expected {}", image.id, facts.arch, image.arch));
  if (platform.count() == 0) throw DeviceError(fmt::format("cannot load {}: {}", image.id, platform.why_not()));
  std::string found;
  for (int i = 0; i < platform.count(); ++i) {
    const auto& device = platform.device(i).facts;
    if (device.arch == facts.arch) return {facts.kernels, i};
    found += fmt::format("{}{} ({})", found.empty() ? "" : ", ", device.name, device.arch);
  }
  throw DeviceError(fmt::format("{} is for {}, which no device here runs: {}", image.id, image.arch, found));
}

class HipBackend final : public GpuBackend {
 public:
  explicit HipBackend(const Finders& finders) : GpuBackend(amd(), finders.driver), find_(finders) {}

  DeviceType device_type() const override { return DeviceType::rocm; }

  std::vector<std::pair<std::string, std::string>> libraries() override {
    const auto& driver = devices().driver;
    const auto& rtc = find_.hiprtc();
    return {{"driver", driver.found() ? fmt::format("{}, {}", driver.path, driver_text(driver)) : driver.why_not},
            {"hiprtc", rtc.found() ? fmt::format("{}, {}, for {}", rtc.path, rtc.description, fmt::join(rtc.archs, ", ")) : rtc.why_not}};
  }

  bool can_compile(const spec::Arch& arch, std::string& why_not) override {
    const auto clang = find_.clang(arch.name);
    why_not = clang->found() || asks_hiprtc(arch.name) ? "" : clang->why_not + "; " + hiprtc_refusal(arch.name);
    return why_not.empty();
  }

  CompileResult compile(const spec::Image& image, const spec::Arch& arch) override {
    if (const auto clang = find_.clang(arch_name(image)); clang->found()) return compile_with_clang(*clang, image);
    if (asks_hiprtc(arch_name(image))) return compile_with_hiprtc(find_.hiprtc(), image);
    CompileResult result;
    result.transient = true;
    can_compile(arch, result.log);
    return result;
  }

  std::string compiler(const spec::Arch& arch) override {
    if (const auto clang = find_.clang(arch.name); clang->found()) return clang->description;
    return asks_hiprtc(arch.name) ? find_.hiprtc().description : "";
  }

  std::unique_ptr<ejk::Module> load_bytes(const std::string& binary, const spec::Image& image) override {
    return load_code_object(devices(), binary, image);
  }
  std::string source_extension() const override { return "hip"; }
  std::string binary_extension() const override { return "hsaco"; }

 protected:
  std::string device_text(const DeviceFacts& facts) const override {
    return fmt::format("{}, {}, {} compute units", facts.name, facts.arch.empty() ? "arch unknown" : facts.arch, facts.sms);
  }
  std::string arch_text(const DeviceFacts& facts) const override {
    return facts.arch.empty() ? "does not tell its arch" : "is " + facts.arch;
  }
  std::vector<std::string> archs_on(std::span<const spec::Arch* const> archs, const DeviceFacts& facts) const override {
    std::vector<std::string> names;
    for (const auto* arch : archs)
      if (arch->name == facts.arch) names.push_back(arch->full_name());
    return names;
  }
  std::string driver_text(const Driver& driver) const override { return version_text(driver.version); }

  std::string empty_kernel(const DeviceFacts& facts) const override {
    spec::Image image;
    image.id = "an empty kernel";
    image.arch = "hip:" + facts.arch;
    image.source = nothing_source;
    const auto clang = find_.clang(facts.arch);
    const auto result = clang->found() ? compile_with_clang(*clang, image) : compile_with_hiprtc(find_.hiprtc(), image);
    if (!result.ok) throw DeviceError("an empty kernel, which timing needs, cannot be compiled: " + result.log);
    return result.binary;
  }

 private:
  bool asks_hiprtc(const std::string& arch) const { return hiprtc_refusal(arch).empty(); }
  std::string hiprtc_refusal(const std::string& arch) const {
    const auto& rtc = find_.hiprtc();
    if (!rtc.found()) return rtc.why_not;
    for (const auto& known : rtc.archs)
      if (known == arch) return {};
    return fmt::format("{} ({}) is not asked for {}: it is known to compile for {}", rtc.description, rtc.path, arch,
                       fmt::join(rtc.archs, ", "));
  }

  const Finders find_;
};

}  // namespace

std::unique_ptr<ejk::Module> load_code_object(Platform& platform, const std::string& bytes, const spec::Image& image) {
  auto found = checked(platform, bytes, image);
  return load_binary(platform, bytes, image, std::move(found));
}

std::unique_ptr<Backend> make_backend(const Finders& finders) { return std::make_unique<HipBackend>(finders); }

}  // namespace ejk::hip

namespace ejk {

Backend& hip_backend() {
  static Backend* backend = hip::make_backend({hip::find_driver, hip::clang_for, hip::hiprtc}).release();
  return *backend;  // never destroyed: work may be in flight until the process ends
}

}  // namespace ejk
