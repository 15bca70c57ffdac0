// Times launches by a device's own clock, with cold or warm caches, and what the host spends on each.
#pragma once
#include <functional>
#include <memory>

#include "execute/library_state.hpp"

namespace ejk {

class DeviceStopwatch {
 public:
  // Takes device memory to flush the caches with. A device without a timer is timed by the host's clock.
  // stream: where `launch` puts its work; null: the default one.
  explicit DeviceStopwatch(const Machine& machine, void* stream = nullptr);
  DeviceStopwatch(const DeviceStopwatch&) = delete;
  DeviceStopwatch& operator=(const DeviceStopwatch&) = delete;
  ~DeviceStopwatch();

  // Device seconds of `count` launches in a row. cold: the caches hold other data when the first one starts; the flush is queued before
  // the first mark, so that the host is done queueing when the clock starts.
  double seconds(const std::function<void()>& launch, int count, bool cold);

  // Host seconds until one launch returns, while earlier ones are still queued or running.
  double host_seconds(const std::function<void()>& launch, int in_flight);

  double copy_bandwidth();        // bytes a second, read and written ones, of a large copy; 0: no timer
  double empty_launch_seconds();  // host_seconds of the driver's own launch of an empty kernel; 0: no timer
  bool has_timer() const { return timer_ != nullptr; }

 private:
  void wait() const;
  Backend& backend_;
  int device_;
  void* stream_;
  std::unique_ptr<DeviceTimer> timer_;
  std::byte* buffer_ = nullptr;  // two halves
};

}  // namespace ejk
