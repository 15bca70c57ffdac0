// The list of backends.
#include "backends/backend.h"

#include <vector>

namespace ejk {
namespace {

std::vector<Backend*>& list() {
  static std::vector<Backend*> all = {&cpu_backend(), &cuda_backend(), &hip_backend()};
  return all;
}

}  // namespace

void Backend::encode_tensor_map(const TensorMapRequest&, void*) {
  throw DeviceError("tensor maps are CUDA's; " + platform() + " has none");
}
void Backend::set_tensor_map_address(int, void*, void*) { throw DeviceError("tensor maps are CUDA's; " + platform() + " has none"); }

std::span<Backend* const> backends() { return list(); }

void add_backend(Backend& backend) { list().push_back(&backend); }

void replace_backend(Backend& backend) {
  for (auto*& each : list())
    if (each->platform() == backend.platform()) each = &backend;
}

Backend* backend_of(const std::string& platform) {
  for (auto i = list().rbegin(); i != list().rend(); ++i)  // what a test added may pose as a platform of this build
    if ((*i)->platform() == platform) return *i;
  return nullptr;
}

}  // namespace ejk
