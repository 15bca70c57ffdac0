// A work item with a stack of its own: it stops at a barrier, other items of the same thread run, and it goes on from there.
#pragma once
#include <ucontext.h>

#include "backends/cpu/grid_pool.hpp"

namespace ejk {

class WorkItem {
 public:
  WorkItem();  // throws std::bad_alloc: no memory for the stack
  WorkItem(const WorkItem&) = delete;
  WorkItem& operator=(const WorkItem&) = delete;
  ~WorkItem();

  // It begins at the next resume(). What was on the stack is forgotten: entries own nothing.
  void start(CpuEntry entry, void* const* arguments, const Group& place);
  void resume();   // from outside: until it stops or ends
  void suspend();  // from inside: back to where it was resumed
  bool ended() const { return ended_; }

 private:
  static void run(unsigned high, unsigned low);

  char* stack_;  // its lowest page faults, so that an overrun is seen
  ucontext_t inside_{}, outside_{};
  CpuEntry entry_ = nullptr;
  void* const* arguments_ = nullptr;
  Group place_{};
  bool ended_ = true;
};

}  // namespace ejk
