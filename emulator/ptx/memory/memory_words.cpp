// Reading opcodes and operands of instructions on memory.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/ptx/memory/memory_access.hpp"

namespace ejk::ptx {
namespace {

using Word = std::string_view;

bool is_silent(Word word) {  // computes nothing here: order, scope, caches
  static constexpr Word words[] = {"weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "sc", "cta", "cluster", "gpu",
                                   "sys",  "ca",      "cg",      "cs",      "lu",      "cv",       "wb",   "wt", "nc",  "unified", "noftz"};
  return std::find(std::begin(words), std::end(words), word) != std::end(words) || word.starts_with("L1::") || word.starts_with("L2::");
}

bool names_space(Word word) {
  static constexpr Word words[] = {"global", "shared", "shared::cta",  "shared::cluster", "local",
                                   "param",  "const",  "param::entry", "param::func"};
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

const ElementType* find_type(Word name) {
  static constexpr struct {
    Word name;
    ElementType type;
  } types[] = {{"b8", {1, false}},  {"u8", {1, false}},    {"s8", {1, true}},     {"b16", {2, false}}, {"u16", {2, false}},
               {"s16", {2, true}},  {"f16", {2, false}},   {"bf16", {2, false}},  {"b32", {4, false}}, {"u32", {4, false}},
               {"s32", {4, true}},  {"f32", {4, false}},   {"b64", {8, false}},   {"u64", {8, false}}, {"s64", {8, true}},
               {"f64", {8, false}}, {"f16x2", {4, false}}, {"bf16x2", {4, false}}};
  for (const auto& each : types)
    if (each.name == name) return &each.type;
  return nullptr;
}

bool is_vector(Word word) { return word == "v2" || word == "v4" || word == "v8"; }

}  // namespace

void not_emulated(const Parsed& parsed, std::string_view what) { throw std::runtime_error(fmt::format("{}: {}", parsed.opcode, what)); }

Space space_of(const Parsed& parsed) {
  for (const auto word : parsed.words) {
    if (word.starts_with("shared")) return Space::shared;
    if (word == "global" || word == "const") return Space::global;
    if (word == "local") return Space::local;
    if (word == "param" || word.starts_with("param::")) return Space::param;
  }
  return Space::generic;
}

const char* space_name(Space space) {
  static constexpr const char* names[] = {"generic", "global", "shared", "local", "param"};
  return names[static_cast<int>(space)];
}

ElementType element_type(const Parsed& parsed, std::string_view type) {
  if (const auto* found = find_type(type)) return *found;
  not_emulated(parsed, fmt::format("elements of type {} are not emulated", type));
}

int vector_parts(const Parsed& parsed) { return parsed.has("v2") ? 2 : parsed.has("v4") ? 4 : parsed.has("v8") ? 8 : 1; }

void only_words(const Parsed& parsed, std::initializer_list<std::string_view> allowed) {
  for (std::size_t i = 1; i < parsed.words.size(); ++i) {
    const auto word = parsed.words[i];
    const bool common = is_silent(word) || names_space(word) || is_vector(word) || find_type(word);
    if (!common && std::find(allowed.begin(), allowed.end(), word) == allowed.end())
      not_emulated(parsed, fmt::format("\".{}\" is not emulated", word));
  }
}

void operand_count(const Parsed& parsed, std::size_t least, std::size_t most) {
  const auto count = parsed.operands.size();
  if (count < least || count > most) not_emulated(parsed, fmt::format("has {} operands, expected {} to {}", count, least, most));
}

Address address_of(const Parsed& parsed, std::size_t operand) {
  const auto& given = parsed.operands.at(operand);
  if (given.kind != OperandKind::address) not_emulated(parsed, fmt::format("operand {} is no address, expected one", operand + 1));
  return {given.slot, given.offset, given.wide};
}

Number number_of(const Parsed& parsed, std::size_t operand) {
  const auto& given = parsed.operands.at(operand);
  if (given.slot == no_slot || given.reg == RegisterKind::predicate)
    not_emulated(parsed, fmt::format("operand {} is no number, expected one", operand + 1));
  return {given.slot, given.reg == RegisterKind::word64};
}

std::vector<Slot> parts_of(const Operand& operand) {
  if (operand.kind != OperandKind::vector) return {operand.slot};
  std::vector<Slot> slots;
  for (const auto& part : operand.parts) slots.push_back(part.slot);
  return slots;
}

}  // namespace ejk::ptx
