// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: boxes of a tensor to and from shared memory.
#include <fmt/format.h>

#include "emulator/ptx/memory/barriers.hpp"
#include "emulator/ptx/memory/copies.hpp"
#include "emulator/ptx/memory/copies_bulk.hpp"
#include "emulator/ptx/memory/memory_families.hpp"
#include "emulator/ptx/memory/tensor_map.hpp"

namespace ejk::ptx {
namespace {

constexpr const char* tensor_name = "cp.async.bulk.tensor";
constexpr std::uint32_t box_alignment = 128, chunk = 16;
constexpr std::size_t most_row_bytes = 256 * 8;  // a box has at most 256 columns

struct TensorForm {
  Address map, shared, barrier;
  int rank = 0;
  std::array<Number, 5> at;
  Number mask;                 // CTAs of a multicast
  std::string_view operation;  // of a reduction
};

Box box_of(Warp& warp, const TensorForm& form, int lane) {
  TensorMap map;
  std::memcpy(&map, place_at(warp, lane, Space::generic, form.map.of(warp, lane), sizeof map, 64), sizeof map);
  std::array<std::int32_t, 5> at{};
  for (int dim = 0; dim < form.rank; ++dim) at[dim] = static_cast<std::int32_t>(form.at[dim].of(warp, lane));
  return {map, form.rank, at};
}

// `memory` is where shared address `address` lies.
void put_row(const Box& box, const char* row, std::uint32_t number, char* memory, std::uint32_t address) {
  const auto start = number * box.pitch();
  if (!box.swizzle().width) {
    std::memcpy(memory + start, row, box.row_bytes());
    return;
  }
  for (std::uint32_t at = 0; at < box.row_bytes(); at += chunk)
    std::memcpy(memory + (box.swizzle().place(address + start + at) - address), row + at, chunk);
}

void take_row(const Box& box, char* row, std::uint32_t number, const char* memory, std::uint32_t address) {
  const auto start = number * box.pitch();
  for (std::uint32_t at = 0; at < box.row_bytes(); at += chunk)
    std::memcpy(row + at, memory + (box.swizzle().place(address + start + at) - address), chunk);
}

void load_box(const Box& box, char* memory, std::uint32_t address) {
  alignas(16) char bytes[most_row_bytes];
  for (std::uint32_t number = 0; number < box.rows(); ++number) {
    const auto row = box.row(number);
    if (row.end - row.first != box.row_bytes() / box.element()) std::memset(bytes, 0, box.row_bytes());
    if (row.memory) std::memcpy(bytes + row.first * box.element(), row.memory, (row.end - row.first) * box.element());
    put_row(box, bytes, number, memory, address);
  }
}

void store_box(const Box& box, const char* memory, std::uint32_t address, Combine combine) {
  alignas(16) char bytes[most_row_bytes];
  for (std::uint32_t number = 0; number < box.rows(); ++number) {
    const auto row = box.row(number);
    if (!row.memory) continue;
    take_row(box, bytes, number, memory, address);
    const char* from = bytes + row.first * box.element();
    const auto count = row.end - row.first;
    if (!combine)
      std::memcpy(row.memory, from, count * box.element());
    else
      for (std::uint32_t i = 0; i < count; ++i) combine(row.memory + i * box.element(), from + i * box.element(), nullptr, nullptr);
  }
}

// Addresses of other CTAs have their ranks in bits that no swizzle looks at.
void load_tensor(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const TensorForm*>(instruction.extra.get());
  each_active(warp, [&](int lane) {
    const auto box = box_of(warp, form, lane);
    box.check(*warp.block->grid);
    const auto to = static_cast<std::uint32_t>(form.shared.of(warp, lane)),
               barrier = static_cast<std::uint32_t>(form.barrier.of(warp, lane));
    each_target(*warp.block, to, barrier, form.mask ? form.mask.of(warp, lane) & 0xffff : 0, [&](const BulkTarget& target) {
      char* memory = target.block->shared_at(target.to, box.shared_bytes(), box_alignment);
      start_work(target.memory(), tensor_name, [box, memory, target] {
        load_box(box, memory, target.to);
        TransactionBarrier::at(*target.block, target.barrier).complete(box.bytes());
      });
    });
  });
}

void store_tensor(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const TensorForm*>(instruction.extra.get());
  each_active(warp, [&](int lane) {
    const auto box = box_of(warp, form, lane);
    box.check(*warp.block->grid);
    const auto from = static_cast<std::uint32_t>(form.shared.of(warp, lane));
    const char* memory = place_at(warp, lane, Space::shared, from, box.shared_bytes(), box_alignment);
    const auto combine = form.operation.empty() ? nullptr : combine_of(form.operation, box.type());
    if (!form.operation.empty() && !combine) throw Fault(fmt::format("{}: no \"{}\" of {}", tensor_name, form.operation, box.type()));
    start_bulk_store(warp, lane, tensor_name, [box, memory, from, combine] { store_box(box, memory, from, combine); });
  });
}

int rank_of(const Parsed& parsed) {
  for (int rank = 1; rank <= 5; ++rank)
    if (parsed.has(fmt::format("{}d", rank))) return rank;
  not_emulated(parsed, "its rank is not emulated, expected 1d to 5d");
}

void read_map(const Parsed& parsed, std::size_t operand, TensorForm& form) {
  form.map = address_of(parsed, operand);
  const auto& address = parsed.operands[operand];
  const auto& parts = address.parts.size() == 1 && address.parts[0].kind == OperandKind::vector ? address.parts[0].parts : address.parts;
  if (parts.size() != static_cast<std::size_t>(form.rank))
    not_emulated(parsed, fmt::format("has {} coordinates, expected {}", parts.size(), form.rank));
  for (std::size_t i = 0; i < parts.size(); ++i) form.at[i] = {parts[i].slot, parts[i].reg == RegisterKind::word64};
}

Handler read_load(const Parsed& parsed, TensorForm& form) {
  const bool multicast = parsed.has("multicast::cluster");
  operand_count(parsed, multicast ? 4 : 3, 5);
  form.shared = address_of(parsed, 0);
  read_map(parsed, 1, form);
  form.barrier = address_of(parsed, 2);
  if (multicast) form.mask = number_of(parsed, 3);
  return load_tensor;
}

Handler read_store(const Parsed& parsed, TensorForm& form) {
  operand_count(parsed, 2, 3);
  read_map(parsed, 0, form);
  form.shared = address_of(parsed, 1);
  if (parsed.has("reduce")) form.operation = bulk_reduction(parsed);
  return store_tensor;
}

}  // namespace

bool decode_tensor_copy(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() != "cp" || !parsed.has("bulk") || !parsed.has("tensor")) return false;
  only_words(parsed, {"async",
                      "bulk",
                      "tensor",
                      "reduce",
                      "tile",
                      "mbarrier::complete_tx::bytes",
                      "multicast::cluster",
                      "bulk_group",
                      "1d",
                      "2d",
                      "3d",
                      "4d",
                      "5d",
                      "add",
                      "min",
                      "max",
                      "inc",
                      "dec",
                      "and",
                      "or",
                      "xor"});
  auto form = std::make_shared<TensorForm>();
  form->rank = rank_of(parsed);
  made.run = parsed.operands.at(0).parts.empty() ? read_load(parsed, *form) : read_store(parsed, *form);
  made.extra = form;
  return true;
}

}  // namespace ejk::ptx
