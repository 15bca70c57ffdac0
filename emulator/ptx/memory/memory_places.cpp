// From addresses to the host's bytes, with what can be wrong on the way: out of bounds, not aligned, another's.
#include <fmt/format.h>

#include "emulator/ptx/machine.hpp"
#include "emulator/ptx/memory/allocations.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint32_t shared_offset_mask = (1u << cluster_shift) - 1;

std::string place_words(const char* space, std::uint64_t address, std::size_t bytes) {
  return fmt::format("{} bytes of {} memory at address {:#x}", bytes, space, address);
}

[[noreturn]] void misaligned(const char* space, std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  throw Fault(fmt::format("{}: not aligned, expected a multiple of {}", place_words(space, address, bytes), alignment));
}

std::string global_words(std::uint64_t address) {
  const auto* near = allocations().nearest(address);
  if (!near) return "nothing is allocated";
  const auto offset = static_cast<std::int64_t>(address - near->address);
  return fmt::format("that is offset {} from the nearest allocation, of {} bytes", offset, near->bytes);
}

// Memory that is numbered from 0: a lane's local bytes, the entry's parameters.
char* numbered_at(const char* space, char* memory, std::size_t size, std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  if (address > size || bytes > size - address)
    throw Fault(fmt::format("{}: out of bounds, expected to be within {} bytes", place_words(space, address, bytes), size));
  if (address % alignment) misaligned(space, address, bytes, alignment);
  return memory + address;
}

}  // namespace

Block& Block::block_of(std::uint32_t address) {
  const auto whose = address >> cluster_shift;
  if (!whose) return *this;
  if (whose > cluster.size())
    throw Fault(fmt::format("shared address {:#x}: of CTA {} of the cluster, expected one of its {}", address, whose - 1, cluster.size()));
  return *cluster[whose - 1];
}

char* Block::shared_at(std::uint32_t address, std::size_t bytes, std::size_t alignment) {
  auto& block = block_of(address);
  const std::size_t offset = address & shared_offset_mask, size = block.shared.size();
  if (offset < reserved_shared)
    throw Fault(fmt::format("{}: in the system's first {} bytes", place_words("shared", address, bytes), reserved_shared));
  if (offset > size || bytes > size - offset)
    throw Fault(fmt::format("{}: out of bounds, expected an end of at most {:#x} (the CTA has {} bytes)",
                            place_words("shared", address, bytes), size, size < reserved_shared ? 0 : size - reserved_shared));
  if (offset % alignment) misaligned("shared", address, bytes, alignment);
  return block.shared.data() + offset;
}

char* Grid::global_at(std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  const auto* allocation = allocations().find(address);
  if (!allocation || !allocation->holds(address, bytes))
    throw Fault(fmt::format("{}: in no allocation or not within one; {}", place_words("global", address, bytes), global_words(address)));
  if (address % alignment)
    throw Fault(fmt::format("{}: not aligned, expected a multiple of {}; {}", place_words("global", address, bytes), alignment,
                            global_words(address)));
  return reinterpret_cast<char*>(address);
}

char* generic_at(Warp& warp, int lane, std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  if (address & generic_shared) return warp.block->shared_at(static_cast<std::uint32_t>(address), bytes, alignment);
  if (address & generic_local) return numbered_at("local", warp.local(lane), warp.local_bytes, address & ~generic_local, bytes, alignment);
  auto& grid = *warp.block->grid;
  if (address & generic_param)
    return numbered_at("parameter", grid.parameters.data(), grid.parameters.size(), address & ~generic_param, bytes, alignment);
  return grid.global_at(address, bytes, alignment);
}

}  // namespace ejk::ptx
