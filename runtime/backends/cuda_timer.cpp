// cuEvent*, and the two things that are timed beside kernels: a copy within the device and an empty kernel.
#include "backends/cuda_timer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>

namespace ejk::cuda {
namespace {

using Event = struct EventObject*;

// Of libcuda, only for timing: a driver without them still serves calls.
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
  if (!library) throw DeviceError(fmt::format("{} is not loaded any more", driver.path));
  EventFunctions events;
  find(library, "cuEventCreate", driver.path, events.create);
  find(library, "cuEventDestroy_v2", driver.path, events.destroy);
  find(library, "cuEventRecord", driver.path, events.record);
  find(library, "cuEventSynchronize", driver.path, events.synchronize);
  find(library, "cuEventElapsedTime", driver.path, events.elapsed);
  find(library, "cuMemcpyDtoDAsync_v2", driver.path, events.copy_async);
  return events;
}

// PTX, so that the driver makes it for whatever device this is.
constexpr char empty_kernel[] = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";

class CudaTimer final : public DeviceTimer {
 public:
  CudaTimer(Platform& platform, int ordinal)
      : call_(platform.call),
        device_(platform.device(ordinal)),
        events_(event_functions(platform.driver)),
        current_(platform.call, device_) {
    device_.context();
    for (auto* event : {&first_, &second_}) check(events_.create(event, 0), "making an event");
  }
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;
  ~CudaTimer() override {
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
    Library library = nullptr;  // stays loaded
    Kernel kernel = nullptr;
    check(call_.load_library(&library, empty_kernel, nullptr, nullptr, 0, nullptr, nullptr, 0), "loading an empty kernel");
    check(call_.kernel(&kernel, library, "nothing"), "finding an empty kernel");
    check(call_.function(&nothing_, kernel), "finding an empty kernel");
  }

  void check(Result result, const char* what) {
    if (result != success) device_.fail(result, fmt::format("{} on cuda:{}", what, device_.ordinal));
  }

  const DriverFunctions& call_;
  Device& device_;
  const EventFunctions events_;
  const CurrentDevice current_;
  Event first_ = nullptr, second_ = nullptr;
  Function nothing_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceTimer> make_timer(Platform& platform, int ordinal) { return std::make_unique<CudaTimer>(platform, ordinal); }

}  // namespace ejk::cuda
