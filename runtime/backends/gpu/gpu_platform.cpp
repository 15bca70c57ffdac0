// Devices and contexts.
#include "backends/gpu/gpu_platform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace ejk::gpu {
namespace {

// The size of hipDeviceProp_t and the place of its arch's name differ among releases (600 to 1500 bytes); the name is its only text that
// begins with "gfx" and goes on with the digits of an arch.
constexpr std::size_t properties_bytes = 16384;

std::string arch_in(const std::string& properties) {
  for (auto at = properties.find("gfx"); at != std::string::npos; at = properties.find("gfx", at + 1)) {
    auto end = at + 3;
    while (end < properties.size() && std::isxdigit(static_cast<unsigned char>(properties[end]))) ++end;
    if (end - at >= 6 && end < properties.size() && (properties[end] == '\0' || properties[end] == ':'))
      return properties.substr(at, end - at);
  }
  return {};
}

std::string arch_of(const DriverFunctions& call, DeviceHandle handle) {
  std::string properties(properties_bytes, '\0');
  if (!call.device_properties || call.device_properties(properties.data(), handle) != success) return {};
  return arch_in(properties);
}

std::int64_t attribute(const DriverFunctions& call, DeviceHandle handle, int which) {
  int value = 0;
  return call.device_attribute(&value, which, handle) == success ? value : 0;
}

DeviceFacts facts_of(const Driver& driver, DeviceHandle handle) {
  const auto& call = driver.call;
  const auto& ids = driver.vendor->attributes;
  const auto get = [&](int which) { return attribute(call, handle, which); };
  DeviceFacts facts;
  char name[256] = "";
  std::size_t bytes = 0;
  call.device_name(name, sizeof name, handle);
  call.device_memory(&bytes, handle);
  facts.name = name;
  facts.arch = arch_of(call, handle);
  facts.memory_bytes = static_cast<std::int64_t>(bytes);
  facts.major = static_cast<int>(get(ids.capability_major));
  facts.minor = static_cast<int>(get(ids.capability_minor));
  facts.sms = get(ids.multiprocessors);
  facts.shared_memory = get(ids.shared_bytes);
  facts.l2_bytes = get(ids.l2_bytes);
  facts.clock_khz = get(ids.clock_khz);
  facts.memory_clock_khz = get(ids.memory_clock_khz);
  facts.bus_bits = get(ids.memory_bus_bits);
  facts.pools = get(ids.memory_pools) != 0;
  return facts;
}

// What hides devices from a process that should see some.
std::string visible_devices(const Vendor& vendor) {
  std::string text;
  for (const char* variable : vendor.hiding_variables)
    if (const char* visible = std::getenv(variable)) text += fmt::format("; {} is '{}'", variable, visible);
  return text;
}

}  // namespace

Device::Device(const Driver& driver, int number, DeviceHandle device)
    : ordinal(number),
      handle(device),
      facts(facts_of(driver, device)),
      label(fmt::format("{}:{}", driver.vendor->platform, number)),
      driver_(driver) {}

Context Device::context() {
  if (!driver_.call.retain_primary) return nullptr;
  if (auto* known = context_.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(mutex_);
  if (auto* known = context_.load(std::memory_order_relaxed)) return known;
  Context made = nullptr;
  if (const auto result = driver_.call.retain_primary(&made, handle)) fail(result, "making the context of " + label);
  context_.store(made, std::memory_order_release);  // kept for the life of the process
  return made;
}

void Device::keep_pool() {
  std::call_once(pool_, [this] { read_pool_threshold(); });
}

void Device::read_pool_threshold() {
  Pool pool = nullptr;
  std::uint64_t threshold = 0;
  if (driver_.call.default_pool(&pool, handle) != success) return;
  if (driver_.call.pool_attribute(pool, release_threshold, &threshold) != success || threshold != 0) return;
  threshold = UINT64_MAX;
  driver_.call.set_pool_attribute(pool, release_threshold, &threshold);
}

void Device::refuse_lost() const {
  throw DeviceError(fmt::format("{}: the device's context is lost since {}. Nothing runs on it any more: restart the process", label,
                                *lost_.load(std::memory_order_acquire)));
}

void Device::fail(Result result, const std::string& what) {
  const auto words = fmt::format("{}: {}", what, error_words(driver_, result));
  const auto& faults = driver_.vendor->faults;
  if (std::ranges::find(faults, result) == faults.end()) throw DeviceError(words);
  const char* last = last_launch.load(std::memory_order_relaxed);
  const auto told = fmt::format("{} (a kernel put on the device before that faulted; ejk's last one was {})", words, last ? last : "none");
  const std::string* none = nullptr;
  const auto* mine = new std::string(told);  // one a device and process, for ever
  if (!lost_.compare_exchange_strong(none, mine, std::memory_order_acq_rel)) {
    delete mine;
    refuse_lost();
  }
  throw DeviceError(told + ". The device's context is lost: restart the process; " + driver_.vendor->fault_advice);
}

Platform::Platform(Driver found) : driver(std::move(found)), call(driver.call) { find_devices(); }

void Platform::find_devices() {
  why_not_ = driver.why_not;
  if (!driver.found()) return;
  int count = 0;
  auto result = call.init(0);
  if (result == success) result = call.device_count(&count);
  if (result != success || count == 0) {
    why_not_ = fmt::format("{} finds no device: {}{}", driver.path, error_words(driver, result ? result : no_device),
                           visible_devices(*driver.vendor));
    return;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceHandle handle = 0;
    if (call.device(&handle, ordinal) != success) break;
    devices_.emplace_back(driver, ordinal, handle);
  }
}

Device& Platform::device(int ordinal) {
  if (ordinal >= 0 && ordinal < count()) return devices_[static_cast<std::size_t>(ordinal)];
  throw DeviceError(count() ? fmt::format("there is no device {}:{}; this process sees {}", driver.vendor->platform, ordinal, count())
                            : why_not_);
}

Device& Platform::usable(int ordinal) {
  auto& found = device(ordinal);
  if (found.lost()) found.refuse_lost();
  return found;
}

void CurrentDevice::push(Device& device) {
  const auto result = call_.set_device ? call_.set_device(device.handle) : call_.push_context(device.context());
  if (result != success) device.fail(result, fmt::format("making {} the current device", device.label));
  pushed_ = true;
}

}  // namespace ejk::gpu
