// Instructions by which threads meet, wait or end: barriers of CTAs, clusters and warps, launch order, traps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint32_t threads_of_warp = 32;

// Threads that come with this path: a whole warp, where all of it that has not exited is here.
std::uint32_t arriving(const Warp& warp) {
  return warp.path == warp.alive ? threads_of_warp : static_cast<std::uint32_t>(std::popcount(warp.path));
}

std::uint32_t threads_left(const Block& block) {
  std::uint32_t threads = 0;
  for (const auto& warp : block.warps) threads += warp->alive ? threads_of_warp : 0;
  return threads;
}

void complete_if_all(Meeting& meeting, std::uint32_t expected) {
  if (meeting.arrived < expected) return;
  ++meeting.generation;
  meeting.arrived = 0;
  meeting.result = meeting.votes, meeting.votes = 0;
}

// The first time the threads arrive; then, and each time after, they wait for the others.
void wait_at(Warp& warp, Meeting& meeting) {
  if (meeting.generation == warp.ticket) warp.progress = Progress::wait;
}

enum class BarrierKind : int { sync, arrive, any, all };

struct BarrierForm {
  int number_at = 0, threads_at = -1, result_at = -1, vote_at = -1;  // among the slots; -1: there is none
  bool vote_inverted = false;
  BarrierKind kind = BarrierKind::sync;
};

Meeting& barrier_of(Warp& warp, const Instruction& instruction, const BarrierForm& form) {
  const auto number =
      warp.lanes_of<std::uint32_t>(instruction.slots[static_cast<std::size_t>(form.number_at)])[std::countr_zero(warp.path)];
  if (number >= warp.block->barriers.size()) throw Fault(fmt::format("there is no barrier {}: a CTA has 16, from 0 on", number));
  return warp.block->barriers[number];
}

void arrive_at_barrier(Warp& warp, const Instruction& instruction, const BarrierForm& form, Meeting& meeting) {
  std::uint32_t expected = 0;
  if (form.threads_at >= 0) {
    expected = warp.lanes_of<std::uint32_t>(instruction.slots[static_cast<std::size_t>(form.threads_at)])[std::countr_zero(warp.path)];
    if (expected == 0 || expected % threads_of_warp)
      throw Fault(fmt::format("a barrier for {} threads, expected a multiple of 32", expected));
  }
  if (meeting.arrived > 0 && meeting.expected != expected)
    throw Fault(fmt::format("threads come to one barrier as one for {} and as one for {} threads (0: all)", meeting.expected, expected));
  meeting.expected = expected, meeting.of_all = expected == 0;
  if (form.vote_at >= 0) {
    auto vote = warp.predicate(instruction.slots[static_cast<std::size_t>(form.vote_at)]);
    if (form.vote_inverted) vote = ~vote;
    if (meeting.arrived == 0) meeting.votes = form.kind == BarrierKind::all;
    const bool any = vote & warp.active, all = (vote & warp.active) == warp.active;
    meeting.votes = form.kind == BarrierKind::all ? meeting.votes && all : meeting.votes || any;
  }
  warp.ticket = meeting.generation;
  meeting.arrived += arriving(warp);
  complete_if_all(meeting, meeting.of_all ? threads_left(*warp.block) : expected);
}

void run_barrier(Warp& warp, const Instruction& instruction) {
  const auto& form = *static_cast<const BarrierForm*>(instruction.extra.get());
  auto& meeting = barrier_of(warp, instruction, form);
  if (!warp.again) arrive_at_barrier(warp, instruction, form, meeting);
  if (form.kind == BarrierKind::arrive) return;
  wait_at(warp, meeting);
  if (warp.progress == Progress::wait || form.result_at < 0) return;
  auto& result = warp.predicate(instruction.slots[static_cast<std::size_t>(form.result_at)]);
  result = meeting.result ? result | warp.active : result & ~warp.active;
}

bool decode_barrier(const Parsed& parsed, Instruction& made) {
  if (parsed.words[0] != "bar" && parsed.words[0] != "barrier") return false;
  auto form = std::make_shared<BarrierForm>();
  const auto operands = static_cast<int>(parsed.operands.size());
  if (parsed.has("red")) {
    if (!parsed.has("pred")) throw std::runtime_error("of bar.red only .pred is emulated");
    form->kind = parsed.has("and") ? BarrierKind::all : BarrierKind::any;
    form->result_at = 0, form->number_at = 1, form->vote_at = operands - 1, form->threads_at = operands == 4 ? 2 : -1;
    form->vote_inverted = parsed.operands.back().inverted;
  } else {
    form->kind = parsed.has("arrive") ? BarrierKind::arrive : BarrierKind::sync;
    form->threads_at = operands == 2 ? 1 : -1;
  }
  made.extra = std::move(form), made.run = run_barrier;
  return true;
}

// All threads of the cluster that have not exited: a CTA that has ended does not count.
std::uint32_t cluster_threads_left(const Warp& warp) {
  std::uint32_t threads = 0;
  for (const auto* block : warp.block->cluster) threads += threads_left(*block);
  return threads;
}

// The generation that a warp's threads arrived in, for their wait: of the warp, since all of it comes together (.aligned).
void arrive_at_cluster(Warp& warp, const Instruction&) {
  auto& meeting = *warp.block->cluster_barrier;
  warp.cluster_ticket = meeting.generation;
  meeting.arrived += arriving(warp);
  complete_if_all(meeting, cluster_threads_left(warp));
}

void wait_for_cluster(Warp& warp, const Instruction&) {
  if (warp.block->cluster_barrier->generation == warp.cluster_ticket) warp.progress = Progress::wait;
}

void meet_in_warp(Warp& warp, const Instruction& instruction) {
  const auto mask = warp.lanes_of<std::uint32_t>(instruction.slots[0])[std::countr_zero(warp.path)] & warp.alive;
  auto& meeting = warp.meeting;
  if ((mask & ~warp.path) == 0 && !warp.again) return;  // all are here: the usual case
  if (!warp.again) {
    warp.ticket = meeting.generation;
    meeting.arrived |= warp.path;
    if ((mask & ~meeting.arrived) == 0) ++meeting.generation, meeting.arrived = 0;
  }
  wait_at(warp, meeting);
}

[[noreturn]] void run_trap(Warp&, const Instruction&) { throw Fault("the kernel stopped itself (trap)"); }

void do_nothing(Warp&, const Instruction&) {}

// What only says how fast or in what order launches run: here one has ended before the next begins.
bool is_hint(const Parsed& parsed) {
  static constexpr std::string_view hints[] = {"griddepcontrol", "setmaxnreg", "nanosleep", "pmevent", "brkpt"};
  return std::ranges::find(hints, parsed.words[0]) != std::end(hints);
}

}  // namespace

bool decode_control(const Parsed& parsed, Instruction& made) {
  if (parsed.opcode == "bar.warp.sync") return made.run = meet_in_warp, true;
  if (parsed.opcode.starts_with("barrier.cluster.")) return made.run = parsed.has("arrive") ? arrive_at_cluster : wait_for_cluster, true;
  if (parsed.words[0] == "trap") return made.run = run_trap, true;
  if (is_hint(parsed)) return made.run = do_nothing, true;
  return decode_barrier(parsed, made);
}

// An exit may complete barriers of all threads.
void settle_barriers(Block& block) {
  for (auto& meeting : block.barriers)
    if (meeting.arrived > 0 && meeting.of_all) complete_if_all(meeting, threads_left(block));
  if (!block.cluster_barrier || block.cluster_barrier->arrived == 0) return;
  std::uint32_t threads = 0;
  for (const auto* each : block.cluster) threads += threads_left(*each);
  complete_if_all(*block.cluster_barrier, threads);
}

}  // namespace ejk::ptx
