// Slots for an entry's registers, constants and special registers.
#pragma once
#include "emulator/ptx/parse/parse_body.hpp"

namespace ejk::ptx::parsing {

struct Slots {
  std::vector<Slot> of_register, of_special, of_constant;
  Slot units = 0;

  Slot operator()(Slot id) const {
    return id == no_slot          ? no_slot
           : id >= first_constant ? of_constant[id - first_constant]
           : id >= first_special  ? of_special[id - first_special]
                                  : of_register[id];
  }
};

// Registers whose values are never needed at the same place share slots: a kernel's text has thousands of registers, each written once, and
// the file of a warp should stay in the host's caches.
Slots find_slots(const EntryText& text, const FlowBlocks& blocks);

}  // namespace ejk::ptx::parsing
