// From bytes to kernels that can be launched.
#include "backends/cuda_module.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <stdexcept>

#include "backends/cubin.hpp"
#include "backends/cuda_arch.hpp"
#include "spec/sha256.hpp"

namespace ejk::cuda {
namespace {

constexpr Result invalid_image = 200, no_binary_for_gpu = 209, not_found = 500;

// One library a cubin, for the life of the process.
class LoadedCubin {
 public:
  LoadedCubin(Platform& platform, Library library, std::string image) : platform_(platform), library_(library), image_(std::move(image)) {}

  void* entry(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto [found, fresh] = entries_.try_emplace(name);
    if (fresh) found->second = find(name);
    return found->second.get();
  }

 private:
  std::unique_ptr<Entry> find(const std::string& name) {
    Kernel kernel = nullptr;
    const RelaxedCapture relaxed(platform_.call);
    const auto result = platform_.call.kernel(&kernel, library_, name.c_str());
    if (result == not_found) return nullptr;
    labels_[name] = image_ + "/" + name;
    const auto& label = labels_[name];
    if (result != success) platform_.device(0).fail(result, "looking for the entry " + label);
    return std::make_unique<Entry>(kernel, label.c_str(), platform_.count());
  }

  Platform& platform_;
  Library library_;
  const std::string image_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::map<std::string, std::string> labels_;
};

class CudaModule final : public Module {
 public:
  explicit CudaModule(LoadedCubin& cubin) : cubin_(cubin) {}
  void* entry(const std::string& name) override { return cubin_.entry(name); }

 private:
  LoadedCubin& cubin_;
};

void check(Platform& platform, const std::string& bytes, const spec::Image& image) {
  CubinFacts facts;
  if (const auto wrong = read_cubin(bytes, facts); !wrong.empty())
    throw std::runtime_error(fmt::format("the binary of {} cannot be used: {}", image.id, wrong));
  const auto sm = parse_sm(image.arch);
  if (!sm || sm->number() != facts.sm)
    throw std::runtime_error(fmt::format("the binary of {} is for sm_{}, expected {}", image.id, facts.sm, image.arch));
  if (platform.count() == 0) throw DeviceError(fmt::format("cannot load {}: {}", image.id, platform.why_not()));
  std::string found;
  for (int i = 0; i < platform.count(); ++i) {
    const auto& device = platform.device(i).facts;
    if (runs_on(*sm, device.major, device.minor)) return;
    found += fmt::format("{}{} ({}.{})", found.empty() ? "" : ", ", device.name, device.major, device.minor);
  }
  throw DeviceError(fmt::format("{} is for {}, which no device here runs: {}", image.id, image.arch, found));
}

Library load_library(Platform& platform, const std::string& bytes, const spec::Image& image) {
  Library library = nullptr;
  const RelaxedCapture relaxed(platform.call);
  const auto result = platform.call.load_library(&library, bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == success) return library;
  const auto what = fmt::format("loading {}, {} bytes for {}", image.id, bytes.size(), image.arch);
  if (result == invalid_image || result == no_binary_for_gpu) throw std::runtime_error(what + ": " + error_words(platform.call, result));
  platform.device(0).fail(result, what);
}

// By platform and sha256.
struct LoadedCubins {
  std::mutex mutex;
  std::map<std::pair<Platform*, std::string>, std::unique_ptr<LoadedCubin>> by_bytes;
};

}  // namespace

std::unique_ptr<Module> load_cubin(Platform& platform, const std::string& bytes, const spec::Image& image) {
  static auto* loaded = new LoadedCubins;  // never destroyed: the driver may end before us
  check(platform, bytes, image);
  const std::lock_guard lock(loaded->mutex);
  auto& cubin = loaded->by_bytes[{&platform, spec::sha256_hex(bytes)}];
  if (!cubin) cubin = std::make_unique<LoadedCubin>(platform, load_library(platform, bytes, image), image.id);
  return std::make_unique<CudaModule>(*cubin);
}

}  // namespace ejk::cuda
