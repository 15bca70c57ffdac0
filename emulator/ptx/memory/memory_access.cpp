// Places of a warp's lanes: one check for all of them where they lie in one piece of memory, else lane by lane.
#include "emulator/ptx/memory/memory_access.hpp"

#include <fmt/format.h>

#include "emulator/ptx/memory/allocations.hpp"

namespace ejk::ptx {
namespace {

using Addresses = std::array<std::uint64_t, lanes>;

char* place_of(Warp& warp, int lane, Space space, std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  switch (space) {
    case Space::global:
      return warp.block->grid->global_at(address, bytes, alignment);
    case Space::shared:  // 32 bits; one of 64 that comes from generic space has had its bit taken away by cvta.to
      return warp.block->shared_at(static_cast<std::uint32_t>(address), bytes, alignment);
    case Space::local:
      return generic_at(warp, lane, address | generic_local, bytes, alignment);
    case Space::param:  // that of a call has been laid out in local memory
      return generic_at(warp, lane, address & generic_local ? address : address | generic_param, bytes, alignment);
    case Space::generic:
      break;
  }
  return generic_at(warp, lane, address, bytes, alignment);
}

void all_addresses(Warp& warp, const Address& address, Addresses& sums) {
  if (address.wide) {
    const auto* bases = warp.lanes_of<std::uint64_t>(address.slot);
    const auto offset = static_cast<std::uint64_t>(address.offset);
    for (int lane = 0; lane < lanes; ++lane) sums[lane] = bases[lane] + offset;
  } else {
    const auto* bases = warp.lanes_of<std::uint32_t>(address.slot);
    const auto offset = static_cast<std::uint32_t>(address.offset);
    for (int lane = 0; lane < lanes; ++lane) sums[lane] = bases[lane] + offset;
  }
}

// Lanes that do not take part get the first one's address, so that what follows has no masks.
void fill_inactive(std::uint32_t active, Addresses& addresses) {
  const auto first = addresses[std::countr_zero(active)];
  for (int lane = 0; lane < lanes; ++lane)
    if (!(active >> lane & 1)) addresses[lane] = first;
}

// Whether all lanes' bytes lie within [begin, begin + size) and are aligned, where begin is. The bits of all offsets together are no less
// than the largest of them: that settles most cases without comparing.
bool all_within(const Addresses& addresses, std::uint64_t begin, std::uint64_t size, std::uint64_t bytes) {
  if (size < bytes) return false;
  std::uint64_t bits = 0, low = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    bits |= addresses[lane] - begin;
    low |= addresses[lane];
  }
  if (low & (bytes - 1)) return false;
  if (bits <= size - bytes) return true;
  bool within = true;
  for (int lane = 0; lane < lanes; ++lane) within &= addresses[lane] - begin <= size - bytes;
  return within;
}

bool find_global(const Addresses& addresses, std::uint64_t bytes, Places& places) {
  const auto* allocation = allocations().find(addresses[0]);
  if (!allocation || !all_within(addresses, allocation->address, allocation->bytes, bytes)) return false;
  for (int lane = 0; lane < lanes; ++lane) places[lane] = reinterpret_cast<char*>(addresses[lane]);
  return true;
}

// `tag`: what the addresses have added (generic_shared, generic_local or nothing).
bool find_numbered(const Addresses& addresses, std::uint64_t tag, std::uint64_t first, char* memory, std::uint64_t size,
                   std::uint64_t bytes, Places& places) {
  if (size < first || !all_within(addresses, tag + first, size - first, bytes)) return false;
  for (int lane = 0; lane < lanes; ++lane) places[lane] = memory + (addresses[lane] - tag);
  return true;
}

bool find_shared(Block& block, const Addresses& addresses, std::uint64_t tag, std::uint64_t bytes, Places& places) {
  return find_numbered(addresses, tag, reserved_shared, block.shared.data(), block.shared.size(), bytes, places);
}

bool find_local(Warp& warp, const Addresses& addresses, std::uint64_t tag, std::uint64_t bytes, Places& places) {
  if (!find_numbered(addresses, tag, 0, warp.local(0), warp.local_bytes, bytes, places)) return false;
  for (int lane = 0; lane < lanes; ++lane) places[lane] += static_cast<std::size_t>(lane) * warp.local_bytes;
  return true;
}

bool find_all(Warp& warp, Space space, const Addresses& addresses, std::uint64_t bytes, Places& places) {
  const auto first = addresses[0];
  switch (space) {
    case Space::global:
      return find_global(addresses, bytes, places);
    case Space::shared:
      return find_shared(*warp.block, addresses, 0, bytes, places);
    case Space::local:
      return find_local(warp, addresses, 0, bytes, places);
    case Space::param: {
      auto& parameters = warp.block->grid->parameters;
      return find_numbered(addresses, 0, 0, parameters.data(), parameters.size(), bytes, places);
    }
    case Space::generic:
      break;
  }
  if (first & generic_shared) return find_shared(*warp.block, addresses, generic_shared, bytes, places);
  if (first & generic_local) return find_local(warp, addresses, generic_local, bytes, places);
  return !(first & generic_param) && find_global(addresses, bytes, places);
}

}  // namespace

char* place_at(Warp& warp, int lane, Space space, std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  try {
    return place_of(warp, lane, space, address, bytes, alignment);
  } catch (Fault& fault) {
    fault.words += fmt::format(" (lane {})", lane);
    throw;
  }
}

std::uint32_t shared_number(Warp& warp, int lane, Space space, std::uint64_t address) {
  if (space == Space::generic && !(address & generic_shared))
    throw Fault(fmt::format("generic address {:#x}: not in shared memory, expected an address there (warp {}, lane {})", address,
                            warp.number, lane));
  return static_cast<std::uint32_t>(address);
}

void find_places(Warp& warp, std::uint32_t mask, Space space, const Address& address, std::uint32_t bytes, Places& places) {
  if (!mask) return;
  Addresses addresses;
  all_addresses(warp, address, addresses);
  if (mask != all_lanes) fill_inactive(mask, addresses);
  if (find_all(warp, space, addresses, bytes, places)) return;
  each_lane(mask, [&](int lane) { places[lane] = place_at(warp, lane, space, addresses[lane], bytes, bytes); });
}

}  // namespace ejk::ptx
