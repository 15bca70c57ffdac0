// ld and st: the element's type in memory and the register's width choose a loop; vectors are loaded and stored part by part.
#include <cstring>

#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

// In an Instruction: `number` is the Space, `width` the bytes of one lane's whole access, `bits` whether the address has 64 bits.
Places places_of_access(Warp& warp, const Instruction& instruction, std::size_t base) {
  Places places;
  find_places(warp, warp.active, static_cast<Space>(instruction.number),
              {instruction.slots[base], instruction.offset, instruction.bits != 0}, static_cast<std::uint32_t>(instruction.width), places);
  return places;
}

// What a value looks like in a register: extended by its sign or by zeros, those of 16 bits to 16.
template <class Element, class Register, bool half>
Register extended(Element value) {
  if constexpr (half) return static_cast<std::uint16_t>(value);
  return static_cast<Register>(value);
}

template <class Element, class Register, bool half>
void load(Warp& warp, const Instruction& instruction) {
  const auto parts = instruction.slots.size() - 1;
  const auto places = places_of_access(warp, instruction, parts);
  for (std::size_t part = 0; part < parts; ++part) {
    if (instruction.slots[part] == no_slot) continue;
    auto* to = warp.lanes_of<Register>(instruction.slots[part]);
    const auto one = [&](int lane) {
      Element value;
      std::memcpy(&value, places[lane] + part * sizeof value, sizeof value);
      to[lane] = extended<Element, Register, half>(value);
    };
    if (warp.active == all_lanes)
      for (int lane = 0; lane < lanes; ++lane) one(lane);
    else
      each_active(warp, one);
  }
}

template <class Element, class Register>
void store(Warp& warp, const Instruction& instruction) {
  const auto places = places_of_access(warp, instruction, 0);
  for (std::size_t part = 0; part + 1 < instruction.slots.size(); ++part) {
    const auto* from = warp.lanes_of<Register>(instruction.slots[part + 1]);
    const auto one = [&](int lane) {
      const auto value = static_cast<Element>(from[lane]);
      std::memcpy(places[lane] + part * sizeof value, &value, sizeof value);
    };
    if (warp.active == all_lanes)
      for (int lane = 0; lane < lanes; ++lane) one(lane);
    else
      each_active(warp, one);
  }
}

template <class Element>
Handler load_into(RegisterKind kind) {
  if (kind == RegisterKind::word64) return load<Element, std::uint64_t, false>;
  if constexpr (sizeof(Element) == 8)
    return nullptr;
  else
    return kind == RegisterKind::word16 ? load<Element, std::uint32_t, true> : load<Element, std::uint32_t, false>;
}

Handler loader(ElementType type, RegisterKind kind) {
  switch (type.bytes) {
    case 1:
      return type.is_signed ? load_into<std::int8_t>(kind) : load_into<std::uint8_t>(kind);
    case 2:
      return type.is_signed ? load_into<std::int16_t>(kind) : load_into<std::uint16_t>(kind);
    case 4:
      return type.is_signed ? load_into<std::int32_t>(kind) : load_into<std::uint32_t>(kind);
    default:
      return load_into<std::uint64_t>(kind);
  }
}

template <class Element>
Handler store_from(RegisterKind kind) {
  if (kind == RegisterKind::word64) return store<Element, std::uint64_t>;
  if constexpr (sizeof(Element) == 8)
    return nullptr;
  else
    return store<Element, std::uint32_t>;
}

Handler storer(ElementType type, RegisterKind kind) {
  switch (type.bytes) {
    case 1:
      return store_from<std::uint8_t>(kind);
    case 2:
      return store_from<std::uint16_t>(kind);
    case 4:
      return store_from<std::uint32_t>(kind);
    default:
      return store_from<std::uint64_t>(kind);
  }
}

// Of all parts of the value, which must agree: the width of registers. Sinks have none.
RegisterKind register_kind(const Parsed& parsed, const Operand& value, RegisterKind unless) {
  if (value.kind != OperandKind::vector) return value.kind == OperandKind::sink ? unless : value.reg;
  auto kind = unless;
  bool known = false;
  for (const auto& part : value.parts) {
    if (part.kind == OperandKind::sink) continue;
    // A constant of 16 bits lies as one of 32 does.
    const bool alike = !known || (part.reg == RegisterKind::word64) == (kind == RegisterKind::word64);
    if (!alike) not_emulated(parsed, "registers of different widths in a vector are not emulated");
    if (!known || part.reg == RegisterKind::word16) kind = part.reg;
    known = true;
  }
  return kind;
}

void check_shape(const Parsed& parsed, const Operand& value) {
  const auto parts = static_cast<std::size_t>(vector_parts(parsed));
  const auto found = value.kind == OperandKind::vector ? value.parts.size() : 1;
  if (parts != found) not_emulated(parsed, "its vector has not as many parts as the opcode says");
}

}  // namespace

bool decode_load_store(const Parsed& parsed, Instruction& made) {
  const auto word = parsed.words.front();
  const bool is_load = word == "ld" || word == "ldu";
  if ((!is_load && word != "st") || parsed.has("async") || parsed.has("bulk")) return false;
  only_words(parsed, {});
  operand_count(parsed, 2, 3);  // perhaps a cache policy
  const auto type = element_type(parsed, parsed.type());
  const auto& value = parsed.operands[is_load ? 0 : 1];
  check_shape(parsed, value);
  const auto address = address_of(parsed, is_load ? 1 : 0);
  const auto kind = register_kind(parsed, value, type.bytes == 8 ? RegisterKind::word64 : RegisterKind::word32);
  made.run = is_load ? loader(type, kind) : storer(type, kind);
  if (!made.run || kind == RegisterKind::predicate) not_emulated(parsed, "the register is narrower than the element");
  made.slots.resize(parts_of(value).size() + 1);  // without a cache policy
  made.number = static_cast<int>(space_of(parsed));
  made.width = type.bytes * vector_parts(parsed);
  made.bits = address.wide;
  made.offset = address.offset;
  return true;
}

}  // namespace ejk::ptx
