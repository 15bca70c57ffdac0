// What Kernel does where a class of its own says nothing else.
#include "ejk/kernel.hpp"

#include <algorithm>

namespace ejk {

std::string Kernel::invalid_reason(const Invocation& invocation, const Config& config) const {
  const auto space = config_space(invocation);
  return std::find(space.begin(), space.end(), config) != space.end() ? "" : "it is not in the config space";
}

Invocation Kernel::canonical(const Invocation& invocation) const { return invocation; }

Result<std::string> Kernel::source_hash(const Invocation&, const Config&) const { return std::string(); }

Result<std::string> Kernel::code_hash(const Invocation&, const Config&) const { return std::string(); }

std::optional<Nearness> Kernel::nearness(const std::string&, const std::string&) const { return std::nullopt; }

double Kernel::tolerance(const Invocation&, const std::string&, DType type) const {
  switch (type) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 1e-3;
    case DType::bf16:
      return 8e-3;
    default:
      return 0;
  }
}

Result<Gradient> Kernel::gradient(const Invocation&) const { return Error{ErrorCode::unsupported, name() + " has no gradient"}; }

}  // namespace ejk
