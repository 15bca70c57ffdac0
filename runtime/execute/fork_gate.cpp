// Counts who is inside, and who waits to fork.
#include "execute/fork_gate.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ejk {
namespace {

constexpr auto longest_wait = std::chrono::seconds(2);
constexpr auto look_again = std::chrono::microseconds(50);

std::atomic<int> inside{0}, forking{0};  // threads; sequentially consistent, so that one of two sees the other
thread_local int depth = 0;              // of this thread's gates: the first of them counts

void before_fork() {
  ++forking;
  const int own = depth > 0;
  for (const auto deadline = std::chrono::steady_clock::now() + longest_wait;
       inside.load() > own && std::chrono::steady_clock::now() < deadline;)
    std::this_thread::sleep_for(look_again);
}

void in_parent() { --forking; }

void in_child() {
  inside.store(depth > 0);
  forking.store(0);
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

ForkGate::ForkGate() noexcept {
  if (depth++) return;
  while (++inside, forking.load()) {
    --inside;
    while (forking.load()) std::this_thread::sleep_for(look_again);
  }
}

ForkGate::~ForkGate() {
  if (!--depth) --inside;
}

}  // namespace ejk
