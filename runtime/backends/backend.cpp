// The list of backends.
#include "backends/backend.h"

#include <array>

namespace ejk {

std::span<Backend* const> backends() {
  static const std::array<Backend*, 1> all = {&cpu_backend()};
  return all;
}

Backend* backend_of(const std::string& platform) {
  for (auto* backend : backends())
    if (backend->platform() == platform) return backend;
  return nullptr;
}

}  // namespace ejk
