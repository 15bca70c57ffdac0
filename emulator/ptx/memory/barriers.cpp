// The instructions mbarrier.*: lanes one after the other, as each changes what the next one finds.
#include "emulator/ptx/memory/barriers.hpp"

#include "emulator/ptx/memory/memory_access.hpp"
#include "emulator/ptx/memory/memory_families.hpp"

namespace ejk::ptx {
namespace {

struct BarrierForm {
  Space space = Space::generic;
  Address address;
  Slot result = no_slot;  // of arrive: a state; of waits: a predicate
  Number number;          // arrivals, bytes or parity
  Slot state = no_slot;   // of waits without parity
  bool expects = false, drops = false, may_complete = true, parity = false;
};

const BarrierForm& barrier_form(const Instruction& instruction) { return *static_cast<const BarrierForm*>(instruction.extra.get()); }

std::uint32_t barrier_address(Warp& warp, const BarrierForm& form, int lane) {
  return shared_number(warp, lane, form.space, form.address.of(warp, lane));
}

void init_barrier(Warp& warp, const Instruction& instruction) {
  const auto& form = barrier_form(instruction);
  each_active(warp,
              [&](int lane) { TransactionBarrier::init(*warp.block, barrier_address(warp, form, lane), form.number.of(warp, lane)); });
}

void invalidate_barrier(Warp& warp, const Instruction& instruction) {
  const auto& form = barrier_form(instruction);
  each_active(warp, [&](int lane) { TransactionBarrier::invalidate(*warp.block, barrier_address(warp, form, lane)); });
}

void arrive_at_barrier(Warp& warp, const Instruction& instruction) {
  const auto& form = barrier_form(instruction);
  each_active(warp, [&](int lane) {
    auto barrier = TransactionBarrier::at(*warp.block, barrier_address(warp, form, lane));
    const auto before = barrier.state();
    const auto number = form.number ? form.number.of(warp, lane) : 1;
    if (form.expects) barrier.expect(number);
    const auto count = form.expects ? 1 : number;
    form.drops ? barrier.drop(count) : barrier.arrive(count);
    if (!form.may_complete && TransactionBarrier::parity_of(barrier.state()) != TransactionBarrier::parity_of(before))
      throw Fault("mbarrier.arrive.noComplete: the phase is over with it, expected that it is not");
    if (form.result != no_slot) warp.lanes_of<std::uint64_t>(form.result)[lane] = before;
  });
}

void expect_bytes(Warp& warp, const Instruction& instruction) {
  const auto& form = barrier_form(instruction);
  each_active(warp,
              [&](int lane) { TransactionBarrier::at(*warp.block, barrier_address(warp, form, lane)).expect(form.number.of(warp, lane)); });
}
void complete_bytes(Warp& warp, const Instruction& instruction) {
  const auto& form = barrier_form(instruction);
  each_active(
      warp, [&](int lane) { TransactionBarrier::at(*warp.block, barrier_address(warp, form, lane)).complete(form.number.of(warp, lane)); });
}

// Lanes for which the phase that they ask for is over. Most often all ask for one phase of one barrier.
std::uint32_t lanes_over(Warp& warp, const BarrierForm& form) {
  std::uint32_t over = 0, last_address = 0, last_parity = 0;
  bool is_first = true, is_over = false;
  each_active(warp, [&](int lane) {
    const auto address = barrier_address(warp, form, lane);
    const auto parity = form.parity ? form.number.of(warp, lane)
                                    : std::uint32_t{TransactionBarrier::parity_of(warp.lanes_of<std::uint64_t>(form.state)[lane])};
    if (is_first || address != last_address || parity != last_parity) is_over = TransactionBarrier::at(*warp.block, address).over(parity);
    is_first = false, last_address = address, last_parity = parity;
    over |= std::uint32_t{is_over} << lane;
  });
  return over;
}

template <bool waits>
void test_barrier(Warp& warp, const Instruction& instruction) {
  const auto& form = barrier_form(instruction);
  const auto over = lanes_over(warp, form);
  if (waits && !over) warp.progress = Progress::wait;
  if (form.result == no_slot) return;
  auto& predicate = warp.predicate(form.result);
  predicate = (predicate & ~warp.active) | over;
}

void count_pending(Warp& warp, const Instruction& instruction) {
  each_active(warp, [&](int lane) {
    const auto state = warp.lanes_of<std::uint64_t>(instruction.slots[1])[lane];
    warp.lanes_of<std::uint32_t>(instruction.slots[0])[lane] = TransactionBarrier::pending_of(state);
  });
}

void read_arrival(const Parsed& parsed, BarrierForm& form) {
  operand_count(parsed, 1, 3);
  // The result may be left out where it would be a sink.
  const bool has_result = parsed.operands[0].kind != OperandKind::address;
  if (has_result) form.result = parsed.operands[0].slot;
  form.address = address_of(parsed, has_result);
  const std::size_t number = has_result ? 2 : 1;
  if (parsed.operands.size() > number) form.number = number_of(parsed, number);
  form.expects = parsed.has("expect_tx");
  form.drops = parsed.has("arrive_drop");
  form.may_complete = !parsed.has("noComplete");
  if (form.expects && !form.number) not_emulated(parsed, "has no number of bytes, expected one");
}

void read_test(const Parsed& parsed, BarrierForm& form) {
  operand_count(parsed, 3, 4);  // perhaps how long to wait, in nanoseconds
  form.result = parsed.operands[0].slot;
  if (form.result != no_slot && parsed.operands[0].reg != RegisterKind::predicate) not_emulated(parsed, "its result is no predicate");
  form.address = address_of(parsed, 1);
  form.parity = parsed.has("parity");
  if (form.parity)
    form.number = number_of(parsed, 2);
  else
    form.state = parsed.operands[2].slot;
}

void read_count(const Parsed& parsed, BarrierForm& form) {
  operand_count(parsed, 2, 2);
  form.address = address_of(parsed, 0);
  form.number = number_of(parsed, 1);
}

void read_place(const Parsed& parsed, BarrierForm& form) {
  operand_count(parsed, 1, 1);
  form.address = address_of(parsed, 0);
}

void read_state(const Parsed& parsed, BarrierForm&) { operand_count(parsed, 2, 2); }

constexpr struct {
  std::string_view word;
  void (*read)(const Parsed&, BarrierForm&);
  Handler run;
} barrier_words[] = {{"init", read_count, init_barrier},
                     {"inval", read_place, invalidate_barrier},
                     {"arrive", read_arrival, arrive_at_barrier},
                     {"arrive_drop", read_arrival, arrive_at_barrier},
                     {"expect_tx", read_count, expect_bytes},
                     {"complete_tx", read_count, complete_bytes},
                     {"test_wait", read_test, test_barrier<false>},
                     {"try_wait", read_test, test_barrier<true>},
                     {"pending_count", read_state, count_pending}};

}  // namespace

bool decode_barrier(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() != "mbarrier") return false;
  only_words(parsed, {"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "test_wait", "try_wait", "pending_count",
                      "parity", "noComplete"});
  for (const auto& row : barrier_words) {
    if (row.word != parsed.words.at(1)) continue;
    auto form = std::make_shared<BarrierForm>();
    form->space = space_of(parsed);
    row.read(parsed, *form);
    made.run = row.run;
    made.extra = form;
    return true;
  }
  not_emulated(parsed, "is not emulated");
}

}  // namespace ejk::ptx
