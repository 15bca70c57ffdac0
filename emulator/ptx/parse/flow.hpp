// The flow of control through an entry's instructions: its blocks, and where lanes that part at a branch meet again.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace ejk::ptx {

// What an instruction does to the flow of control. One that is guarded may also go on to the next.
struct Step {
  bool branches = false, exits = false, guarded = false;
  std::uint32_t target = 0;  // of a branch
};

// Instructions that are run one after the other.
struct FlowBlocks {
  std::vector<std::uint32_t> starts;           // by block; and one more, how many instructions there are
  std::vector<std::array<int, 2>> successors;  // by block: of the target and of the next instruction; -1: no such way
  std::vector<int> of_instruction;

  int count() const { return static_cast<int>(successors.size()); }
};

FlowBlocks find_blocks(const std::vector<Step>& steps);

// For each block, the index of the instruction where lanes that part at its last one meet again: the first of the block's immediate
// post-dominator. As many as there are instructions, if they do not meet. Ways that only exit do not count: nobody waits for lanes that
// leave, so a branch around an early "ret" does not keep the others from meeting.
std::vector<std::uint32_t> find_meets(const std::vector<Step>& steps, const FlowBlocks& blocks);

}  // namespace ejk::ptx
