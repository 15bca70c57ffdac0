// benchmark(): any callable, by the host's clock or a device's.
#include <fmt/format.h>

#include "common/guard.hpp"
#include "ejk/autotune.hpp"
#include "execute/facts.hpp"
#include "tune/device_stopwatch.hpp"
#include "tune/stopwatch.hpp"

namespace ejk {

Result<Measurement> benchmark(const std::function<void()>& fn, const BenchmarkOptions& options) {
  return guarded([&]() -> Result<Measurement> {
    if (!fn) return Error{ErrorCode::bad_input, "benchmark: the function is empty"};
    if (!(options.seconds > 0))
      return Error{ErrorCode::bad_input, fmt::format("benchmark: seconds must be positive; found {}", options.seconds)};
    Timed timed;
    Measurement result;
    result.clock = "host";
    timed.run = fn;
    std::unique_ptr<DeviceStopwatch> stopwatch;
    if (options.device.type != DeviceType::cpu) {
      const auto* machine = Library::instance().machine(options.device);
      if (!machine || !machine->probe.available)
        return Error{ErrorCode::unsupported,
                     fmt::format("benchmark: there is no device {} here; `ejk info` lists those there are", name_of(options.device))};
      stopwatch = std::make_unique<DeviceStopwatch>(*machine, options.stream.handle);
      timed.clock = [&](int count) { return stopwatch->seconds(fn, count, options.cold); };
      timed.warm_up = !options.cold;
      if (stopwatch->has_timer()) result.clock = name_of(options.device);
    }
    measure({&timed}, options.seconds, {});
    for (const double seconds : timed.samples) result.samples_us.push_back(seconds * 1e6);
    result.median_us = median(result.samples_us);
    result.noise = spread(result.samples_us);
    result.batch = timed.batch;
    return result;
  });
}

}  // namespace ejk
