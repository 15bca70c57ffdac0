// A CTA of one warp (or a cluster of such) by hand, and instructions made of an opcode and operands, for tests of single instructions.
#pragma once
#include <cstdlib>
#include <cstring>
#include <string>

#include "emulator/ptx/machine.hpp"
#include "emulator/ptx/memory/allocations.hpp"
#include "tests/ptx/zeroed_file.hpp"

namespace ejk::ptx::test {

inline Operand in_register(Slot slot, RegisterKind kind) {
  Operand made;
  made.kind = OperandKind::reg;
  made.reg = kind;
  made.slot = slot;
  return made;
}
inline Operand half(Slot slot) { return in_register(slot, RegisterKind::word16); }
inline Operand word(Slot slot) { return in_register(slot, RegisterKind::word32); }
inline Operand wide(Slot slot) { return in_register(slot, RegisterKind::word64); }
inline Operand predicate(Slot slot) { return in_register(slot, RegisterKind::predicate); }
inline Operand vector(std::vector<Operand> parts) {
  Operand made;
  made.kind = OperandKind::vector;
  made.parts = std::move(parts);
  return made;
}
inline Operand at(Slot slot, std::int64_t offset = 0) {  // 32 bits
  Operand made;
  made.kind = OperandKind::address;
  made.slot = slot;
  made.offset = offset;
  return made;
}
inline Operand at_wide(Slot slot, std::int64_t offset = 0) {
  auto made = at(slot, offset);
  made.wide = true;
  made.reg = RegisterKind::word64;
  return made;
}
inline Operand number(Slot slot, std::uint64_t bits) {  // a constant; OneWarp::run fills its slot
  Operand made;
  made.kind = OperandKind::constant;
  made.slot = slot;
  made.bits = bits;
  return made;
}

inline void flatten(const Operand& operand, std::vector<Slot>& slots) {
  if (operand.kind != OperandKind::vector) slots.push_back(operand.slot);
  for (const auto& part : operand.parts) flatten(part, slots);
}

struct OneWarp {
  explicit OneWarp(int ctas = 1, Pace pace = Pace::eager) {
    grid.pace = pace;
    grid.parameters.assign(512, 0);
    for (int rank = 0; rank < ctas; ++rank) {
      blocks.push_back(std::make_unique<Block>());
      auto& block = *blocks.back();
      block.grid = &grid;
      block.rank = rank;
      block.shared.assign(reserved_shared + 65536, 0x77);
      block.warps.push_back(std::make_unique<Warp>());
      auto& its = *block.warps.back();
      its.block = &block;
      its.active = its.path = its.alive = all_lanes;
      its.file = zeroed_file(128);
      its.local_bytes = 64;
      its.locals.assign(lanes * 64, 0);
    }
    for (auto& block : blocks)
      for (auto& other : blocks) block->cluster.push_back(other.get());
  }
  Warp& warp(int rank = 0) { return *blocks[static_cast<std::size_t>(rank)]->warps[0]; }
  Block& block(int rank = 0) { return *blocks[static_cast<std::size_t>(rank)]; }

  template <class T>
  T& value(Slot slot, int lane, int rank = 0) {
    return warp(rank).lanes_of<T>(slot)[lane];
  }
  template <class T>
  void fill(Slot slot, T same, int rank = 0) {
    for (int lane = 0; lane < lanes; ++lane) value<T>(slot, lane, rank) = same;
  }
  template <class T>
  T shared(std::uint32_t address, int rank = 0) {
    T made;
    std::memcpy(&made, block(rank).shared.data() + address, sizeof made);
    return made;
  }
  template <class T>
  void put_shared(std::uint32_t address, T what, int rank = 0) {
    std::memcpy(block(rank).shared.data() + address, &what, sizeof what);
  }

  Instruction decode(Decoder decoder, const std::string& opcode, std::vector<Operand> operands) {
    opcodes.push_back(std::make_unique<std::string>(opcode));
    Parsed parsed;
    parsed.opcode = parsed.text = *opcodes.back();
    std::string_view rest = parsed.opcode;
    for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      parsed.words.push_back(rest.substr(0, dot));
      rest = rest.substr(dot + 1);
    }
    parsed.words.push_back(rest);
    Instruction made;
    bool has_address = false;
    for (const auto& operand : operands) {
      flatten(operand, made.slots);
      if (operand.kind == OperandKind::address && !has_address) made.offset = operand.offset, has_address = true;
    }
    parsed.operands = std::move(operands);
    if (!decoder(parsed, made)) throw std::runtime_error("not decoded: " + opcode);
    for (auto& each : blocks)
      for (const auto& operand : parsed.operands)
        if (operand.kind == OperandKind::constant)
          for (int lane = 0; lane < lanes; ++lane)
            each->warps[0]->lanes_of<std::uint32_t>(operand.slot)[lane] = static_cast<std::uint32_t>(operand.bits);
    return made;
  }
  void run(Decoder decoder, const std::string& opcode, std::vector<Operand> operands, int rank = 0) {
    const auto made = decode(decoder, opcode, std::move(operands));
    warp(rank).progress = Progress::done;
    made.run(warp(rank), made);
  }
  // The machine's part: all that is pending.
  void run_pending() {
    while (!grid.pending.empty()) {
      const auto piece = grid.pending.front().piece;
      grid.pending.pop_front();
      piece->run();
    }
  }

  Grid grid;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<std::string>> opcodes;
};

// Memory of the device, as the driver would allocate it.
template <class T>
struct DeviceArray {
  explicit DeviceArray(std::size_t count) : values(static_cast<T*>(std::aligned_alloc(256, (count * sizeof(T) + 255) / 256 * 256))) {
    std::memset(values, 0, count * sizeof(T));
    allocations().add(values, count * sizeof(T));
  }
  ~DeviceArray() {
    allocations().remove(values);
    std::free(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  std::uint64_t address(std::size_t index = 0) const { return reinterpret_cast<std::uintptr_t>(values + index); }
  T* values;
};

template <class Do>
std::string fault_of(Do&& work) {
  try {
    work();
  } catch (const Fault& fault) {
    return fault.words;
  }
  return "";
}

}  // namespace ejk::ptx::test
