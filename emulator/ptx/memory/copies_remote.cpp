// st.async and red.async: a few bytes from registers into shared memory of a CTA of the cluster, whose mbarrier counts them.
#include <fmt/format.h>

#include <map>

#include "emulator/ptx/memory/barriers.hpp"
#include "emulator/ptx/memory/copies.hpp"
#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_combine.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

constexpr std::size_t most_remote_bytes = 32;

struct RemoteForm {
  Address to, barrier;
  std::vector<Slot> values;
  std::size_t bytes = 0;  // of a value
  bool wide = false;      // its registers have 64 bits
  Combine combine = nullptr;
};

// What one lane sends.
struct Sent {
  char* to;
  std::uint32_t barrier;
  std::array<char, most_remote_bytes> bytes;
};

Sent sent_by(Warp& warp, const RemoteForm& form, int lane) {
  Sent sent;
  const auto to = static_cast<std::uint32_t>(form.to.of(warp, lane));
  sent.barrier = static_cast<std::uint32_t>(form.barrier.of(warp, lane));
  auto& block = *warp.block;
  if (&block.block_of(to) != &block.block_of(sent.barrier))
    throw Fault(fmt::format("st.async: to shared address {:#x}, its mbarrier at {:#x}, expected both in one CTA", to, sent.barrier));
  TransactionBarrier::at(block, sent.barrier);
  const auto bytes = form.bytes * form.values.size();
  sent.to = place_at(warp, lane, Space::shared, to, bytes, bytes);
  for (std::size_t part = 0; part < form.values.size(); ++part) {
    const void* from = form.wide ? static_cast<const void*>(warp.lanes_of<std::uint64_t>(form.values[part]) + lane)
                                 : static_cast<const void*>(warp.lanes_of<std::uint32_t>(form.values[part]) + lane);
    std::memcpy(sent.bytes.data() + part * form.bytes, from, form.bytes);
  }
  return sent;
}

void deliver(Block& block, const Sent& sent, std::size_t bytes, Combine combine) {
  if (combine)
    combine(sent.to, sent.bytes.data(), nullptr, nullptr);
  else
    std::memcpy(sent.to, sent.bytes.data(), bytes);
  TransactionBarrier::at(block, sent.barrier).complete(static_cast<std::uint32_t>(bytes));
}

void send_remote(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const RemoteForm*>(instruction.extra.get());
  std::map<const Block*, std::vector<Sent>> by_target;
  each_active(warp, [&](int lane) {
    const auto sent = sent_by(warp, form, lane);
    by_target[&warp.block->block_of(sent.barrier)].push_back(sent);
  });
  for (auto& [target, all] : by_target)
    start_work(*target, "st.async",
               [all = std::move(all), block = warp.block, bytes = form.bytes * form.values.size(), combine = form.combine] {
                 for (const auto& sent : all) deliver(*block, sent, bytes, combine);
               });
}

Combine remote_operation(const Parsed& parsed) {
  for (const std::string_view each : {"add", "min", "max", "inc", "dec", "and", "or", "xor"})
    if (parsed.has(each))
      if (const auto found = combine_of(each, parsed.type())) return found;
  not_emulated(parsed, "no such operation on that type");
}

}  // namespace

bool decode_remote(const Parsed& parsed, Instruction& made) {
  const bool reduces = parsed.words.front() == "red";
  if ((!reduces && parsed.words.front() != "st") || !parsed.has("async")) return false;
  only_words(parsed, {"async", "mbarrier::complete_tx::bytes", "add", "min", "max", "inc", "dec", "and", "or", "xor"});
  operand_count(parsed, 3, 3);
  auto form = std::make_shared<RemoteForm>();
  form->to = address_of(parsed, 0);
  form->values = parts_of(parsed.operands[1]);
  form->barrier = address_of(parsed, 2);
  form->bytes = static_cast<std::size_t>(element_type(parsed, parsed.type()).bytes);
  const auto& value = parsed.operands[1];
  form->wide = (value.kind == OperandKind::vector ? value.parts.at(0) : value).reg == RegisterKind::word64;
  if (form->wide != (form->bytes == 8) || form->values.size() != static_cast<std::size_t>(vector_parts(parsed)))
    not_emulated(parsed, "its value has not the width or the number of parts that the opcode says");
  if (form->bytes * form->values.size() > most_remote_bytes) not_emulated(parsed, "sends too many bytes");
  if (reduces) form->combine = remote_operation(parsed);
  made.run = send_remote;
  made.extra = form;
  return true;
}

}  // namespace ejk::ptx
