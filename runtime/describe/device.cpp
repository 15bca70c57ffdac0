// ejk/device.hpp: asks the machines that were probed.
#include "ejk/device.hpp"

#include <fmt/format.h>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "execute/library_state.hpp"

namespace ejk {
namespace {

const Machine& machine_at(Device device) {
  const auto* machine = Library::instance().machine(device);
  if (!machine)
    throw CodedError(ErrorCode::unsupported, fmt::format("{} is no device that ejk found; `ejk info` lists them", name_of(device)));
  if (!machine->probe.available)
    throw CodedError(ErrorCode::unsupported, fmt::format("{} cannot be used: {}", name_of(device), machine->probe.why_not));
  return *machine;
}

}  // namespace

Result<std::string> device_kind(Device device) {
  return guarded([&]() -> Result<std::string> { return machine_at(device).probe.description; });
}

Result<std::string> device_fingerprint(Device device) {
  return guarded([&]() -> Result<std::string> { return machine_at(device).probe.fingerprint; });
}

std::string get_device_platform(Device device) {
  switch (device.type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::cuda:
    case DeviceType::rocm:
      return "gpu";
    case DeviceType::extension:
      break;
  }
  return "unknown";
}

}  // namespace ejk
