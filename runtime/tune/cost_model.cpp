// Room, turns and what they leave idle.
#include "tune/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tune/properties.hpp"

namespace ejk {
namespace {

constexpr double enough_warps = 8;         // at a time on a processor
constexpr std::int64_t register_step = 8;  // registers are given to a thread in such numbers
// The most that any processor has, so that nothing is thought fuller than it is: compute capability 8.0, 9.0, 10.0.
constexpr std::int64_t most_threads = 2048, most_blocks = 32;
// Of a processor's shared memory the system takes that much for each block; an arch's `shared_memory` is what one block alone may have.
constexpr std::int64_t system_shared = 1024;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

std::int64_t room_of(std::int64_t threads, std::int64_t shared_bytes, std::int64_t registers, const Processors& processors) {
  std::int64_t room = processors.blocks ? processors.blocks : most_blocks;
  const auto limit = [&](std::int64_t has, std::int64_t needed) {
    if (has && needed) room = std::min(room, has / needed);
  };
  limit(processors.threads, rounded_up(threads, processors.warp));
  limit(processors.shared_bytes, shared_bytes + system_shared);
  limit(processors.registers, registers_of_block(registers, threads, processors.warp));
  return std::max<std::int64_t>(room, 1);  // what does not fit at all is not the model's to reject
}

}  // namespace

std::int64_t registers_of_block(std::int64_t registers_a_thread, std::int64_t threads, std::int64_t warp) {
  return rounded_up(registers_a_thread, register_step) * rounded_up(threads, std::max<std::int64_t>(warp, 1));
}

std::optional<Processors> processors_of(const spec::Arch& arch) {
  if (arch.platform == "cpu") {
    const auto threads = property_of(arch, "threads");
    return threads > 0 ? std::optional(Processors{threads}) : std::nullopt;
  }
  const auto count = property_of(arch, "sms"), warp = property_of(arch, "warp"), shared = property_of(arch, "shared_memory");
  if (count <= 0 || warp <= 0) return std::nullopt;
  return Processors{count, warp, most_threads, most_blocks, shared ? shared + system_shared : 0, property_of(arch, "registers")};
}

Fill fill_of(const spec::LaunchGeometry& launch, const spec::Resources& compiled, const Processors& processors) {
  Fill fill;
  if (launch.launch) fill.entry = launch.launch->entry;
  fill.processors = processors.count;
  fill.blocks = 1;
  for (const auto extent : launch.grid) fill.blocks *= static_cast<double>(extent);
  if (processors.warp) {
    const auto threads = launch.block[0] * launch.block[1] * launch.block[2];
    fill.warps = std::max<std::int64_t>(1, rounded_up(threads, processors.warp) / processors.warp);
    fill.room =
        room_of(threads, launch.shared_bytes + resource_of(compiled, "shared_bytes"), resource_of(compiled, "registers"), processors);
  }
  const auto rate = [&](double blocks) {
    return processors.warp ? std::min(1.0, blocks * static_cast<double>(fill.warps) / enough_warps) : 1.0;
  };
  const auto count = static_cast<double>(processors.count), room = static_cast<double>(fill.room);
  const double most = std::ceil(fill.blocks / count), turns = std::floor(most / room), rest = most - turns * room;
  const double time = turns * room / rate(room) + (rest > 0 ? rest / rate(rest) : 0);
  fill.efficiency = fill.blocks / count / time;
  return fill;
}

std::optional<Fill> fill_of(const spec::Geometry& geometry, const spec::Resources& compiled, const spec::Arch& arch) {
  const auto processors = processors_of(arch);
  std::optional<Fill> best;
  if (!processors) return best;
  for (const auto& launch : geometry.launches)
    if (const auto fill = fill_of(launch, compiled, *processors); !best || fill.efficiency > best->efficiency) best = fill;
  return best;
}

std::string words_of(const Fill& fill) {
  const auto blocks =
      fmt::format("{} has {:.0f} {}{}", fill.entry, fill.blocks, fill.warps ? "block" : "cell", fill.blocks == 1 ? "" : "s");
  if (!fill.warps) return fmt::format("{} for {} threads", blocks, fill.processors);
  return fmt::format("{} of {} warp{} for {} processors with room for {} each", blocks, fill.warps, fill.warps == 1 ? "" : "s",
                     fill.processors, fill.room);
}

}  // namespace ejk
