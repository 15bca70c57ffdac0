// A backend that poses as a platform, with devices of drawn archs: its compiler is instant, its binaries are empty, nothing is launched.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace ejk::test {

struct PosingDevice {
  bool here = true;  // false: as on a machine without it
  std::string fingerprint;
  std::string arch;                                             // name; on the CPU it runs what that extends, too
  std::vector<std::pair<std::string, spec::Value>> properties;  // as measured
};

class PosingBackend final : public Backend {
 public:
  PosingBackend(std::string platform, std::vector<PosingDevice> devices) : platform_(std::move(platform)), devices_(std::move(devices)) {}

  std::string platform() const override { return platform_; }
  DeviceType device_type() const override { return DeviceType::extension; }
  int device_count() override { return static_cast<int>(devices_.size()); }
  Probe probe(std::span<const spec::Arch* const> archs, int device) override;
  bool can_compile(const spec::Arch&, std::string&) override { return true; }
  CompileResult compile(const spec::Image& image, const spec::Arch&) override;
  std::string compiler(const spec::Arch&) override { return "posing 1"; }
  std::unique_ptr<Module> load_bytes(const std::string& binary, const spec::Image& image) override;
  void launch(const LaunchRequest&, void*) override { throw DeviceError("a posing device launches nothing"); }
  void* acquire_workspace(int, void*, std::int64_t) override { throw std::bad_alloc(); }
  void release_workspace(int, void*, void*) noexcept override {}
  void zero(int, void*, void*, std::int64_t) override {}
  void encode_tensor_map(const TensorMapRequest&, void*) override {}
  std::string source_extension() const override { return "txt"; }
  std::string binary_extension() const override { return "bin"; }

 private:
  const std::string platform_;
  const std::vector<PosingDevice> devices_;
};

}  // namespace ejk::test
