// From bytes to kernels that can be launched: a library for all devices (CUDA), or a module for each (HIP).
#include "backends/gpu/gpu_module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>

#include "spec/render/sha256.hpp"

namespace ejk::gpu {

namespace {

constexpr Result invalid_image = 200, no_binary_for_gpu = 209, not_found = 500;

}  // namespace

class LoadedBinary {
 public:
  LoadedBinary(Platform& platform, const std::string& bytes, const spec::Image& image, CheckedBinary checked)
      : platform_(platform),
        image_(image.id),
        what_(fmt::format("loading {}, {} bytes for {}", image.id, bytes.size(), image.arch)),
        checked_(std::move(checked)) {
    if (platform.call.load_library) {
      load_library(bytes);
      return;
    }
    bytes_ = bytes;
    auto& device = platform.device(checked_.device);
    const CurrentDevice current(platform.call, device);
    module_on(device);
  }

  void* entry(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = entries_.try_emplace(name);
    if (fresh) found->second = find(name);
    return found->second.get();
  }

  Function function_on(Device& device, const Entry& entry) {
    const RelaxedCapture relaxed(platform_.call);
    Function function = nullptr;
    const auto result = entry.kernel ? platform_.call.function(&function, entry.kernel)
                                     : platform_.call.module_function(&function, module_on(device), entry.name.c_str());
    if (result != success) device.fail(result, fmt::format("loading {} on {}", entry.label, device.label));
    return entry.kernel ? reinterpret_cast<Function>(entry.kernel) : function;
  }

 private:
  void load_library(const std::string& bytes) {
    const RelaxedCapture relaxed(platform_.call);
    check(platform_.call.load_library(&library_, bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), platform_.device(0));
  }

  // The device is the current one.
  ModuleHandle module_on(Device& device) {
    const std::lock_guard lock(modules_mutex_);
    auto& module = modules_[device.ordinal];
    const RelaxedCapture relaxed(platform_.call);
    if (!module) check(platform_.call.load_module(&module, bytes_.data()), device);
    return module;
  }

  void check(Result result, Device& device) const {
    if (result == success) return;
    if (result == invalid_image || result == no_binary_for_gpu)
      throw std::runtime_error(what_ + ": " + error_words(platform_.driver, result));
    device.fail(result, what_);
  }

  std::unique_ptr<Entry> find(const std::string& name) {
    Kernel kernel = nullptr;
    const RelaxedCapture relaxed(platform_.call);
    const auto result = library_ ? platform_.call.kernel(&kernel, library_, name.c_str())
                        : std::ranges::find(checked_.kernels, name) == checked_.kernels.end() ? not_found
                                                                                              : success;
    if (result == not_found) return nullptr;
    labels_[name] = image_ + "/" + name;
    const auto& label = labels_[name];
    if (result != success) platform_.device(0).fail(result, "looking for the entry " + label);
    return std::make_unique<Entry>(*this, kernel, name, label.c_str(), platform_.count());
  }

  Platform& platform_;
  const std::string image_, what_;
  const CheckedBinary checked_;
  Library library_ = nullptr;
  std::string bytes_;
  std::mutex mutex_, modules_mutex_;
  std::map<int, ModuleHandle> modules_;  // by device
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::map<std::string, std::string> labels_;
};

namespace {

class GpuModule final : public ejk::Module {
 public:
  explicit GpuModule(LoadedBinary& binary) : binary_(binary) {}
  void* entry(const std::string& name) override { return binary_.entry(name); }

 private:
  LoadedBinary& binary_;
};

// By platform and sha256.
struct LoadedBinaries {
  std::mutex mutex;
  std::map<std::pair<Platform*, std::string>, std::unique_ptr<LoadedBinary>> by_bytes;
};

}  // namespace

std::unique_ptr<ejk::Module> load_binary(Platform& platform, const std::string& bytes, const spec::Image& image, CheckedBinary checked) {
  static auto* loaded = new LoadedBinaries;  // never destroyed: the driver may end before us
  const std::lock_guard lock(loaded->mutex);
  auto& binary = loaded->by_bytes[{&platform, spec::sha256_hex(bytes)}];
  if (!binary) binary = std::make_unique<LoadedBinary>(platform, bytes, image, std::move(checked));
  return std::make_unique<GpuModule>(*binary);
}

Function function_on(Device& device, Entry& entry) { return entry.binary.function_on(device, entry); }

}  // namespace ejk::gpu
