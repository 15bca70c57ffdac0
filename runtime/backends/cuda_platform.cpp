// Devices and contexts.
#include "backends/cuda_platform.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace ejk::cuda {
namespace {

// Errors after which the context is of no use (CUDA driver API, CUresult: "the process must be terminated and relaunched").
constexpr Result faults[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};

std::int64_t attribute(const DriverFunctions& call, DeviceHandle handle, DeviceAttribute which) {
  int value = 0;
  return call.device_attribute(&value, which, handle) == success ? value : 0;
}

DeviceFacts facts_of(const DriverFunctions& call, DeviceHandle handle) {
  const auto get = [&](DeviceAttribute which) { return attribute(call, handle, which); };
  DeviceFacts facts;
  char name[256] = "";
  std::size_t bytes = 0;
  call.device_name(name, sizeof name, handle);
  call.device_memory(&bytes, handle);
  facts.name = name;
  facts.memory_bytes = static_cast<std::int64_t>(bytes);
  facts.major = static_cast<int>(get(capability_major));
  facts.minor = static_cast<int>(get(capability_minor));
  facts.sms = get(multiprocessors);
  facts.shared_memory = get(shared_bytes_opt_in);
  facts.l2_bytes = get(l2_bytes);
  facts.clock_khz = get(clock_khz);
  facts.memory_clock_khz = get(memory_clock_khz);
  facts.bus_bits = get(memory_bus_bits);
  facts.pools = get(memory_pools) != 0;
  return facts;
}

// What hides devices from a process that should see some.
std::string visible_devices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format("; CUDA_VISIBLE_DEVICES is '{}'", visible) : "";
}

}  // namespace

Device::Device(const DriverFunctions& call, int number, DeviceHandle device)
    : ordinal(number), handle(device), facts(facts_of(call, device)), call_(call) {}

Context Device::context() {
  if (auto* known = context_.load(std::memory_order_acquire)) return known;
  const std::lock_guard lock(mutex_);
  if (auto* known = context_.load(std::memory_order_relaxed)) return known;
  Context made = nullptr;
  if (const auto result = call_.retain_primary(&made, handle)) fail(result, fmt::format("making the context of cuda:{}", ordinal));
  context_.store(made, std::memory_order_release);  // kept for the life of the process
  return made;
}

void Device::keep_pool() {
  std::call_once(pool_, [this] { read_pool_threshold(); });
}

void Device::read_pool_threshold() {
  Pool pool = nullptr;
  std::uint64_t threshold = 0;
  if (call_.default_pool(&pool, handle) != success) return;
  if (call_.pool_attribute(pool, release_threshold, &threshold) != success || threshold != 0) return;
  threshold = UINT64_MAX;
  call_.set_pool_attribute(pool, release_threshold, &threshold);
}

void Device::refuse_lost() const {
  throw DeviceError(fmt::format("cuda:{}: the device's context is lost since {}. Nothing runs on it any more: restart the process", ordinal,
                                *lost_.load(std::memory_order_acquire)));
}

void Device::fail(Result result, const std::string& what) {
  const auto words = fmt::format("{}: {}", what, error_words(call_, result));
  if (std::ranges::find(faults, result) == std::end(faults)) throw DeviceError(words);
  const char* last = last_launch.load(std::memory_order_relaxed);
  const auto told = fmt::format("{} (a kernel put on the device before that faulted; ejk's last one was {})", words, last ? last : "none");
  const std::string* none = nullptr;
  const auto* mine = new std::string(told);  // one a device and process, for ever
  if (!lost_.compare_exchange_strong(none, mine, std::memory_order_acq_rel)) {
    delete mine;
    refuse_lost();
  }
  throw DeviceError(told + ". The device's context is lost: restart the process; compute-sanitizer names the faulting access");
}

Platform::Platform(Driver found) : driver(std::move(found)), call(driver.call) { find_devices(); }

void Platform::find_devices() {
  why_not_ = driver.why_not;
  if (!driver.found()) return;
  int count = 0;
  auto result = call.init(0);
  if (result == success) result = call.device_count(&count);
  if (result != success || count == 0) {
    why_not_ = fmt::format("{} finds no device: {}{}", driver.path, error_words(call, result ? result : no_device), visible_devices());
    return;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceHandle handle = 0;
    if (call.device(&handle, ordinal) != success) break;
    devices_.emplace_back(call, ordinal, handle);
  }
}

Device& Platform::device(int ordinal) {
  if (ordinal >= 0 && ordinal < count()) return devices_[static_cast<std::size_t>(ordinal)];
  throw DeviceError(count() ? fmt::format("there is no device cuda:{}; this process sees {}", ordinal, count()) : why_not_);
}

void CurrentDevice::push(Device& device) {
  if (const auto result = call_.push_context(device.context()))
    device.fail(result, fmt::format("making cuda:{} the current device", device.ordinal));
  pushed_ = true;
}

}  // namespace ejk::cuda
