// Waiting for a build lock, with a line of progress, and taking over from the dead.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "backends/process/owner.hpp"
#include "store/lock_file.hpp"
#include "store/store.hpp"

namespace ejk::store {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto dead_for = milliseconds(300);  // how long a dead holder's record must stay: a new holder overwrites it at once
constexpr auto shortest_pause = milliseconds(5), longest_pause = milliseconds(100);

std::string lock_name(const spec::Image& image) { return Store::entry_name(image) + ".lock"; }

// The folder that the lock lies in; nullopt: nothing can be written there.
std::optional<HeldFolder> prepare(const Store& store, const spec::Image& image) {
  if (!store.writable()) return std::nullopt;
  try {
    return store.make_folder_of(image.kernel);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

std::string waiting_line(const std::string& holder, const std::string& id, Clock::duration waited) {
  const auto owner = Owner::parse(holder);
  const auto who = owner ? fmt::format("process {} on {}", owner->pid, owner->host) : "another process";
  return fmt::format("waiting for {}, which compiles {} ({} s)", who, id, std::chrono::duration_cast<seconds>(waited).count());
}

// Sees to it that a lock which a dead process's child still holds does not block for ever.
class DeadHolder {
 public:
  // True: the record has named the same dead process for a while.
  bool certain(const std::string& holder) {
    const auto owner = Owner::parse(holder);
    if (!owner || !owner->dead() || holder != holder_) {
      holder_ = owner && owner->dead() ? holder : "";
      since_ = Clock::now();
      return false;
    }
    return Clock::now() - since_ > dead_for;
  }

 private:
  std::string holder_;
  Clock::time_point since_;
};

// Tells `progress` at most once a second, the first time after one.
class Ticker {
 public:
  explicit Ticker(const std::function<void(const std::string&)>& progress) : progress_(progress) {}
  void tell(const std::string& holder, const std::string& id) {
    const auto now = Clock::now();
    if (!progress_ || now - told_ < seconds(1)) return;
    told_ = now;
    progress_(waiting_line(holder, id, now - start_));
  }
  Clock::duration waited() const { return Clock::now() - start_; }

 private:
  const std::function<void(const std::string&)>& progress_;
  Clock::time_point start_ = Clock::now(), told_ = start_;
};

}  // namespace

std::optional<BuildLock> BuildLock::try_acquire(const Store& store, const spec::Image& image) {
  auto folder = prepare(store, image);
  if (!folder) return std::nullopt;
  const auto name = lock_name(image);
  const auto attempt = try_lock_file(*folder, name);
  if (attempt.outcome == LockAttempt::Outcome::locked || attempt.outcome == LockAttempt::Outcome::without_locks)
    return BuildLock(attempt.fd, std::move(*folder), name);
  return std::nullopt;
}

std::optional<BuildLock> BuildLock::acquire(const Store& store, const spec::Image& image,
                                            const std::function<void(const std::string& line)>& progress,
                                            std::chrono::milliseconds longest_wait) {
  auto folder = prepare(store, image);
  if (!folder) return std::nullopt;
  const auto name = lock_name(image);
  Ticker ticker(progress);
  DeadHolder dead;
  for (auto pause = shortest_pause; ticker.waited() < longest_wait; pause = std::min(pause * 2, longest_pause)) {
    const auto attempt = try_lock_file(*folder, name);
    switch (attempt.outcome) {
      case LockAttempt::Outcome::locked:
      case LockAttempt::Outcome::without_locks:
        return BuildLock(attempt.fd, std::move(*folder), name);
      case LockAttempt::Outcome::unwritable:
        return std::nullopt;
      case LockAttempt::Outcome::held:
        break;
    }
    if (dead.certain(attempt.holder)) remove_dead_lock(*folder, name, attempt.holder);
    ticker.tell(attempt.holder, image.id);
    std::this_thread::sleep_for(pause);
  }
  return std::nullopt;
}

BuildLock::BuildLock(BuildLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), folder_(std::move(other.folder_)), name_(std::move(other.name_)) {}

BuildLock::~BuildLock() {
  if (fd_ >= 0) release_lock(fd_, folder_, name_);
}

}  // namespace ejk::store
