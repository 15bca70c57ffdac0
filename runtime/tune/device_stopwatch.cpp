// Marks on a stream, and a host clock beside them.
#include "tune/device_stopwatch.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "tune/stopwatch.hpp"

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t buffer_bytes = std::int64_t{1} << 30;  // far larger than any cache: a copy of it is a copy of memory
constexpr std::int64_t flush_bytes = std::int64_t{1}
                                     << 28;  // read and written by a flush: several last-level caches, 0.1 ms on a large GPU
constexpr int repetitions = 9;

double elapsed(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

DeviceStopwatch::DeviceStopwatch(const Machine& machine, void* stream)
    : backend_(*machine.backend), device_(machine.device), stream_(stream), timer_(machine.backend->timer(machine.device)) {
  if (timer_) buffer_ = static_cast<std::byte*>(backend_.memory()->allocate(device_, buffer_bytes));
}

DeviceStopwatch::~DeviceStopwatch() {
  if (buffer_) backend_.memory()->free(device_, buffer_);
}

void DeviceStopwatch::wait() const {
  if (auto* memory = backend_.memory()) memory->synchronize(device_);
}

double DeviceStopwatch::seconds(const std::function<void()>& launch, int count, bool cold) {
  if (!timer_) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) launch();
    wait();
    return elapsed(start);
  }
  if (cold) timer_->copy(stream_, buffer_, buffer_ + buffer_bytes / 2, flush_bytes);
  timer_->start(stream_);
  for (int i = 0; i < count; ++i) launch();
  timer_->stop(stream_);
  return timer_->seconds();
}

double DeviceStopwatch::host_seconds(const std::function<void()>& launch, int in_flight) {
  std::vector<double> samples;
  launch();
  for (int i = 0; i < repetitions; ++i) {
    wait();
    launch();  // the device is busy from here on
    const auto start = Clock::now();
    for (int j = 0; j < in_flight; ++j) launch();
    samples.push_back(elapsed(start) / in_flight);
  }
  wait();
  return median(samples);
}

double DeviceStopwatch::copy_bandwidth() {
  if (!timer_) return 0;
  std::vector<double> samples;
  for (int i = 0; i < repetitions; ++i) {
    timer_->start(stream_);
    timer_->copy(stream_, buffer_, buffer_ + buffer_bytes / 2, buffer_bytes / 2);
    timer_->stop(stream_);
    samples.push_back(timer_->seconds());
  }
  return static_cast<double>(buffer_bytes) / median(samples);  // half of it read, half written
}

double DeviceStopwatch::empty_launch_seconds() {
  if (!timer_) return 0;
  return host_seconds([this] { timer_->launch_nothing(stream_); }, 256);
}

}  // namespace ejk
