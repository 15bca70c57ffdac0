// What all instructions on memory have in common: state spaces, element types, addresses of a warp's lanes, words of opcodes.
#pragma once
#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

enum class Space : std::uint8_t { generic, global, shared, local, param };

// The space that an opcode names (shared: also shared::cta and shared::cluster; global: also const); generic if it names none.
Space space_of(const Parsed& parsed);
const char* space_name(Space space);

struct ElementType {
  int bytes = 0;
  bool is_signed = false;  // an integer
};
ElementType element_type(const Parsed& parsed, std::string_view type);  // "u32"; throws for one that memory does not hold
int vector_parts(const Parsed& parsed);                                 // 1 without .v2, .v4 or .v8

// An instruction that is of a family but is not emulated.
[[noreturn]] void not_emulated(const Parsed& parsed, std::string_view what);
// Throws unless each word of the opcode after the first is in the list. State spaces, element types, vectors, and words about caches,
// scopes and order, which compute nothing here, need not be listed.
void only_words(const Parsed& parsed, std::initializer_list<std::string_view> allowed);
void operand_count(const Parsed& parsed, std::size_t least, std::size_t most);

// An address operand. Of 32 bits, the sum wraps.
struct Address {
  Slot slot = no_slot;
  std::int64_t offset = 0;
  bool wide = false;

  std::uint64_t of(Warp& warp, int lane) const {
    if (wide) return warp.lanes_of<std::uint64_t>(slot)[lane] + static_cast<std::uint64_t>(offset);
    return warp.lanes_of<std::uint32_t>(slot)[lane] + static_cast<std::uint32_t>(offset);
  }
};
Address address_of(const Parsed& parsed, std::size_t operand);

// The value of an operand that is a number: of 16 or 32 bits (or 64, truncated).
struct Number {
  Slot slot = no_slot;
  bool wide = false;
  std::uint32_t of(Warp& warp, int lane) const {
    return wide ? static_cast<std::uint32_t>(warp.lanes_of<std::uint64_t>(slot)[lane]) : warp.lanes_of<std::uint32_t>(slot)[lane];
  }
  explicit operator bool() const { return slot != no_slot; }
};
Number number_of(const Parsed& parsed, std::size_t operand);

// Slots of an operand's parts: those of a vector, or itself.
std::vector<Slot> parts_of(const Operand& operand);

template <class Do>
void each_lane(std::uint32_t mask, Do&& work) {
  for (; mask; mask &= mask - 1) work(std::countr_zero(mask));
}
template <class Do>
void each_active(const Warp& warp, Do&& work) {
  each_lane(warp.active, work);
}

// The host's bytes of one lane's address. Throws Fault, which names the lane.
char* place_at(Warp& warp, int lane, Space space, std::uint64_t address, std::size_t bytes, std::size_t alignment);
// A shared address (32 bits, perhaps of another CTA) from one that is shared or generic.
std::uint32_t shared_number(Warp& warp, int lane, Space space, std::uint64_t address);

// Those of some lanes, which all access so many bytes, a power of two, aligned to that; of other lanes nothing is said.
using Places = std::array<char*, lanes>;
void find_places(Warp& warp, std::uint32_t mask, Space space, const Address& address, std::uint32_t bytes, Places& places);

}  // namespace ejk::ptx
