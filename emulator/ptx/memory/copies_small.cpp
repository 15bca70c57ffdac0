// cp.async: 4, 8 or 16 bytes a lane from global to shared memory, its groups, and arrivals at mbarriers when they are done.
#include <fmt/format.h>

#include "emulator/ptx/memory/barriers.hpp"
#include "emulator/ptx/memory/copies.hpp"
#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

struct SmallCopyForm {
  Space to_space = Space::shared, from_space = Space::global;
  Address to, from;
  std::uint8_t bytes = 0;
  Number read;            // how many bytes of them are read, if it says so
  Slot ignore = no_slot;  // a predicate: nothing is read where it holds
  bool ignore_inverted = false;
};

std::uint32_t bytes_to_read(Warp& warp, const SmallCopyForm& form, int lane) {
  if (form.ignore != no_slot) {
    const bool holds = warp.predicate(form.ignore) >> lane & 1;
    return holds != form.ignore_inverted ? 0 : form.bytes;
  }
  const std::uint32_t read = form.read ? form.read.of(warp, lane) : form.bytes;
  if (read > form.bytes)
    throw Fault(fmt::format("cp.async: reads {} bytes, expected at most the {} that it writes (lane {})", read, form.bytes, lane));
  return read;
}

// Where the lanes read. The address of what is not read may be anything.
struct Sources {
  Places from;
  std::array<std::uint8_t, lanes> read;
};

void find_sources(Warp& warp, const SmallCopyForm& form, Sources& sources) {
  std::uint32_t whole = 0;
  each_active(warp, [&](int lane) {
    sources.read[lane] = static_cast<std::uint8_t>(bytes_to_read(warp, form, lane));
    whole |= std::uint32_t{sources.read[lane] == form.bytes} << lane;
  });
  find_places(warp, whole, form.from_space, form.from, form.bytes, sources.from);
  each_lane(warp.active & ~whole, [&](int lane) {
    static char nothing[16];
    const auto read = sources.read[lane];
    sources.from[lane] = read ? place_at(warp, lane, form.from_space, form.from.of(warp, lane), read, form.bytes) : nothing;
  });
}

void copy_small(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const SmallCopyForm*>(instruction.extra.get());
  Places to;
  Sources sources;
  find_places(warp, warp.active, form.to_space, form.to, form.bytes, to);
  find_sources(warp, form, sources);
  const auto copy = [&](int lane) { return SmallCopies::Copy{to[lane], sources.from[lane], form.bytes, sources.read[lane]}; };
  if (warp.block->grid->pace == Pace::eager) return each_active(warp, [&](int lane) { copy(lane).run(); });
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) { copies->small[lane].add(copy(lane)); });
}

void commit_small(Warp& warp, const Instruction&) {
  if (warp.block->grid->pace == Pace::eager) return;
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) { copies->small[lane].commit(); });
}

void wait_small(Warp& warp, const Instruction& instruction) {
  if (!warp.copies) return;
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) { copies->small[lane].wait_for_all_but(instruction.bits); });
}

void wait_all_small(Warp& warp, const Instruction&) {
  if (!warp.copies) return;
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) {
    copies->small[lane].commit();
    copies->small[lane].wait_for_all_but(0);
  });
}

struct ArrivalForm {
  Space space = Space::generic;
  Address address;
  bool raises = true;  // the arrival is one more than the barrier expects
};

void arrive_when_copied(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const ArrivalForm*>(instruction.extra.get());
  const auto copies = copies_of(warp);
  each_active(warp, [&](int lane) {
    auto* block = warp.block;
    const auto address = shared_number(warp, lane, form.space, form.address.of(warp, lane));
    auto barrier = TransactionBarrier::at(*block, address);
    if (form.raises) barrier.raise();
    start_work(*block, "cp.async.mbarrier.arrive", [copies, lane, block, address, until = copies->small[lane].count()] {
      copies->small[lane].run_until(until);
      TransactionBarrier::at(*block, address).arrive(1);
    });
  });
}

bool decode_small_arrival(const Parsed& parsed, Instruction& made) {
  only_words(parsed, {"async", "mbarrier", "arrive", "noinc"});
  operand_count(parsed, 1, 1);
  auto form = std::make_shared<ArrivalForm>();
  form->space = space_of(parsed);
  form->address = address_of(parsed, 0);
  form->raises = !parsed.has("noinc");
  made.run = arrive_when_copied;
  made.extra = form;
  return true;
}

bool decode_small_group(const Parsed& parsed, Instruction& made) {
  const bool numbered = parsed.has("wait_group");
  operand_count(parsed, numbered, numbered);
  if (numbered) made.bits = parsed.operands[0].bits;
  made.run = numbered ? wait_small : parsed.has("wait_all") ? wait_all_small : commit_small;
  return true;
}

// After the size: how many bytes to read or whether to ignore the source, either perhaps, and a cache policy.
void read_source_operand(const Parsed& parsed, SmallCopyForm& form) {
  const std::size_t without_policy = parsed.operands.size() - (parsed.has("L2::cache_hint") ? 1 : 0);
  if (without_policy < 4) return;
  const auto& operand = parsed.operands[3];
  if (operand.kind == OperandKind::reg && operand.reg == RegisterKind::predicate) {
    form.ignore = operand.slot;
    form.ignore_inverted = operand.inverted;
  } else {
    form.read = number_of(parsed, 3);
  }
}

}  // namespace

bool decode_small_copy(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() != "cp" || !parsed.has("async") || parsed.has("bulk") || parsed.has("reduce")) return false;
  if (parsed.has("mbarrier")) return decode_small_arrival(parsed, made);
  if (parsed.has("commit_group") || parsed.has("wait_group") || parsed.has("wait_all")) return decode_small_group(parsed, made);
  only_words(parsed, {"async"});
  operand_count(parsed, 3, 5);
  auto form = std::make_shared<SmallCopyForm>();
  form->to = address_of(parsed, 0);
  form->from = address_of(parsed, 1);
  const auto bytes = parsed.operands[2].bits;
  if (bytes != 16 && (parsed.has("cg") || (bytes != 4 && bytes != 8)))
    not_emulated(parsed, fmt::format("copies {} bytes, expected 16 or, with .ca, 4, 8 or 16", bytes));
  form->bytes = static_cast<std::uint8_t>(bytes);
  read_source_operand(parsed, *form);
  made.run = copy_small;
  made.extra = form;
  return true;
}

}  // namespace ejk::ptx
