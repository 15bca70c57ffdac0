// The cost model: how much of a machine a config's launches can fill, known before it is timed.
//
// The formula. Blocks are dealt out to processors (an SM; a thread of a CPU) and a processor holds as many at a time as its threads,
// shared memory and registers allow, its room: the occupancy rules of the CUDA C++ Programming Guide ("Hardware Multithreading",
// "Compute Capabilities"). The busiest processor gets n = ceil(blocks / processors) of them, in n / room full turns (waves) and a rest.
// What waits must be hidden behind other warps (Little's law; Volkov, "Understanding Latency Hiding on GPUs", 2016), so k blocks at a time
// keep a processor busy for rate(k) = min(1, k * warps a block / 8) of it: two warps for each of four schedulers. A block's work is the
// unit of time:
//   time       = turns * room / rate(room) + rest / rate(rest)
//   efficiency = (blocks / processors) / time          1: every processor is busy until the end
// Where one block's warps are too few this is blocks / (waves * slots), and where they are enough it is the imbalance of whole blocks. A
// thread of a CPU takes one cell of the grid at a time and is busy with it: efficiency = cells / (threads * ceil(cells / threads)).
//
// Its limits. Every block is taken to have the same work and every config the same work in all; caches, bandwidth, instruction mix,
// clusters, independent instructions within a thread and what it costs to wake processors for a short call are unknown to it. So
// efficiencies are compared between configs of one variant on one arch alone, a config counts as well filled as the best filled of its
// launches (how the work is shared out over them is not known), and only what is far below the best is pruned: it cannot fill the machine,
// whatever it does there. Registers and static shared memory are those of the image's most demanding entry. An arch file says what a block
// may have; what a processor has beyond that is in cost_model.cpp. A test holds the rule against the shipped records: of
// the first 226 winners, on a CPU and on an H200, the least filled has 0.375 of the best.
#pragma once
#include <optional>
#include <string>

#include "spec/check/limits.hpp"
#include "spec/render/image.hpp"

namespace ejk {

// Below this part of the best's efficiency a config is neither built nor timed.
inline constexpr double worth_timing = 1.0 / 3;

struct Processors {
  std::int64_t count = 0;
  std::int64_t warp = 0;                                                  // threads; 0: a CPU's, which takes one cell at a time
  std::int64_t threads = 0, blocks = 0, shared_bytes = 0, registers = 0;  // of one processor; 0: not known, no limit
};
// nullopt: how many there are is not known.
std::optional<Processors> processors_of(const spec::Arch& arch);

struct Fill {
  double efficiency = 1;  // in (0, 1], of the machine
  std::string entry;
  std::int64_t processors = 0, room = 1, warps = 0;  // room: blocks a processor holds; warps a block, 0 on a CPU
  double blocks = 0;
};
// compiled: of the image, empty before it is built.
Fill fill_of(const spec::LaunchGeometry& launch, const spec::Resources& compiled, const Processors& processors);
// The best filled launch. nullopt: no launch, or an unknown machine.
std::optional<Fill> fill_of(const spec::Geometry& geometry, const spec::Resources& compiled, const spec::Arch& arch);

// "attend has 8 blocks of 4 warps for 132 processors with room for 2 each"
std::string words_of(const Fill& fill);

// Registers are given out to whole warps, in steps.
std::int64_t registers_of_block(std::int64_t registers_a_thread, std::int64_t threads, std::int64_t warp);

}  // namespace ejk
