// Addresses as values: between spaces (cvta, isspacep), of other CTAs of the cluster (mapa, getctarank); and cache policies, which mean
// nothing here.
#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint32_t offset_in_cta = (1u << cluster_shift) - 1;

std::uint64_t read_wide(Warp& warp, Slot slot, bool wide, int lane) {
  return wide ? warp.lanes_of<std::uint64_t>(slot)[lane] : warp.lanes_of<std::uint32_t>(slot)[lane];
}
void write_wide(Warp& warp, Slot slot, bool wide, int lane, std::uint64_t value) {
  if (wide)
    warp.lanes_of<std::uint64_t>(slot)[lane] = value;
  else
    warp.lanes_of<std::uint32_t>(slot)[lane] = static_cast<std::uint32_t>(value);
}

// `width` has bit i where operand i has 64 bits.
bool is_wide(const Instruction& instruction, int operand) { return instruction.width >> operand & 1; }

std::uint64_t space_tag(Space space) {
  return space == Space::shared ? generic_shared : space == Space::local ? generic_local : space == Space::param ? generic_param : 0;
}

// Of a base and an offset: cvta also takes a variable's name, with an offset perhaps.
void to_generic(Warp& warp, const Instruction& instruction) {
  each_active(warp, [&](int lane) {
    const auto address =
        read_wide(warp, instruction.slots[1], is_wide(instruction, 1), lane) + static_cast<std::uint64_t>(instruction.offset);
    write_wide(warp, instruction.slots[0], is_wide(instruction, 0), lane, address | instruction.bits);
  });
}
void from_generic(Warp& warp, const Instruction& instruction) {
  each_active(warp, [&](int lane) {
    const auto address = read_wide(warp, instruction.slots[1], is_wide(instruction, 1), lane);
    write_wide(warp, instruction.slots[0], is_wide(instruction, 0), lane, address & ~instruction.bits);
  });
}

bool decode_conversion(const Parsed& parsed, Instruction& made) {
  const bool to = parsed.has("to");
  operand_count(parsed, 2, 2);
  made.bits = space_tag(space_of(parsed));
  made.run = to ? from_generic : to_generic;
  return true;
}

// The bit of generic addresses stays, and the place in the CTA.
void map_address(Warp& warp, const Instruction& instruction) {
  each_active(warp, [&](int lane) {
    const auto address =
        read_wide(warp, instruction.slots[1], is_wide(instruction, 1), lane) + static_cast<std::uint64_t>(instruction.offset);
    const std::uint64_t rank = warp.lanes_of<std::uint32_t>(instruction.slots[2])[lane];
    if (rank >= warp.block->cluster.size())
      throw Fault("mapa: rank " + std::to_string(rank) + ", expected one below the cluster's " +
                  std::to_string(warp.block->cluster.size()) + " CTAs (lane " + std::to_string(lane) + ")");
    const auto mapped = (address & generic_shared) | (address & offset_in_cta) | (rank + 1) << cluster_shift;
    write_wide(warp, instruction.slots[0], is_wide(instruction, 0), lane, mapped);
  });
}

void rank_of_address(Warp& warp, const Instruction& instruction) {
  each_active(warp, [&](int lane) {
    const auto address =
        read_wide(warp, instruction.slots[1], is_wide(instruction, 1), lane) + static_cast<std::uint64_t>(instruction.offset);
    warp.lanes_of<std::uint32_t>(instruction.slots[0])[lane] =
        static_cast<std::uint32_t>(warp.block->block_of(static_cast<std::uint32_t>(address)).rank);
  });
}

// `number`: 1 asks for this CTA's shared memory alone.
bool is_of_space(Warp& warp, const Instruction& instruction, std::uint64_t address) {
  constexpr auto tags = generic_shared | generic_local | generic_param;
  if ((address & tags) != instruction.bits) return false;
  const auto number = static_cast<std::uint32_t>(address);
  return instruction.number != 1 || number <= offset_in_cta || &warp.block->block_of(number) == warp.block;
}
void is_space(Warp& warp, const Instruction& instruction) {
  std::uint32_t holds = 0;
  each_active(warp, [&](int lane) {
    if (is_of_space(warp, instruction, read_wide(warp, instruction.slots[1], is_wide(instruction, 1), lane))) holds |= 1u << lane;
  });
  auto& predicate = warp.predicate(instruction.slots[0]);
  predicate = (predicate & ~warp.active) | holds;
}

// createpolicy's encoding of the commonest policies is not told by the PTX ISA; nothing here reads it.
void make_policy(Warp& warp, const Instruction& instruction) {
  each_active(warp, [&](int lane) { warp.lanes_of<std::uint64_t>(instruction.slots[0])[lane] = 0x1000'0000'0000'0000; });
}

}  // namespace

bool decode_address(const Parsed& parsed, Instruction& made) {
  const auto word = parsed.words.front();
  if (word != "cvta" && word != "mapa" && word != "getctarank" && word != "isspacep" && word != "createpolicy") return false;
  for (std::size_t i = 0; i < parsed.operands.size() && i < 2; ++i) {
    const auto& operand = parsed.operands[i];
    const bool wide = operand.kind == OperandKind::address ? operand.wide : operand.reg == RegisterKind::word64;
    made.width |= wide << i;
  }
  if (word == "cvta") return decode_conversion(parsed, made);
  if (word == "isspacep") {
    operand_count(parsed, 2, 2);
    made.bits = space_tag(space_of(parsed));
    made.number = parsed.has("shared") || parsed.has("shared::cta");
    made.run = is_space;
    return true;
  }
  if (word == "createpolicy") {
    made.run = make_policy;
    return true;
  }
  operand_count(parsed, word == "mapa" ? 3 : 2, word == "mapa" ? 3 : 2);
  made.run = word == "mapa" ? map_address : rank_of_address;
  return true;
}

}  // namespace ejk::ptx
