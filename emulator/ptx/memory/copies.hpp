// Asynchronous work of a warp's lanes: pieces that run once, whoever asks first, and the groups that lanes wait for.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "emulator/ptx/machine.hpp"
#include "emulator/ptx/memory/unwaited.hpp"

namespace ejk::ptx {

// cp.async of one lane that have not been done yet, oldest first, and where its groups end; both are counted from the lane's first.
class SmallCopies {
 public:
  struct Copy {
    char* to;
    const char* from;
    std::uint8_t bytes, read;  // the rest becomes zeros
    void run() const {
      if (read == 16) {  // the commonest, with a size that is known
        std::memcpy(to, from, 16);
        return;
      }
      std::memcpy(to, from, read);
      std::memset(to + read, 0, static_cast<std::size_t>(bytes - read));
    }
  };
  void add(const Copy& copy) { copies_.push_back(copy); }
  std::uint64_t count() const { return done_ + copies_.size(); }
  void commit() { groups_.push_back(count()); }
  void run_until(std::uint64_t number);       // all copies before that number
  void wait_for_all_but(std::size_t groups);  // the last ones

 private:
  std::deque<Copy> copies_;
  std::deque<std::uint64_t> groups_;
  std::uint64_t done_ = 0;
};

// Bulk stores of one lane.
class BulkGroups {
 public:
  void add(std::shared_ptr<Piece> piece) { open_.push_back(std::move(piece)); }
  void commit();
  void wait_for_all_but(std::size_t groups);
  bool has_any() const;  // that nobody has waited for

 private:
  std::vector<std::shared_ptr<Piece>> open_;
  std::deque<std::vector<std::shared_ptr<Piece>>> groups_;
};

struct WarpCopies {
  std::array<SmallCopies, lanes> small;
  std::array<BulkGroups, lanes> bulk;
};
std::shared_ptr<WarpCopies> copies_of(Warp& warp);

// Does the work now (Pace::eager) or leaves it to the machine. `memory`: the CTA whose shared memory it reads or writes. `what` must live
// for ever. Returns what was left, or null.
std::shared_ptr<Piece> start_work(const Block& memory, const char* what, std::function<void()> work);

}  // namespace ejk::ptx
