// How far from the truth a call's outputs may be.
#include "spec/call/tolerance.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace ejk::spec {
namespace {

double tolerance_of(const Spec& spec, std::string_view output, const std::string& type) {
  const auto found = spec.tolerance.find(type);
  if (found == spec.tolerance.end())
    throw std::out_of_range(fmt::format("{}: no tolerance for {}, the type of {}", spec.kernel, type, output));
  return found->second;
}

}  // namespace

double tolerance_of(const Binding& call, std::string_view output, DType type) {
  const double own = tolerance_of(*call.spec, output, std::string(name_of(type)));
  const TensorSpec* tensor = call.spec->tensor(output);
  if (!tensor || !tensor->precision) return own;
  return std::max(own, tolerance_of(*call.spec, output, to_text(tensor->precision.evaluate(call))));
}

}  // namespace ejk::spec
