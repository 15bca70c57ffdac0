// Paths: a join has the lanes that parted at one branch, and the join of the path that they parted from.
#include "emulator/ptx/run/paths.hpp"

namespace ejk::ptx {

void Paths::start(std::uint32_t lanes) {
  paths_.assign(1, Path{});
  paths_[0].mask = alive_ = lanes;
  joins_.clear(), free_joins_.clear();
}

int Paths::new_join(const Join& join) {
  if (free_joins_.empty()) {
    joins_.push_back(join);
    return static_cast<int>(joins_.size()) - 1;
  }
  const int number = free_joins_.back();
  free_joins_.pop_back();
  joins_[static_cast<std::size_t>(number)] = join;
  return number;
}

void Paths::branch(std::size_t number, std::uint32_t taken, std::uint32_t target, std::uint32_t meet) {
  auto& path = paths_[number];
  if (taken == path.mask) {
    path.at = target;
    return;
  }
  ++path.at;
  if (taken == 0) return;
  // Lanes that leave a loop one after the other meet at one place: one join does for all of them.
  if (path.meet != meet) path.join = new_join({meet, path.mask, 0, path.join}), path.meet = meet;
  path.mask &= ~taken;
  Path other = path;
  other.mask = taken, other.at = target;
  paths_.push_back(other);
}

void Paths::exit(std::size_t number, std::uint32_t lanes) {
  auto& path = paths_[number];
  alive_ &= ~lanes;
  path.mask &= ~lanes;
  ++path.at;
  if (path.mask != 0) return;
  const int join = path.join;
  paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(number));
  settle(join);
}

void Paths::arrive(std::size_t number) {
  const int join = paths_[number].join;
  joins_[static_cast<std::size_t>(join)].arrived |= paths_[number].mask;
  paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(number));
  settle(join);
}

// If all lanes of the join that have not exited have come, they go on as one path of the join around it.
void Paths::settle(int join) {
  while (join >= 0) {
    const auto& it = joins_[static_cast<std::size_t>(join)];
    if (it.arrived != (it.expected & alive_)) return;
    const auto parent = it.parent;
    free_joins_.push_back(join);
    if (it.arrived != 0) {
      Path path;
      path.mask = it.arrived, path.at = it.meet, path.join = parent;
      if (parent >= 0) path.meet = joins_[static_cast<std::size_t>(parent)].meet;
      paths_.push_back(path);
      return;
    }
    join = parent;
  }
}

}  // namespace ejk::ptx
