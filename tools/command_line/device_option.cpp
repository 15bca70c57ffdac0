// Devices by name.
#include "command_line/device_option.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/guard.hpp"
#include "emulator/ptx.hpp"
#include "spec/check/suggest.hpp"

namespace ejk::tools {
namespace {

std::vector<std::string> platforms() {
  std::vector<std::string> names;
  for (const auto* backend : backends()) names.push_back(backend->platform());
  return names;
}

// The emulator is this process's platform cuda.
const Machine& ptx_device() {
  for (const auto& machine : Library::instance().parts().machines) {
    if (machine.backend != &ptx_backend()) continue;
    if (!machine.probe.available) throw CodedError(ErrorCode::unsupported, "--device ptx: " + machine.probe.why_not);
    if (const auto why_not = ptx_missing_compiler(); !why_not.empty())
      throw CodedError(ErrorCode::unsupported, "--device ptx needs NVRTC: " + why_not);
    return machine;
  }
  throw UsageError("--device ptx: this command does not run on it");
}

[[noreturn]] void absent(const DeviceName& name, const std::string& why) {
  throw CodedError(ErrorCode::unsupported,
                   fmt::format("--device {}:{}: {}; `ejk info` tells what was found here", name.platform, name.index, why));
}

}  // namespace

DeviceName device_named(const std::string& text) {
  const auto colon = text.find(':');
  DeviceName name{text.substr(0, colon), 0};
  if (name.platform.empty()) throw UsageError(fmt::format("--device: expected a platform such as cpu or cuda:1, found '{}'", text));
  if (colon == std::string::npos) return name;
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, name.index);
  if (error != std::errc{} || rest != end || name.index < 0 || name.index > 999)
    throw UsageError(fmt::format("--device: expected {0} or {0}:N with a number N from 0 to 999, found '{1}'", name.platform, text));
  return name;
}

bool names_ptx_device(std::span<const std::string> words) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--device=ptx" || (words[i] == "--device" && i + 1 < words.size() && words[i + 1] == "ptx")) return true;
  return false;
}

void add_device_option(Arguments& arguments) {
  arguments.option("device", "DEVICE", "where the tensors lie and the kernel runs: cpu, cuda, cuda:1, simt, ptx (default cpu)");
}

const Machine& find_device(const DeviceName& name) {
  if (name.platform == "ptx") return ptx_device();
  const auto known = platforms();
  if (std::find(known.begin(), known.end(), name.platform) == known.end())
    throw UsageError(fmt::format("--device: ejk has no platform '{}'{}", name.platform, spec::suggestion(name.platform, known)));
  const Machine* unusable = nullptr;
  std::vector<std::string> usable;
  for (const auto& machine : Library::instance().parts().machines) {
    if (machine.backend->platform() != name.platform) continue;
    if (machine.device == name.index && machine.probe.available) return machine;
    if (machine.probe.available)
      usable.push_back(fmt::format("{} ({})", name_of(machine), machine.probe.description));
    else if (!unusable || machine.device == name.index)
      unusable = &machine;
  }
  if (unusable && (usable.empty() || unusable->device == name.index)) absent(name, unusable->probe.why_not);
  absent(name, fmt::format("there is no such device; found {}", fmt::join(usable, ", ")));
}

const Machine& device_of(const Arguments& arguments) { return find_device(device_named(arguments.text("device", "cpu"))); }

bool on_host(const Machine& machine) { return machine.backend->memory() == nullptr; }

std::string name_of(const Machine& machine) {
  const auto platform = machine.backend->platform();
  if (machine.backend == &ptx_backend()) return "ptx";
  return platform == "cpu" ? platform : fmt::format("{}:{}", platform, machine.device);
}

}  // namespace ejk::tools
