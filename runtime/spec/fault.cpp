// The error that carries a spec's faults.
#include "spec/fault.hpp"

namespace ejk::spec {
namespace {

std::string lines_of(const std::vector<Fault>& faults) {
  std::string lines;
  for (const Fault& fault : faults) {
    if (!lines.empty()) lines += '\n';
    lines += fault.text();
  }
  return lines;
}

}  // namespace

SpecError::SpecError(std::vector<Fault> faults) : std::runtime_error(lines_of(faults)), faults_(std::move(faults)) {}

}  // namespace ejk::spec
