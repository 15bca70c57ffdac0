// A fork waits until no thread is making a plan or the library: the child would find their locks taken, by threads that it does not have.
#pragma once

namespace ejk {

// While one lives, a fork of another thread waits, for two seconds at most: whoever compiles or tunes for longer does not stop it. Not for
// the hot path, which takes no lock. May be nested.
class ForkGate {
 public:
  ForkGate() noexcept;
  ~ForkGate();
  ForkGate(const ForkGate&) = delete;
  ForkGate& operator=(const ForkGate&) = delete;
};

}  // namespace ejk
