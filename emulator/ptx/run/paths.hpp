// Which lanes of a warp are where: paths that part at branches and meet again where all ways from a branch come together.
#pragma once
#include <cstdint>
#include <vector>

#include "emulator/ptx/program.hpp"

namespace ejk::ptx {

struct Path {
  std::uint32_t mask = 0;
  std::uint32_t at = 0;             // the next instruction
  std::uint32_t meet = UINT32_MAX;  // where it waits for others: its join's
  int join = -1;
  bool waits = false;        // its instruction could not go on when it was last run
  std::uint64_t ticket = 0;  // what that instruction left (Warp::ticket)
};

class Paths {
 public:
  // All of `lanes` at the first instruction.
  void start(std::uint32_t lanes);
  bool ended() const { return paths_.empty(); }
  std::vector<Path>& all() { return paths_; }
  const std::vector<Path>& all() const { return paths_; }
  std::uint32_t alive() const { return alive_; }

  // Path `number` comes to a branch: `taken` of its lanes go to `target`, the others to the next instruction. They meet at `meet`.
  void branch(std::size_t number, std::uint32_t taken, std::uint32_t target, std::uint32_t meet);
  // Those of its lanes exit; the others go on. May remove the path, or add one of lanes that waited for these alone.
  void exit(std::size_t number, std::uint32_t lanes);
  // The path has come to where it waits for others. Removes it; adds the joined one once all have come.
  void arrive(std::size_t number);

 private:
  struct Join {
    std::uint32_t meet = 0, expected = 0, arrived = 0;
    int parent = -1;
  };
  void settle(int join);
  int new_join(const Join& join);

  std::vector<Path> paths_;
  std::vector<Join> joins_;
  std::vector<int> free_joins_;
  std::uint32_t alive_ = 0;
};

}  // namespace ejk::ptx
