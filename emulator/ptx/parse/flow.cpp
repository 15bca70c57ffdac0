// Blocks and post-dominators: K. Cooper, T. Harvey, K. Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed flow.
#include "emulator/ptx/parse/flow.hpp"

#include <algorithm>
#include <utility>

namespace ejk::ptx {
namespace {

std::vector<char> find_leaders(const std::vector<Step>& steps) {
  std::vector<char> leads(steps.size() + 1, 0);
  leads[0] = 1;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].branches) leads[std::min<std::size_t>(steps[i].target, steps.size())] = 1;
    if (steps[i].branches || steps[i].exits) leads[i + 1] = 1;
  }
  return leads;
}

class PostDominators {
 public:
  PostDominators(const std::vector<Step>& steps, const FlowBlocks& blocks)
      : steps_(steps),
        blocks_(blocks),
        ways_(blocks.successors),
        leaves_(ways_.size(), 0),
        parent_(ways_.size(), -1),
        number_(ways_.size(), 0),
        root_(ways_.size(), -1),
        before_(ways_.size()) {
    cut_exits();
    for (int block = 0; block < blocks_.count(); ++block)
      for (const int way : ways_[at(block)])
        if (way >= 0) before_[at(way)].push_back(block);
    // The last exit of the text is where most ways end, then the one before for those that do not come there, and so on; what never exits
    // comes last. For each, only blocks that come there and have no earlier choice are looked at.
    for (int block = blocks_.count() - 1; block >= 0; --block)
      if (leaves_[at(block)] && root_[at(block)] < 0) find_from(block);
    for (int block = blocks_.count() - 1; block >= 0; --block)
      if (root_[at(block)] < 0) find_from(block);
  }

  std::uint32_t meet(int block) const {
    const auto [target, next] = ways_[at(block)];
    const bool parts = target >= 0 && next >= 0 && root_[at(target)] == root_[at(block)] && root_[at(next)] == root_[at(block)];
    return !parts || root_[at(block)] == block ? blocks_.starts.back() : blocks_.starts[at(parent_[at(block)])];
  }

 private:
  static std::size_t at(int block) { return static_cast<std::size_t>(block); }

  // A block that does nothing but exit.
  bool only_exits(int block) const {
    const auto& first = steps_[blocks_.starts[at(block)]];
    return first.exits && !first.guarded;
  }

  // Jumps to blocks that only exit are exits themselves. One that goes on to such a block without a branch stays.
  void cut_exits() {
    for (int block = 0; block < blocks_.count(); ++block) {
      const auto& last = steps_[blocks_.starts[at(block) + 1] - 1];
      if (last.exits) leaves_[at(block)] = 1;
      if (!last.branches) continue;
      for (int& way : ways_[at(block)])
        if (way >= 0 && only_exits(way)) way = -1, leaves_[at(block)] = 1;
    }
  }

  // Blocks that come to `leaf` and are not yet found, in the order in which a depth-first search back from there leaves them.
  void search(int leaf) {
    order_.clear();
    root_[at(leaf)] = leaf;
    std::vector<std::pair<int, std::size_t>> path{{leaf, 0}};
    while (!path.empty()) {
      auto& [block, next] = path.back();
      if (next == before_[at(block)].size()) {
        number_[at(block)] = static_cast<int>(order_.size());
        order_.push_back(block);
        path.pop_back();
      } else if (const int from = before_[at(block)][next++]; root_[at(from)] < 0) {
        root_[at(from)] = leaf;
        path.emplace_back(from, 0);
      }
    }
  }

  int common(int a, int b) const {
    while (a != b) {
      while (number_[at(a)] < number_[at(b)]) a = parent_[at(a)];
      while (number_[at(b)] < number_[at(a)]) b = parent_[at(b)];
    }
    return a;
  }

  void find_from(int leaf) {
    search(leaf);
    parent_[at(leaf)] = leaf;
    for (bool changed = true; changed;) {
      changed = false;
      for (auto block = order_.rbegin() + 1; block != order_.rend(); ++block) {
        int found = -1;
        for (const int way : ways_[at(*block)])
          if (way >= 0 && root_[at(way)] == leaf && parent_[at(way)] >= 0) found = found < 0 ? way : common(found, way);
        changed = changed || found != parent_[at(*block)];
        parent_[at(*block)] = found;
      }
    }
  }

  const std::vector<Step>& steps_;
  const FlowBlocks& blocks_;
  std::vector<std::array<int, 2>> ways_;  // successors, without those that only exit
  std::vector<char> leaves_;              // blocks from where one may exit
  std::vector<int> parent_, number_;      // of a block: its immediate post-dominator; its place in `order_`
  std::vector<int> root_;                 // the exit that it was found from
  std::vector<std::vector<int>> before_;  // predecessors
  std::vector<int> order_;
};

}  // namespace

FlowBlocks find_blocks(const std::vector<Step>& steps) {
  FlowBlocks made;
  const auto leads = find_leaders(steps);
  made.of_instruction.reserve(steps.size() + 1);
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    if (leads[i]) made.starts.push_back(i);
    made.of_instruction.push_back(static_cast<int>(made.starts.size()) - 1);
  }
  made.starts.push_back(static_cast<std::uint32_t>(steps.size()));
  const auto block_at = [&](std::size_t i) { return i < steps.size() ? made.of_instruction[i] : -1; };
  for (std::size_t block = 0; block + 1 < made.starts.size(); ++block) {
    const std::size_t end = made.starts[block + 1];
    const auto& last = steps[end - 1];
    const bool goes_on = (!last.branches && !last.exits) || last.guarded;
    made.successors.push_back({last.branches ? block_at(last.target) : -1, goes_on ? block_at(end) : -1});
  }
  return made;
}

std::vector<std::uint32_t> find_meets(const std::vector<Step>& steps, const FlowBlocks& blocks) {
  const PostDominators found(steps, blocks);
  std::vector<std::uint32_t> meets(blocks.successors.size());
  for (int block = 0; block < blocks.count(); ++block) meets[static_cast<std::size_t>(block)] = found.meet(block);
  return meets;
}

}  // namespace ejk::ptx
