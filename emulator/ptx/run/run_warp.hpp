// A warp that runs: its paths, and the loop that hands instructions to their handlers.
#pragma once
#include <string>

#include "emulator/ptx/machine.hpp"
#include "emulator/ptx/run/paths.hpp"

namespace ejk::ptx {

class RunningWarp {
 public:
  RunningWarp(Block& block, int number, std::uint32_t its_lanes);

  // Fills what it reads of special registers: once the CTA and its cluster are whole.
  void prepare();

  Warp& warp() { return warp_; }
  bool ended() const { return paths_.ended(); }
  // Runs paths until none can go on, or for about so many instructions. False: not a single instruction was done.
  bool run(int most);
  // Whether that did anything which other threads may see.
  bool was_seen() const { return seen_; }
  // Where its paths are: "line 17 (bar.sync 1, 128), threads 0-31"; for messages.
  std::string whereabouts() const;
  // Adds that to a fault in the instruction that runs.
  [[noreturn]] void refuse(const Fault& fault) const;

 private:
  bool run_path(std::size_t number, int& left);
  void check_exit(std::uint32_t exiting) const;
  bool exits_or_branches(std::size_t number, const Instruction& instruction, std::uint32_t active);

  Warp& warp_;
  Paths paths_;
  const Instruction* code_;
  std::uint32_t code_size_;
  std::uint32_t running_ = 0;  // the instruction
  bool seen_ = false;
};

}  // namespace ejk::ptx
