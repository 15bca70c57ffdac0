// A vendor's devices in this process: what they are, their primary contexts, and whether a fault has made one unusable.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "backends/backend.h"
#include "backends/gpu/gpu_driver.hpp"

namespace ejk::gpu {

struct DeviceFacts {
  std::string name;
  std::string arch;  // HIP: "gfx90a"
  int major = 0, minor = 0;
  std::int64_t sms = 0, shared_memory = 0, l2_bytes = 0, memory_bytes = 0, clock_khz = 0, memory_clock_khz = 0, bus_bits = 0;
  bool pools = false;
};

// Scratch of the calls of one context's default stream (gpu_workspace.cpp). Only who has taken it changes the rest.
struct KeptWorkspace {
  std::atomic<bool> taken{false};
  std::atomic<Address> address{0};
  std::int64_t bytes = 0;
  Context context = nullptr;
};

class Device {
 public:
  Device(const Driver& driver, int ordinal, DeviceHandle handle);
  const int ordinal;
  const DeviceHandle handle;
  const DeviceFacts facts;
  const std::string label;  // "cuda:0"

  // CUDA: the primary context, the one that its run-time library uses; made, or joined, when first asked for. HIP: null.
  Context context();
  // The default pool keeps what stream-ordered allocations free, unless the process chose otherwise. Once.
  void keep_pool();

  // After a fault in a kernel the context answers every call with the same error. `what` was told first.
  bool lost() const { return lost_.load(std::memory_order_acquire) != nullptr; }
  [[noreturn]] void refuse_lost() const;
  // Throws DeviceError "what: the driver's words"; a fault also marks the context as lost.
  [[noreturn]] void fail(Result result, const std::string& what);

  std::atomic<const char*> last_launch{nullptr};  // "image/entry", which lives for ever
  KeptWorkspace kept;                             // for the life of the process

 private:
  void read_pool_threshold();
  const Driver& driver_;
  std::mutex mutex_;
  std::atomic<Context> context_{nullptr};
  std::once_flag pool_;
  std::atomic<const std::string*> lost_{nullptr};
};

class Platform {
 public:
  // Initialises the driver and asks for every device; no context.
  explicit Platform(Driver driver);
  const Driver driver;
  const DriverFunctions& call;
  int count() const { return static_cast<int>(devices_.size()); }
  const std::string& why_not() const { return why_not_; }  // if there are no devices
  Device& device(int ordinal);                             // throws DeviceError
  Device& usable(int ordinal);                             // also if its context is lost

 private:
  void find_devices();
  std::deque<Device> devices_;
  std::string why_not_;
};

// While it lives the thread's current device is that one. CUDA: its context stays as it was if it was one of the device, else it is the
// primary one.
class CurrentDevice {
 public:
  CurrentDevice(const DriverFunctions& call, Device& device) : call_(call) {
    if (call.current_device(&before_) != success || before_ != device.handle) push(device);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    Context ours = nullptr;
    if (pushed_) call_.set_device ? call_.set_device(before_) : call_.pop_context(&ours);
  }

 private:
  void push(Device& device);
  const DriverFunctions& call_;
  DeviceHandle before_ = 0;
  bool pushed_ = false;
};

// What a capture of some stream forbids to other calls of this thread (loading code, waiting) is allowed while it lives.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverFunctions& call) : call_(call) { call_.exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { call_.exchange_capture_mode(&mode_); }

 private:
  const DriverFunctions& call_;
  int mode_ = relaxed_capture;
};

}  // namespace ejk::gpu
