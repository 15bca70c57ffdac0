// atom and red, also of vectors, part by part: lanes in ascending order.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_combine.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

struct AtomicForm {
  Space space = Space::generic;
  Address address;
  Combine combine = nullptr;
  int bytes = 0;                           // of a part
  std::vector<Slot> old, values, seconds;  // old: empty for red; seconds: of cas
};

// Where a lane's value lies in the register file; its first bytes are the value's.
char* lane_bytes(Warp& warp, Slot slot, int lane, int bytes) {
  return bytes == 8 ? reinterpret_cast<char*>(warp.lanes_of<std::uint64_t>(slot) + lane)
                    : reinterpret_cast<char*>(warp.lanes_of<std::uint32_t>(slot) + lane);
}

void combine_part(Warp& warp, const AtomicForm& form, std::size_t part, int lane, char* memory) {
  std::uint64_t before = 0;
  const auto* second = form.seconds.empty() ? nullptr : lane_bytes(warp, form.seconds[part], lane, form.bytes);
  form.combine(memory, lane_bytes(warp, form.values[part], lane, form.bytes), second, reinterpret_cast<char*>(&before));
  if (form.old.empty() || form.old[part] == no_slot) return;
  if (form.bytes == 8)
    warp.lanes_of<std::uint64_t>(form.old[part])[lane] = before;
  else
    warp.lanes_of<std::uint32_t>(form.old[part])[lane] = static_cast<std::uint32_t>(before);
}

void run_atomic(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const AtomicForm*>(instruction.extra.get());
  Places places;
  const auto parts = form.values.size();
  find_places(warp, warp.active, form.space, form.address, static_cast<std::uint32_t>(form.bytes * static_cast<int>(parts)), places);
  each_active(warp, [&](int lane) {
    // The old value of a part may go to the register of the next one's address, but not of its value.
    for (std::size_t part = 0; part < parts; ++part)
      combine_part(warp, form, part, lane, places[lane] + part * static_cast<std::size_t>(form.bytes));
  });
}

constexpr std::string_view atomic_operations[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"};

std::string_view operation_of(const Parsed& parsed) {
  for (const auto each : atomic_operations)
    if (parsed.has(each)) return each;
  not_emulated(parsed, "its operation is not emulated");
}

std::string_view atomic_type(const Parsed& parsed) {
  // A vector of 16-bit floats has .noftz and .vN, cache hints too, on either side of its type.
  for (const auto word : {"f16", "bf16", "f16x2", "bf16x2"})
    if (parsed.has(word)) return word;
  return parsed.type();
}

void check_registers(const Parsed& parsed, const Operand& operand, int bytes) {
  const auto wrong = [&](const Operand& each) {
    return each.kind != OperandKind::sink && (each.reg == RegisterKind::word64) != (bytes == 8);
  };
  if (operand.kind == OperandKind::vector ? std::any_of(operand.parts.begin(), operand.parts.end(), wrong) : wrong(operand))
    not_emulated(parsed, fmt::format("an operand's register has not the element's width, {} bytes", bytes));
}

}  // namespace

bool decode_atomic(const Parsed& parsed, Instruction& made) {
  const auto word = parsed.words.front();
  const bool returns = word == "atom";
  if ((!returns && word != "red") || parsed.has("async")) return false;
  only_words(parsed, {"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  auto form = std::make_shared<AtomicForm>();
  const auto operation = operation_of(parsed), type = atomic_type(parsed);
  form->combine = combine_of(operation, type);
  form->bytes = element_type(parsed, type).bytes;
  // What moves or compares bits takes any type of that width.
  if (!form->combine) form->combine = combine_of(operation, form->bytes == 8 ? "b64" : form->bytes == 4 ? "b32" : "b16");
  if (!form->combine) not_emulated(parsed, "no such operation on that type");
  const std::size_t first = returns ? 1 : 0, values = operation == "cas" ? 2 : 1;
  operand_count(parsed, first + 1 + values, first + 2 + values);
  form->space = space_of(parsed);
  form->address = address_of(parsed, first);
  if (returns) form->old = parts_of(parsed.operands[0]);
  form->values = parts_of(parsed.operands[first + 1]);
  if (values == 2) form->seconds = parts_of(parsed.operands[first + 2]);
  for (std::size_t i = 0; i < first + 1 + values; ++i)
    if (i != first) check_registers(parsed, parsed.operands[i], form->bytes);
  if (form->values.size() != static_cast<std::size_t>(vector_parts(parsed)) || (returns && form->old.size() != form->values.size()))
    not_emulated(parsed, "its vectors have not as many parts as the opcode says");
  made.run = run_atomic;
  made.extra = form;
  return true;
}

}  // namespace ejk::ptx
