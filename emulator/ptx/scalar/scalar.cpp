// Decodes scalar instructions: which family an opcode is of, and whether its operands are what the family expects.
#include "emulator/ptx/scalar/scalar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace ejk::ptx {
namespace {

// Of words that several families share the type says which.
Shape arithmetic_shape(const Parsed& parsed, Instruction& made) {
  switch (type_of(parsed.type())) {
    case Type::f32:
    case Type::f64:
      return float_shape(parsed, made);
    case Type::f16:
    case Type::bf16:
    case Type::f16x2:
    case Type::bf16x2:
      return half_shape(parsed, made);
    case Type::u16x2:
    case Type::s16x2:
      return integer_pair_shape(parsed, made);
    default:
      return integer_shape(parsed, made);
  }
}

Shape any_function_shape(const Parsed& parsed, Instruction& made) {
  const bool wide = bits_of(type_of(parsed.type())) == 64 || type_of(parsed.type()) == Type::f32;
  return wide ? function_shape(parsed, made) : half_shape(parsed, made);
}

Shape logic_shape(const Parsed& parsed, Instruction& made) {
  return type_of(parsed.type()) == Type::pred ? predicate_shape(parsed, made) : bits_shape(parsed, made);
}

Shape any_convert_shape(const Parsed& parsed, Instruction& made) {
  const Shape pair = convert_pair_shape(parsed, made);
  return pair.run ? pair : convert_shape(parsed, made);
}

Shape any_move_shape(const Parsed& parsed, Instruction& made) {
  return type_of(parsed.type()) == Type::pred ? predicate_shape(parsed, made) : move_shape(parsed, made);
}

const std::unordered_map<std::string_view, Family>& scalar_families() {
  static const std::unordered_map<std::string_view, Family> families = {
      {"add", arithmetic_shape},    {"sub", arithmetic_shape},    {"mul", arithmetic_shape},   {"mad", arithmetic_shape},
      {"fma", arithmetic_shape},    {"div", arithmetic_shape},    {"rem", arithmetic_shape},   {"neg", arithmetic_shape},
      {"abs", arithmetic_shape},    {"min", arithmetic_shape},    {"max", arithmetic_shape},   {"sad", arithmetic_shape},
      {"mul24", arithmetic_shape},  {"mad24", arithmetic_shape},  {"dp4a", arithmetic_shape},  {"copysign", arithmetic_shape},
      {"ex2", any_function_shape},  {"lg2", any_function_shape},  {"rcp", any_function_shape}, {"rsqrt", any_function_shape},
      {"sqrt", any_function_shape}, {"tanh", any_function_shape}, {"sin", any_function_shape}, {"cos", any_function_shape},
      {"and", logic_shape},         {"or", logic_shape},          {"xor", logic_shape},        {"not", logic_shape},
      {"cnot", bits_shape},         {"shl", bits_shape},          {"shr", bits_shape},         {"shf", bits_shape},
      {"lop3", bits_shape},         {"prmt", field_shape},        {"bfe", field_shape},        {"bfi", field_shape},
      {"bfind", field_shape},       {"brev", field_shape},        {"popc", field_shape},       {"clz", field_shape},
      {"bmsk", field_shape},        {"setp", compare_shape},      {"set", compare_shape},      {"selp", select_shape},
      {"slct", select_shape},       {"testp", test_shape},        {"isspacep", test_shape},    {"mov", any_move_shape},
      {"cvt", any_convert_shape},
  };
  return families;
}

// clang-format off
const std::unordered_map<std::string_view, Type>& types_by_name() {
  static const std::unordered_map<std::string_view, Type> types = {
      {"pred", Type::pred}, {"b8", Type::b8}, {"u8", Type::u8}, {"s8", Type::s8}, {"b16", Type::b16}, {"u16", Type::u16}, {"s16", Type::s16},
      {"b32", Type::b32}, {"u32", Type::u32}, {"s32", Type::s32}, {"b64", Type::b64}, {"u64", Type::u64}, {"s64", Type::s64},
      {"f16", Type::f16}, {"bf16", Type::bf16}, {"f32", Type::f32}, {"f64", Type::f64}, {"tf32", Type::tf32}, {"f16x2", Type::f16x2},
      {"bf16x2", Type::bf16x2}, {"u16x2", Type::u16x2}, {"s16x2", Type::s16x2}, {"e4m3", Type::e4m3}, {"e5m2", Type::e5m2},
      {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2}};
  return types;
}
// clang-format on

std::string_view name_of_bytes(std::uint8_t bytes) { return bytes == 8 ? "64 bits" : bytes == 4 ? "32 or 16 bits" : "a predicate"; }

std::uint8_t lane_bytes(const Operand& operand) {
  return operand.reg == RegisterKind::predicate ? predicate_bytes : operand.reg == RegisterKind::word64 ? 8 : 4;
}

}  // namespace

Type type_of(std::string_view word) {
  const auto found = types_by_name().find(word);
  return found == types_by_name().end() ? Type::none : found->second;
}

int bits_of(Type type) {
  switch (type) {
    case Type::none:
    case Type::pred:
      return 0;
    case Type::b8:
    case Type::u8:
    case Type::s8:
    case Type::e4m3:
    case Type::e5m2:
      return 8;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
    case Type::e4m3x2:
    case Type::e5m2x2:
      return 16;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return 64;
    default:
      return 32;
  }
}

bool is_signed(Type type) { return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64; }

bool is_float(Type type) {
  return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64 || type == Type::tf32 || type == Type::e4m3 ||
         type == Type::e5m2;
}

void allow_words(const Parsed& parsed, std::initializer_list<std::string_view> allowed) {
  for (const auto& word : parsed.words) {
    if (word == parsed.words.front() || type_of(word) != Type::none) continue;
    if (std::find(allowed.begin(), allowed.end(), word) == allowed.end())
      throw std::runtime_error(fmt::format("{}: .{} is not emulated here", parsed.opcode, word));
  }
}

Rounding rounding_of(const Parsed& parsed) {
  for (const auto& word : parsed.words) {
    if (word == "rz" || word == "rzi") return Rounding::zero;
    if (word == "rm" || word == "rmi") return Rounding::down;
    if (word == "rp" || word == "rpi") return Rounding::up;
    if (word == "rna") return Rounding::away;
  }
  return Rounding::nearest;
}

std::vector<const Operand*> flat_operands(const Parsed& parsed) {
  std::vector<const Operand*> flat;
  for (const auto& operand : parsed.operands) {
    if (operand.kind != OperandKind::vector) flat.push_back(&operand);
    for (const auto& part : operand.parts) flat.push_back(&part);
  }
  return flat;
}

void check_operands(const Parsed& parsed, const Shape& shape) {
  const auto operands = flat_operands(parsed);
  if (static_cast<int>(operands.size()) != shape.operands)
    throw std::runtime_error(fmt::format("{}: it has {} operands; expected {}", parsed.opcode, operands.size(), shape.operands));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto& operand = *operands[i];
    const std::uint8_t expected = shape.bytes[i];
    if (expected == any_bytes) continue;
    if (operand.kind == OperandKind::constant && i > 0 && expected == predicate_bytes) continue;
    if (operand.kind != OperandKind::reg && (operand.kind != OperandKind::constant || i == 0))
      throw std::runtime_error(fmt::format("{}: operand {} is neither a register nor a source's constant", parsed.opcode, i));
    if (lane_bytes(operand) != expected)
      throw std::runtime_error(
          fmt::format("{}: operand {} has {}; expected {}", parsed.opcode, i, name_of_bytes(lane_bytes(operand)), name_of_bytes(expected)));
  }
}

int predicate_flags(const Operand& operand) {
  return (operand.inverted ? inverted_flag : 0) | (operand.kind == OperandKind::constant ? constant_flag : 0);
}

bool decode_scalar(const Parsed& parsed, Instruction& made) {
  const auto found = scalar_families().find(parsed.words.front());
  if (found == scalar_families().end()) return false;
  const Shape shape = found->second(parsed, made);
  if (!shape.run) throw std::runtime_error(fmt::format("{}: this form is not emulated", parsed.opcode));
  check_operands(parsed, shape);
  made.run = shape.run;
  return true;
}

}  // namespace ejk::ptx
