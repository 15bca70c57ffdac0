// The calling thread's workspace.
#include "backends/cpu/host_workspace.hpp"

#include "backends/process/scratch.hpp"
#include "backends/thread_table.hpp"

namespace ejk {

void* host_workspace(std::int64_t bytes) {
  struct Workspace : Scratch {};
  return of_thread<Workspace>().at_least(static_cast<std::size_t>(bytes));
}

}  // namespace ejk
