// Instructions of matrices: which decoder takes one, and what the decoders share.
#include "emulator/ptx/matrix/matrix_decode.hpp"

#include <bit>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

namespace ejk::ptx {
namespace {

void flatten_matrix_slots(const Operand& operand, std::vector<Slot>& slots) {
  if (operand.kind != OperandKind::vector) return slots.push_back(operand.slot);
  for (const auto& part : operand.parts) flatten_matrix_slots(part, slots);
}

// "m64n128k16"
std::optional<MatrixShape> read_matrix_shape(std::string_view word) {
  MatrixShape shape;
  const std::pair<char, int*> parts[] = {{'m', &shape.m}, {'n', &shape.n}, {'k', &shape.k}};
  for (const auto& [letter, number] : parts) {
    if (word.empty() || word.front() != letter) return std::nullopt;
    word.remove_prefix(1);
    const auto read = std::from_chars(word.data(), word.data() + word.size(), *number);
    if (read.ec != std::errc()) return std::nullopt;
    word.remove_prefix(static_cast<std::size_t>(read.ptr - word.data()));
  }
  return word.empty() ? std::optional(shape) : std::nullopt;
}

}  // namespace

bool decode_matrix(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  if (name != "mma" && name != "wgmma" && name != "ldmatrix" && name != "stmatrix" && name != "movmatrix") return false;
  if (made.slots.empty())
    for (const auto& operand : parsed.operands) flatten_matrix_slots(operand, made.slots);
  if (name == "mma")
    decode_mma(parsed, made);
  else if (name == "wgmma")
    decode_wgmma(parsed, made);
  else
    decode_matrix_move(parsed, made);
  return true;
}

void refuse_matrix(const Parsed& parsed, std::string_view why) {
  throw std::runtime_error(fmt::format("{}: {} is not emulated", parsed.opcode, why));
}

std::optional<MatrixShape> matrix_shape(const Parsed& parsed) {
  for (const auto word : parsed.words)
    if (const auto shape = read_matrix_shape(word)) return shape;
  return std::nullopt;
}

FactorType matrix_format(const Parsed& parsed, std::string_view type) {
  constexpr std::pair<std::string_view, FactorType> formats[] = {
      {"bf16", FactorType::bf16}, {"f16", FactorType::f16}, {"tf32", FactorType::tf32}, {"e4m3", FactorType::e4m3},
      {"e5m2", FactorType::e5m2}, {"s8", FactorType::s8},   {"u8", FactorType::u8}};
  for (const auto& [name, format] : formats)
    if (name == type) return format;
  refuse_matrix(parsed, fmt::format("a factor of type {}", type));
}

Sums matrix_sums(const Parsed& parsed, std::string_view type) {
  if (type == "f32") return Sums::single;
  if (type == "f16") return Sums::half;
  if (type == "s32") return parsed.has("satfinite") ? Sums::saturated : Sums::integer;
  refuse_matrix(parsed, fmt::format("a sum of type {}", type));
}

void require_operands(const Parsed& parsed, std::size_t count) {
  if (parsed.operands.size() != count)
    throw std::runtime_error(fmt::format("{}: {} operands, where {} are expected", parsed.opcode, parsed.operands.size(), count));
}

void require_parts(const Parsed& parsed, std::size_t operand, std::size_t count) {
  const auto& it = parsed.operands[operand];
  const std::size_t parts = it.kind == OperandKind::vector ? it.parts.size() : 1;
  if (parts != count)
    throw std::runtime_error(fmt::format("{}: operand {} has {} registers, where {} are expected", parsed.opcode, operand, parts, count));
}

void require_whole_warp(const Warp& warp, const Instruction& instruction) {
  if (warp.active == all_lanes) return;
  const auto name = instruction.text.substr(0, instruction.text.find(' '));
  throw Fault(fmt::format("{}: {} of the warp's 32 lanes run it, where all must", name, std::popcount(warp.active)));
}

}  // namespace ejk::ptx
