// Launches: plain ones by the call that CUDA and HIP have alike; clusters, cooperative and overlapping ones by cuLaunchKernelEx; HIP's
// cooperative ones by a call of their own.
#include "backends/gpu/gpu_launch.hpp"

#include <fmt/format.h>

namespace ejk::gpu {
namespace {

constexpr int first_major_that_overlaps = 9;
constexpr std::int64_t longest_x = 0x7fffffff, longest_yz = 65535, most_threads = 1024, portable_cluster = 8;

std::int64_t volume(const std::int64_t (&extent)[3]) { return extent[0] * extent[1] * extent[2]; }

std::string extents(const std::int64_t (&extent)[3]) { return fmt::format("{} x {} x {}", extent[0], extent[1], extent[2]); }

std::string described(const Device& device, const LaunchRequest& request) {
  auto text = fmt::format("launching {} on {}, grid {}, block {}, {} bytes of dynamic shared memory",
                          static_cast<const Entry*>(request.entry)->label, device.label, extents(request.grid), extents(request.block),
                          request.shared_bytes);
  if (volume(request.cluster) > 1) text += ", clusters of " + extents(request.cluster);
  if (request.cooperative) text += ", cooperative";
  return text;
}

bool fits(const LaunchRequest& request) {
  const auto& [x, y, z] = request.grid;
  const auto& [bx, by, bz] = request.block;
  return x > 0 && x <= longest_x && y > 0 && y <= longest_yz && z > 0 && z <= longest_yz && bx > 0 && bx <= most_threads && by > 0 &&
         by <= most_threads && bz > 0 && bz <= most_threads && bx * by * bz <= most_threads;
}

[[noreturn, gnu::noinline]] void refuse(const Device& device, const LaunchRequest& request) {
  throw DeviceError(fmt::format("{}: a grid has at most {} x {} x {} blocks, a block at most {} threads, and neither has none",
                                described(device, request), longest_x, longest_yz, longest_yz, most_threads));
}

[[noreturn, gnu::noinline]] void refuse_threads(const Vendor& vendor, const Device& device, const LaunchRequest& request) {
  throw DeviceError(fmt::format("{}: {} starts at most {} threads in a dimension of a grid", described(device, request), vendor.api,
                                vendor.most_threads_a_grid));
}

bool fits_threads(const Vendor& vendor, const LaunchRequest& request) {
  for (int i = 0; i < 3; ++i)
    if (request.grid[i] * request.block[i] > vendor.most_threads_a_grid) return false;
  return true;
}

[[noreturn, gnu::noinline]] void refuse_special(const Vendor& vendor, const Device& device, const LaunchRequest& request) {
  throw DeviceError(fmt::format("{}: launches with clusters are not made with {}", described(device, request), vendor.api));
}

[[noreturn, gnu::noinline]] void fail(Device& device, Result result, const LaunchRequest& request) {
  device.fail(result, described(device, request));
}

// Loads the code there, so that no launch under capture has to, and asks for what the defaults do not give.
[[gnu::noinline]] void prepare(const DriverFunctions& call, Device& device, Entry& entry, const LaunchRequest& request) {
  auto& ready = entry.ready[static_cast<std::size_t>(device.ordinal)];
  const RelaxedCapture relaxed(call);
  const auto function = function_on(device, entry);
  if (volume(request.cluster) > portable_cluster) {
    if (const auto result = call.set_kernel_attribute(wide_clusters, 1, entry.kernel, device.handle)) fail(device, result, request);
    ready.wide_clusters.store(true, std::memory_order_release);
  }
  if (request.shared_bytes > device.facts.shared_memory)
    throw DeviceError(
        fmt::format("{}: a block of {} has at most {} bytes", described(device, request), device.facts.name, device.facts.shared_memory));
  const auto bytes = static_cast<int>(request.shared_bytes);
  ready.function.store(function, std::memory_order_release);
  if (bytes > 0 && call.set_kernel_attribute)
    if (const auto result = call.set_kernel_attribute(dynamic_shared_bytes, bytes, entry.kernel, device.handle))
      fail(device, result, request);
  auto known = ready.shared_bytes.load(std::memory_order_relaxed);
  while (known < bytes && !ready.shared_bytes.compare_exchange_weak(known, bytes, std::memory_order_release)) {
  }
}

bool is_ready(const Entry& entry, const LaunchRequest& request) {
  const auto& ready = entry.ready[static_cast<std::size_t>(request.device)];
  return request.shared_bytes <= ready.shared_bytes.load(std::memory_order_acquire) &&
         (volume(request.cluster) <= portable_cluster || ready.wide_clusters.load(std::memory_order_acquire));
}

unsigned narrow(std::int64_t extent) { return static_cast<unsigned>(extent); }

Result launch_plain(const DriverFunctions& call, Function function, const LaunchRequest& r, Stream stream) {
  return call.launch(function, narrow(r.grid[0]), narrow(r.grid[1]), narrow(r.grid[2]), narrow(r.block[0]), narrow(r.block[1]),
                     narrow(r.block[2]), narrow(r.shared_bytes), stream, const_cast<void**>(r.arguments), nullptr);
}

// What a launch says beside its grid. config points to the attributes.
struct SpecialLaunch {
  LaunchAttribute attributes[3] = {};
  LaunchConfig config = {};

  SpecialLaunch(const LaunchRequest& r, Stream stream) {
    if (volume(r.cluster) > 1) {
      auto& attribute = next(cluster_dimension);
      for (int i = 0; i < 3; ++i) attribute.cluster[i] = narrow(r.cluster[i]);
    }
    if (r.cooperative) next(cooperative_launch).cooperative = 1;
    if (r.overlaps) next(programmatic_order).may_overlap = 1;
    for (int i = 0; i < 3; ++i) config.grid[i] = narrow(r.grid[i]), config.block[i] = narrow(r.block[i]);
    config.shared_bytes = narrow(r.shared_bytes), config.stream = stream, config.attributes = attributes;
  }
  SpecialLaunch(const SpecialLaunch&) = delete;
  SpecialLaunch& operator=(const SpecialLaunch&) = delete;

 private:
  LaunchAttribute& next(LaunchAttributeId id) {
    auto& attribute = attributes[config.attribute_count++];
    attribute.id = id;
    return attribute;
  }
};

Result launch_special(const DriverFunctions& call, Function function, const LaunchRequest& r, Stream stream) {
  const SpecialLaunch special(r, stream);
  return call.launch_config(&special.config, function, const_cast<void**>(r.arguments), nullptr);
}

Result launch_cooperative_alone(const DriverFunctions& call, Function function, const LaunchRequest& r, Stream stream) {
  return call.launch_cooperative(function, narrow(r.grid[0]), narrow(r.grid[1]), narrow(r.grid[2]), narrow(r.block[0]), narrow(r.block[1]),
                                 narrow(r.block[2]), narrow(r.shared_bytes), stream, const_cast<void**>(r.arguments));
}

void check(const Vendor& vendor, Device& device, const LaunchRequest& request) {
  if (device.lost()) device.refuse_lost();
  if (!fits(request)) refuse(device, request);
  if (!fits_threads(vendor, request)) refuse_threads(vendor, device, request);
}

}  // namespace

std::int64_t resident_blocks(Platform& platform, const LaunchRequest& request) {
  auto& device = platform.device(request.device);
  auto& entry = *static_cast<Entry*>(request.entry);
  check(*platform.driver.vendor, device, request);
  const CurrentDevice current(platform.call, device);
  prepare(platform.call, device, entry, request);
  const auto function = entry.ready[static_cast<std::size_t>(request.device)].function.load(std::memory_order_acquire);
  int blocks = 0;
  const auto threads = static_cast<int>(volume(request.block));
  if (const auto result = platform.call.blocks_a_processor(&blocks, function, threads, static_cast<std::size_t>(request.shared_bytes)))
    fail(device, result, request);
  return blocks * device.facts.sms;
}

std::string why_not_placed(Platform& platform, const LaunchRequest& request) {
  if (volume(request.cluster) <= 1) return {};
  auto& device = platform.device(request.device);
  auto& entry = *static_cast<Entry*>(request.entry);
  if (!platform.call.clusters_at_once) refuse_special(*platform.driver.vendor, device, request);
  check(*platform.driver.vendor, device, request);
  const CurrentDevice current(platform.call, device);
  if (!is_ready(entry, request)) prepare(platform.call, device, entry, request);
  const auto function = entry.ready[static_cast<std::size_t>(request.device)].function.load(std::memory_order_acquire);
  const SpecialLaunch special(request, nullptr);
  int clusters = 0;
  const auto result = platform.call.clusters_at_once(&clusters, function, &special.config);
  if (result == success && clusters > 0) return {};
  return described(device, request) + ": the driver says that no such cluster fits this device";
}

void launch(Platform& platform, const LaunchRequest& request, void* stream) {
  auto& device = platform.device(request.device);
  auto& entry = *static_cast<Entry*>(request.entry);
  check(*platform.driver.vendor, device, request);
  const CurrentDevice current(platform.call, device);
  if (!is_ready(entry, request)) prepare(platform.call, device, entry, request);
  // Where the driver cannot be told that launches may overlap, they do not.
  const bool overlaps = request.overlaps && platform.call.launch_config && device.facts.major >= first_major_that_overlaps;
  const bool clusters = volume(request.cluster) > 1;
  if (clusters && !platform.call.launch_config) refuse_special(*platform.driver.vendor, device, request);
  const bool plain = !clusters && !request.cooperative && !overlaps;
  const auto function = entry.ready[static_cast<std::size_t>(request.device)].function.load(std::memory_order_acquire);
  const auto start = plain ? launch_plain : platform.call.launch_config ? launch_special : launch_cooperative_alone;
  if (const auto result = start(platform.call, function, request, static_cast<Stream>(stream))) fail(device, result, request);
  device.last_launch.store(entry.label, std::memory_order_relaxed);
}

}  // namespace ejk::gpu
