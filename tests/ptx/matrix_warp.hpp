// A CTA of warps made by hand, in which matrix instructions run whose operands are slots; and elements of factors.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "emulator/ptx/machine.hpp"
#include "tests/ptx/zeroed_file.hpp"

namespace ejk::ptx::test_matrix {

struct Cta {
  explicit Cta(int warps = 1, std::size_t shared_bytes = 65536, Slot units = 400) {
    grid.pace = Pace::eager;
    block.grid = &grid;
    block.shared.assign(shared_bytes, 0);
    for (int number = 0; number < warps; ++number) {
      auto warp = std::make_unique<Warp>();
      warp->block = &block;
      warp->number = number;
      warp->active = warp->path = warp->alive = all_lanes;
      warp->file = zeroed_file(units);
      block.warps.push_back(std::move(warp));
    }
  }
  Warp& warp(int number = 0) { return *block.warps[static_cast<std::size_t>(number)]; }

  Grid grid;
  Block block;
};

inline Operand reg_operand(RegisterKind kind, Slot slot) {
  Operand made;
  made.kind = OperandKind::reg;
  made.reg = kind;
  made.slot = slot;
  return made;
}
inline Operand words_operand(Slot first, int count) {
  Operand made;
  made.kind = OperandKind::vector;
  for (int i = 0; i < count; ++i) made.parts.push_back(reg_operand(RegisterKind::word32, first + static_cast<Slot>(i)));
  return made;
}
inline Operand doubles_operand(Slot first, int count) {
  Operand made;
  made.kind = OperandKind::vector;
  for (int i = 0; i < count; ++i) made.parts.push_back(reg_operand(RegisterKind::word64, first + static_cast<Slot>(2 * i)));
  return made;
}
inline Operand address_operand(Slot slot, std::int64_t offset = 0) {
  Operand made;
  made.kind = OperandKind::address;
  made.slot = slot;
  made.offset = offset;
  return made;
}
inline Operand immediate_operand(std::int64_t value) {
  Operand made;
  made.kind = OperandKind::constant;
  made.bits = static_cast<std::uint64_t>(value);
  made.slot = 399;  // nothing reads it
  return made;
}

// An instruction with what owns its words.
struct Made {
  Made(std::string opcode, std::vector<Operand> operands) : text(std::move(opcode)) {
    parsed.text = parsed.opcode = text;
    std::string_view rest = text;
    for (std::size_t dot; (dot = rest.find('.')) != rest.npos; rest.remove_prefix(dot + 1)) parsed.words.push_back(rest.substr(0, dot));
    parsed.words.push_back(rest);
    parsed.operands = std::move(operands);
    instruction.text = text;
    taken = decode_matrix(parsed, instruction);
  }
  void run(Warp& warp) { instruction.run(warp, instruction); }

  std::string text;
  Parsed parsed;
  Instruction instruction;
  bool taken = false;
};

inline void run(Warp& warp, std::string opcode, std::vector<Operand> operands) { Made(std::move(opcode), std::move(operands)).run(warp); }

inline std::uint32_t& word(Warp& warp, Slot slot, int lane) { return warp.lanes_of<std::uint32_t>(slot)[lane]; }
inline float& single(Warp& warp, Slot slot, int lane) { return warp.lanes_of<float>(slot)[lane]; }

// Small whole numbers as an element of a type: sums of products are exact, whatever their order.
struct Element {
  std::uint32_t bits;
  double value;
};
inline int element_bytes(const std::string& type) { return type == "tf32" ? 4 : type == "f16" || type == "bf16" ? 2 : 1; }
template <class Random>
Element draw_element(const std::string& type, Random& random) {
  const int value = static_cast<int>(random() % 9) - 4, magnitude = value < 0 ? -value : value;
  if (type == "s8") return {static_cast<std::uint8_t>(value), static_cast<double>(value)};
  if (type == "u8") return {static_cast<std::uint32_t>(magnitude + 200), magnitude + 200.0};
  const std::uint32_t halves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400}, sign = value < 0;
  if (type == "f16") return {halves[magnitude] | sign << 15, static_cast<double>(value)};
  if (type == "e5m2") return {halves[magnitude] >> 8 | sign << 7, static_cast<double>(value)};
  const std::uint32_t e4m3[] = {0, 0x38, 0x40, 0x44, 0x48};
  if (type == "e4m3") return {e4m3[magnitude] | sign << 7, static_cast<double>(value)};
  const auto whole = static_cast<float>(value);
  std::uint32_t bits;
  std::memcpy(&bits, &whole, sizeof bits);
  return {type == "bf16" ? bits >> 16 : bits, static_cast<double>(value)};
}

}  // namespace ejk::ptx::test_matrix
