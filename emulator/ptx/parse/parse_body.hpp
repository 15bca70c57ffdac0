// An entry's instructions, with calls of functions inlined, before its registers have slots.
#pragma once
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "emulator/ptx/parse/flow.hpp"
#include "emulator/ptx/parse/parse_module.hpp"

namespace ejk::ptx::parsing {

// Slots of operands are ids at first: numbers of registers, of special registers (from `first_special` on) or of constants (from
// `first_constant` on).
constexpr Slot first_special = Slot{1} << 30, first_constant = Slot{1} << 31;

struct Statement {
  Parsed parsed;
  Slot guard = no_slot;
  bool guard_inverted = false;
  std::size_t written = 0;  // how many of the first operands are written, whole and whatever they were before
  Step step;
};

// A constant of 4 or 8 bytes. A dynamic one counts from where dynamic shared memory begins, which is known at the end.
struct ConstantValue {
  int bytes = 4;
  std::uint64_t bits = 0;
  bool is_dynamic = false;
  auto operator<=>(const ConstantValue&) const = default;
};

struct EntryText {
  std::vector<Statement> statements;
  std::vector<RegisterKind> registers;  // by id
  std::vector<ConstantValue> constants;
  std::vector<std::pair<std::string_view, RegisterKind>> specials;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0, shared_bytes = 0, local_bytes = 0;
  bool has_dynamic_shared = false;
};

// `opcodes` owns those that are not the text's: "ld.local.u64" for a function's "ld.param.u64".
EntryText read_body(const Module& module, const FunctionText& entry, std::set<std::string, std::less<>>& opcodes);

}  // namespace ejk::ptx::parsing
