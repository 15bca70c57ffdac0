// The loop over instructions: guards, branches and exits are done here, all else by handlers.
#include "emulator/ptx/run/run_warp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <stdexcept>

#include "emulator/ptx/matrix/wgmma.hpp"
#include "emulator/ptx/memory/unwaited.hpp"

namespace ejk::ptx {

void settle_barriers(Block& block);  // control.cpp

namespace {

constexpr std::align_val_t file_alignment{128};
constexpr std::size_t unit_bytes = 128;

void fill(Warp& warp, Slot slot, int bytes, std::uint64_t bits) {
  for (int lane = 0; lane < lanes; ++lane)
    if (bytes == 8)
      warp.lanes_of<std::uint64_t>(slot)[lane] = bits;
    else
      warp.lanes_of<std::uint32_t>(slot)[lane] = static_cast<std::uint32_t>(bits);
}

int axis_of(std::string_view name) { return name.back() - 'x'; }

// A number that all lanes of the warp have alike; -1: it is none of those.
std::int64_t common_value(const Warp& warp, std::string_view name) {
  const auto& block = *warp.block;
  const auto& grid = *block.grid;
  const bool has_axis = name.size() > 2 && name[name.size() - 2] == '.' && name.back() >= 'x' && name.back() <= 'z';
  const auto base = has_axis ? name.substr(0, name.size() - 2) : name;
  const auto axis = static_cast<std::size_t>(has_axis ? axis_of(name) : 0);
  if (base == "%ntid") return grid.threads[axis];
  if (base == "%ctaid") return block.index[axis];
  if (base == "%nctaid") return grid.extent[axis];
  if (base == "%cluster_ctaid") return block.index[axis] % grid.cluster[axis];
  if (base == "%cluster_nctaid") return grid.cluster[axis];
  if (base == "%clusterid") return block.index[axis] / grid.cluster[axis];
  if (base == "%nclusterid") return grid.extent[axis] / grid.cluster[axis];
  if (name == "%cluster_ctarank") return block.rank;
  if (name == "%cluster_nctarank") return static_cast<std::int64_t>(block.cluster.size());
  if (name == "%is_explicit_cluster") return block.cluster.size() > 1;
  if (name == "%warpid") return warp.number;
  if (name == "%nwarpid") return static_cast<std::int64_t>(block.warps.size());
  if (name == "%smid") return block.index[0] % 4;
  if (name == "%nsmid") return 4;
  if (name == "%gridid") return 1;
  if (name == "%dynamic_smem_size")
    return static_cast<std::int64_t>(block.shared.size()) - reserved_shared - static_cast<std::int64_t>(grid.entry->shared_bytes);
  if (name == "%total_smem_size") return static_cast<std::int64_t>(block.shared.size());
  return -1;
}

std::uint32_t value_of_lane(const Warp& warp, std::string_view name, int lane) {
  const auto& threads = warp.block->grid->threads;
  const auto thread = static_cast<std::uint32_t>(warp.number * lanes + lane);
  const auto below = (1u << lane) - 1;
  if (name == "%tid.x") return thread % threads[0];
  if (name == "%tid.y") return thread / threads[0] % threads[1];
  if (name == "%tid.z") return thread / threads[0] / threads[1];
  if (name == "%laneid") return static_cast<std::uint32_t>(lane);
  if (name == "%lanemask_eq") return 1u << lane;
  if (name == "%lanemask_lt") return below;
  if (name == "%lanemask_le") return below | 1u << lane;
  if (name == "%lanemask_gt") return ~(below | 1u << lane);
  if (name == "%lanemask_ge") return ~below;
  if (name.starts_with("%clock") || name.starts_with("%globaltimer")) return 0;  // counters: their readers make them
  throw std::runtime_error(fmt::format("the special register {} is not emulated", name));
}

void fill_special(Warp& warp, std::string_view name, Slot slot) {
  if (const auto common = common_value(warp, name); common >= 0) return fill(warp, slot, 4, static_cast<std::uint64_t>(common));
  for (int lane = 0; lane < lanes; ++lane) warp.lanes_of<std::uint32_t>(slot)[lane] = value_of_lane(warp, name, lane);
}

}  // namespace

void FileDeleter::operator()(char* file) const { ::operator delete(file, file_alignment); }

RunningWarp::RunningWarp(Block& block, int number, std::uint32_t its_lanes)
    : warp_(*block.warps.emplace_back(std::make_unique<Warp>())),
      code_(block.grid->entry->code.data()),
      code_size_(static_cast<std::uint32_t>(block.grid->entry->code.size())) {
  const auto& entry = *block.grid->entry;
  const auto bytes = std::max<std::size_t>(entry.units, 1) * unit_bytes;
  warp_.block = &block, warp_.number = number, warp_.alive = its_lanes;
  warp_.file.reset(static_cast<char*>(::operator new(bytes, file_alignment)));
  std::memset(warp_.file.get(), 0x7f, bytes);  // registers start with what is no sensible number
  warp_.local_bytes = entry.local_bytes;
  warp_.locals.assign(entry.local_bytes * lanes, 0x7f);
  for (const auto& constant : entry.constants) fill(warp_, constant.slot, constant.bytes, constant.bits);
  paths_.start(its_lanes);
}

void RunningWarp::prepare() {
  for (const auto& [name, slot] : warp_.block->grid->entry->specials) fill_special(warp_, name, slot);
}

bool RunningWarp::run(int most) {
  bool done = false;
  seen_ = false;
  // A path that was run may have ended, or joined another, and paths may have been added behind it.
  for (std::size_t tried = 0; most > 0 && tried < paths_.all().size();) {
    const auto paths = paths_.all().size();
    const bool went_on = run_path(tried, most);
    done |= went_on;
    const bool waits = paths_.all().size() == paths && tried < paths && paths_.all()[tried].waits;
    if (waits)
      ++tried;
    else if (!went_on && paths_.all().size() == paths)
      ++tried;
  }
  // What one path spins for another may have to do: that comes first next time.
  auto& paths = paths_.all();
  if (most <= 0 && paths.size() > 1) std::rotate(paths.begin(), paths.begin() + 1, paths.end());
  return done;
}

// Until it waits, ends, meets others or parts; `left` instructions at most.
bool RunningWarp::run_path(std::size_t number, int& left) {
  bool done = false;
  while (left > 0) {
    auto& path = paths_.all()[number];
    if (path.at == path.meet) {
      paths_.arrive(number);
      return true;
    }
    const auto& instruction = code_[path.at];
    running_ = path.at;
    auto active = path.mask;
    if (instruction.guard != no_slot) {
      const auto holds = warp_.predicate(instruction.guard);
      active &= instruction.guard_inverted ? ~holds : holds;
    }
    left -= instruction.cost;
    if (instruction.is_branch || instruction.is_exit) {
      done = true;
      seen_ |= instruction.is_seen;
      if (!exits_or_branches(number, instruction, active)) return true;
      continue;
    }
    if (active == 0) {
      ++path.at, done = true;
      continue;
    }
    warp_.active = active, warp_.path = path.mask, warp_.again = path.waits, warp_.ticket = path.ticket;
    warp_.progress = Progress::done;
    instruction.run(warp_, instruction);
    path.ticket = warp_.ticket;
    path.waits = warp_.progress == Progress::wait;
    if (path.waits) return done;
    ++path.at, done = true;
    seen_ |= instruction.is_seen;
  }
  return done;
}

// Whether the path is still there, and alone.
bool RunningWarp::exits_or_branches(std::size_t number, const Instruction& instruction, std::uint32_t active) {
  const auto paths = paths_.all().size();
  if (instruction.is_branch) {
    paths_.branch(number, active, instruction.target, instruction.meet);
  } else {
    if (active == 0) return ++paths_.all()[number].at, true;
    check_exit(active);
    paths_.exit(number, active);
    warp_.alive = paths_.alive();
    settle_barriers(*warp_.block);
  }
  return paths_.all().size() == paths;
}

// Asynchronous work must be waited for by those who started it.
void RunningWarp::check_exit(std::uint32_t exiting) const {
  if (exiting == warp_.alive && has_pending_products(warp_)) throw Fault("the warp ends with products of wgmma that it has not waited for");
  if (has_unwaited_stores(warp_, exiting)) throw Fault("a lane ends with bulk stores that it has not waited for");
}

std::string RunningWarp::whereabouts() const {
  std::string text;
  for (const auto& path : paths_.all()) {
    const auto& instruction = code_[std::min(path.at, code_size_ - 1)];
    text += fmt::format("{}line {} ({}), lanes {:#010x}", text.empty() ? "" : "; ", instruction.line, instruction.text, path.mask);
  }
  return text;
}

void RunningWarp::refuse(const Fault& fault) const {
  const auto& instruction = code_[std::min(running_, code_size_ - 1)];
  throw std::runtime_error(
      fmt::format("warp {}, line {} of its PTX ({}): {}", warp_.number, instruction.line, instruction.text, fault.words));
}

}  // namespace ejk::ptx
