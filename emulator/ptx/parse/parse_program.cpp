// From text to a program: the module is read, each entry's body, its registers get slots, and decoders make instructions of it.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "emulator/ptx/parse/parse.hpp"
#include "emulator/ptx/parse/parse_registers.hpp"

namespace ejk::ptx {
namespace {

using parsing::EntryText;
using parsing::Slots;
using parsing::Statement;

void give_slots(Operand& operand, const EntryText& text, const Slots& slots) {
  if (operand.slot >= parsing::first_constant && operand.slot != no_slot)
    operand.bits = text.constants[operand.slot - parsing::first_constant].bits;
  operand.slot = slots(operand.slot);
  for (auto& part : operand.parts) give_slots(part, text, slots);
}

void add_slots(const Operand& operand, std::vector<Slot>& made) {
  if (operand.kind != OperandKind::vector) made.push_back(operand.slot);
  for (const auto& part : operand.parts) add_slots(part, made);
}

std::size_t count_slots(const Parsed& parsed) {
  std::size_t count = parsed.operands.size();
  for (const auto& operand : parsed.operands) count += operand.parts.size();
  return count;
}

void fill_operands(const Parsed& parsed, Instruction& made) {
  made.slots.reserve(count_slots(parsed));
  for (const auto& operand : parsed.operands) add_slots(operand, made.slots);
  for (const auto& operand : parsed.operands)
    if (operand.kind == OperandKind::address) {
      made.offset = operand.offset;
      break;
    }
}

void ask_decoders(const Parsed& parsed, Instruction& made, std::span<const Decoder> decoders) {
  try {
    for (const auto decode : decoders)
      if (decode(parsed, made)) return;
  } catch (const std::runtime_error& error) {
    parsing::fail_at(parsed.line, fmt::format("'{}': {}", parsed.opcode, error.what()));
  }
  parsing::fail_at(parsed.line, fmt::format("'{}' is not emulated", parsed.opcode));
}

// What computes or reads only changes registers. Of those, what reads in the order of other threads' writes is what threads spin on.
constexpr int cost_of_polling = 50;
void take_measure(const Parsed& parsed, Instruction& made) {
  static constexpr std::string_view seen[] = {"st", "atom", "red", "cp", "mbarrier", "bar", "barrier", "wgmma", "stmatrix", "multimem"};
  const bool only_looks = parsed.has("test_wait") || parsed.has("try_wait");
  made.is_seen = made.is_exit || (std::ranges::find(seen, parsed.words.front()) != std::end(seen) && !only_looks);
  const bool ordered = parsed.has("acquire") || parsed.has("volatile") || parsed.has("relaxed");
  if ((parsed.words.front() == "ld" && ordered) || parsed.has("test_wait")) made.cost = cost_of_polling;
}

Instruction make_instruction(const Statement& statement, std::uint32_t meet, const Slots& slots, std::span<const Decoder> decoders) {
  const auto& parsed = statement.parsed;
  Instruction made;
  made.guard = slots(statement.guard);
  made.guard_inverted = statement.guard_inverted;
  made.line = parsed.line;
  made.text = parsed.text;
  made.is_branch = statement.step.branches;
  made.is_exit = statement.step.exits && parsed.words.front() != "trap";
  take_measure(parsed, made);
  if (made.is_branch) {
    made.target = statement.step.target;
    made.meet = meet;
  } else if (!made.is_exit) {
    fill_operands(parsed, made);
    ask_decoders(parsed, made, decoders);
  }
  return made;
}

void add_memory(const EntryText& text, const Slots& slots, EntryCode& made) {
  made.parameters = text.parameters;
  made.parameter_bytes = text.parameter_bytes;
  made.shared_bytes = text.shared_bytes;
  made.local_bytes = text.local_bytes;
  made.has_dynamic_shared = text.has_dynamic_shared;
  made.units = slots.units;
  for (std::size_t i = 0; i < text.constants.size(); ++i)
    made.constants.push_back({slots.of_constant[i], text.constants[i].bytes, text.constants[i].bits});
  for (std::size_t i = 0; i < text.specials.size(); ++i) made.specials.emplace_back(text.specials[i].first, slots.of_special[i]);
}

void make_code(EntryText& text, std::span<const Decoder> decoders, EntryCode& made) {
  std::vector<Step> steps;
  steps.reserve(text.statements.size());
  for (const auto& statement : text.statements) steps.push_back(statement.step);
  const auto blocks = find_blocks(steps);
  const auto meets = find_meets(steps, blocks);
  const auto slots = parsing::find_slots(text, blocks);
  made.code.reserve(text.statements.size());
  for (std::size_t i = 0; i < text.statements.size(); ++i) {
    auto& statement = text.statements[i];
    for (auto& operand : statement.parsed.operands) give_slots(operand, text, slots);
    made.code.push_back(make_instruction(statement, meets[static_cast<std::size_t>(blocks.of_instruction[i])], slots, decoders));
  }
  add_memory(text, slots, made);
}

}  // namespace

std::unique_ptr<Program> parse_with(std::string text, std::span<const Decoder> decoders) {
  auto made = std::make_unique<Program>();
  made->text = std::move(text);
  auto module = parsing::read_module(made->text);
  made->sm = module.sm;
  parsing::place_globals(module, *made);
  std::set<std::string, std::less<>> opcodes;
  for (const auto& function : module.functions) {
    if (!function.is_entry || !function.has_body) continue;
    auto& entry = made->entries[std::string(function.name)];
    entry.name = function.name;
    entry.most_threads = static_cast<int>(function.most_threads);
    auto body = parsing::read_body(module, function, opcodes);
    make_code(body, decoders, entry);
  }
  return made;
}

}  // namespace ejk::ptx
