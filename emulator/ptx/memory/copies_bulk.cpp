// cp.async.bulk and cp.reduce.async.bulk of bytes in a row, and the groups of bulk stores.
#include "emulator/ptx/memory/copies_bulk.hpp"

#include <fmt/format.h>

#include "emulator/ptx/memory/barriers.hpp"
#include "emulator/ptx/memory/copies.hpp"
#include "emulator/ptx/memory/memory_combine.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

constexpr const char* bulk_name = "cp.async.bulk";
constexpr std::uint32_t bulk_unit = 16;

struct BulkForm {
  Space from_space = Space::global;
  Address to, from, barrier;
  Number bytes, mask;  // mask: CTAs of a multicast
  Combine combine = nullptr;
  std::uint32_t element = 1;
};

void combine_row(char* to, const char* from, std::uint32_t bytes, Combine combine, std::uint32_t element) {
  if (!combine) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (std::uint32_t at = 0; at < bytes; at += element) combine(to + at, from + at, nullptr, nullptr);
}

std::uint32_t bulk_bytes(Warp& warp, const BulkForm& form, int lane) {
  const auto bytes = form.bytes.of(warp, lane);
  if (bytes % bulk_unit) throw Fault(fmt::format("{}: {} bytes, expected a multiple of {} (lane {})", bulk_name, bytes, bulk_unit, lane));
  return bytes;
}

// From global memory, or from this CTA's shared memory, to shared memory, perhaps of several CTAs.
void copy_to_shared(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const BulkForm*>(instruction.extra.get());
  each_active(warp, [&](int lane) {
    const auto bytes = bulk_bytes(warp, form, lane);
    const auto to = static_cast<std::uint32_t>(form.to.of(warp, lane)), barrier = static_cast<std::uint32_t>(form.barrier.of(warp, lane));
    const char* from = bytes ? place_at(warp, lane, form.from_space, form.from.of(warp, lane), bytes, bulk_unit) : nullptr;
    each_target(*warp.block, to, barrier, form.mask ? form.mask.of(warp, lane) & 0xffff : 0, [&](const BulkTarget& target) {
      char* there = bytes ? target.block->shared_at(target.to, bytes, bulk_unit) : nullptr;
      start_work(target.memory(), bulk_name, [=, combine = form.combine, element = form.element] {
        if (bytes) combine_row(there, from, bytes, combine, element);
        TransactionBarrier::at(*target.block, target.barrier).complete(bytes);
      });
    });
  });
}

void copy_to_global(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const BulkForm*>(instruction.extra.get());
  each_active(warp, [&](int lane) {
    const auto bytes = bulk_bytes(warp, form, lane);
    if (!bytes) return;
    char* to = place_at(warp, lane, Space::global, form.to.of(warp, lane), bytes, bulk_unit);
    const char* from = place_at(warp, lane, Space::shared, form.from.of(warp, lane), bytes, bulk_unit);
    start_bulk_store(warp, lane, bulk_name,
                     [=, combine = form.combine, element = form.element] { combine_row(to, from, bytes, combine, element); });
  });
}

void commit_bulk(Warp& warp, const Instruction&) {
  if (warp.block->grid->pace == Pace::eager) return;
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) { copies->bulk[lane].commit(); });
}

void wait_bulk(Warp& warp, const Instruction& instruction) {
  if (!warp.copies) return;
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) { copies->bulk[lane].wait_for_all_but(instruction.bits); });
}

void prefetch_bulk(Warp&, const Instruction&) {}

void read_reduction(const Parsed& parsed, BulkForm& form) {
  form.combine = combine_of(bulk_reduction(parsed), parsed.type());
  form.element = static_cast<std::uint32_t>(element_type(parsed, parsed.type()).bytes);
  if (!form.combine) not_emulated(parsed, "no such operation on that type");
}

// The first of the two spaces in the opcode is where it writes to.
bool writes_global(const Parsed& parsed) {
  for (const auto word : parsed.words) {
    if (word == "global") return true;
    if (word.starts_with("shared")) return false;
  }
  not_emulated(parsed, "names no state space");
}

void read_barrier_operands(const Parsed& parsed, BulkForm& form) {
  const bool multicast = parsed.has("multicast::cluster");
  operand_count(parsed, multicast ? 5 : 4, 6);
  form.barrier = address_of(parsed, 3);
  if (multicast) form.mask = number_of(parsed, 4);
}

}  // namespace

void each_target(Block& block, std::uint32_t to, std::uint32_t barrier, std::uint32_t mask,
                 const std::function<void(const BulkTarget&)>& work) {
  if (!mask) {
    if (&block.block_of(to) != &block.block_of(barrier))
      throw Fault(fmt::format("{}: to shared address {:#x}, its mbarrier at {:#x}, expected both in one CTA", bulk_name, to, barrier));
    TransactionBarrier::at(block, barrier);
    work({&block, to, barrier});
    return;
  }
  constexpr auto place = (1u << cluster_shift) - 1;
  for (std::uint32_t rank = 0; mask >> rank; ++rank) {
    if (!(mask >> rank & 1)) continue;
    if (rank >= block.cluster.size())
      throw Fault(fmt::format("{}: multicast to CTA {}, expected one of the cluster's {}", bulk_name, rank, block.cluster.size()));
    TransactionBarrier::at(*block.cluster[rank], barrier & place);
    work({block.cluster[rank], to & place, barrier & place});
  }
}

void start_bulk_store(Warp& warp, int lane, const char* what, std::function<void()> work) {
  if (const auto piece = start_work(*warp.block, what, std::move(work))) copies_of(warp)->bulk[lane].add(piece);
}

std::string_view bulk_reduction(const Parsed& parsed) {
  for (const std::string_view each : {"add", "min", "max", "inc", "dec", "and", "or", "xor"})
    if (parsed.has(each)) return each;
  not_emulated(parsed, "its operation is not emulated");
}

bool decode_bulk_group(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() != "cp" || !parsed.has("bulk") || parsed.has("reduce")) return false;
  if (parsed.has("commit_group")) {
    made.run = commit_bulk;
  } else if (parsed.has("wait_group")) {
    operand_count(parsed, 1, 1);
    made.bits = parsed.operands[0].bits;
    made.run = wait_bulk;
  } else if (parsed.has("prefetch")) {
    made.run = prefetch_bulk;
  } else {
    return false;
  }
  return true;
}

bool decode_bulk_copy(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() != "cp" || !parsed.has("bulk") || parsed.has("tensor")) return false;
  only_words(parsed, {"async", "bulk", "reduce", "mbarrier::complete_tx::bytes", "multicast::cluster", "bulk_group", "add", "min", "max",
                      "inc", "dec", "and", "or", "xor"});
  auto form = std::make_shared<BulkForm>();
  operand_count(parsed, 3, 6);
  form->to = address_of(parsed, 0);
  form->from = address_of(parsed, 1);
  form->bytes = number_of(parsed, 2);
  if (parsed.has("reduce")) read_reduction(parsed, *form);
  form->from_space = parsed.has("global") ? Space::global : Space::shared;
  if (!writes_global(parsed)) read_barrier_operands(parsed, *form);
  made.run = writes_global(parsed) ? copy_to_global : copy_to_shared;
  made.extra = form;
  return true;
}

}  // namespace ejk::ptx
