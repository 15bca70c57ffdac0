// Whether a cubin may be loaded here.
#include "backends/cuda/cuda_module.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "backends/cuda/cubin.hpp"
#include "backends/cuda/cubin_archive.hpp"
#include "backends/cuda/cuda_arch.hpp"

namespace ejk::cuda {
namespace {

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

// An image whose entries are in several cubins.
class SeveralModules final : public ejk::Module {
 public:
  explicit SeveralModules(std::vector<std::unique_ptr<ejk::Module>> parts) : parts_(std::move(parts)) {}
  void* entry(const std::string& name) override {
    for (const auto& part : parts_)
      if (auto* found = part->entry(name)) return found;
    return nullptr;
  }

 private:
  const std::vector<std::unique_ptr<ejk::Module>> parts_;
};

}  // namespace

std::unique_ptr<ejk::Module> load_cubin(Platform& platform, const std::string& bytes, const spec::Image& image) {
  std::string why_not;
  const auto cubins = cubins_of(bytes, why_not);
  if (cubins.empty()) throw std::runtime_error(fmt::format("the binary of {} cannot be used: {}", image.id, why_not));
  for (const auto& cubin : cubins) check(platform, cubin, image);
  if (cubins.size() == 1) return load_binary(platform, cubins.front(), image, {});
  std::vector<std::unique_ptr<ejk::Module>> parts;
  for (const auto& cubin : cubins) parts.push_back(load_binary(platform, cubin, image, {}));
  return std::make_unique<SeveralModules>(std::move(parts));
}

}  // namespace ejk::cuda
