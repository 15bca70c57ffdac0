// Events, and the two things that are timed beside kernels: a copy within the device and an empty kernel.
#include "backends/gpu/gpu_timer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>

namespace ejk::gpu {
namespace {

using Event = struct EventObject*;

// Only for timing: a driver without them still serves calls.
struct EventFunctions {
  Result (*create)(Event*, unsigned flags) = nullptr;
  Result (*destroy)(Event) = nullptr;
  Result (*record)(Event, Stream) = nullptr;
  Result (*synchronize)(Event) = nullptr;
  Result (*elapsed)(float* milliseconds, Event, Event) = nullptr;
  Result (*copy_async)(Address to, Address from, std::size_t, Stream) = nullptr;
};

template <class Function>
void find(void* library, const char* name, const std::string& path, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) throw DeviceError(fmt::format("{} has no {}, which timing needs", path, name));
}

EventFunctions event_functions(const Driver& driver) {
  void* library = dlopen(driver.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!library)
    throw DeviceError(fmt::format("{} has no library with events, by which a device times itself: an emulator has no times", driver.path));
  EventFunctions events;
  const auto& names = driver.vendor->events;
  find(library, names.create, driver.path, events.create);
  find(library, names.destroy, driver.path, events.destroy);
  find(library, names.record, driver.path, events.record);
  find(library, names.synchronize, driver.path, events.synchronize);
  find(library, names.elapsed, driver.path, events.elapsed);
  find(library, names.copy_async, driver.path, events.copy_async);
  return events;
}

class GpuTimer final : public DeviceTimer {
 public:
  GpuTimer(Platform& platform, int ordinal, EmptyKernel empty_kernel)
      : call_(platform.call),
        device_(platform.device(ordinal)),
        events_(event_functions(platform.driver)),
        current_(platform.call, device_),
        empty_kernel_(std::move(empty_kernel)) {
    device_.context();
    for (auto* event : {&first_, &second_}) check(events_.create(event, 0), "making an event");
  }
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;
  ~GpuTimer() override {
    for (auto* event : {first_, second_})
      if (event) events_.destroy(event);
  }

  void start(void* stream) override { check(events_.record(first_, static_cast<Stream>(stream)), "recording an event"); }
  void stop(void* stream) override { check(events_.record(second_, static_cast<Stream>(stream)), "recording an event"); }
  double seconds() override {
    float milliseconds = 0;
    check(events_.synchronize(second_), "waiting for an event");
    check(events_.elapsed(&milliseconds, first_, second_), "timing");
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void copy(void* stream, void* to, const void* from, std::int64_t bytes) override {
    check(events_.copy_async(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), static_cast<std::size_t>(bytes),
                             static_cast<Stream>(stream)),
          "copying within");
  }

  void launch_nothing(void* stream) override {
    if (!nothing_) load_nothing();
    if (const auto result = call_.launch(nothing_, 1, 1, 1, 1, 1, 1, 0, static_cast<Stream>(stream), nullptr, nullptr))
      check(result, "launching an empty kernel");
  }

 private:
  void load_nothing() {
    const auto binary = empty_kernel_(device_.facts);
    if (call_.load_module) {
      ModuleHandle module = nullptr;  // stays loaded
      check(call_.load_module(&module, binary.c_str()), "loading an empty kernel");
      check(call_.module_function(&nothing_, module, "nothing"), "finding an empty kernel");
      return;
    }
    Library library = nullptr;  // stays loaded
    Kernel kernel = nullptr;
    check(call_.load_library(&library, binary.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading an empty kernel");
    check(call_.kernel(&kernel, library, "nothing"), "finding an empty kernel");
    check(call_.function(&nothing_, kernel), "finding an empty kernel");
  }

  void check(Result result, const char* what) {
    if (result != success) device_.fail(result, fmt::format("{} on {}", what, device_.label));
  }

  const DriverFunctions& call_;
  Device& device_;
  const EventFunctions events_;
  const CurrentDevice current_;
  const EmptyKernel empty_kernel_;
  Event first_ = nullptr, second_ = nullptr;
  Function nothing_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceTimer> make_timer(Platform& platform, int ordinal, EmptyKernel empty_kernel) {
  return std::make_unique<GpuTimer>(platform, ordinal, std::move(empty_kernel));
}

}  // namespace ejk::gpu
