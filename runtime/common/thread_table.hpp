// A table of a thread's own, which calls after its end find gone.
#pragma once

namespace ejk {

// nullptr: it is gone; this is a later destructor of the thread, or atexit. One table a type.
template <class Table>
Table* table_of_thread() {
  constinit thread_local bool ended = false;  // outlives the table
  struct Guarded {
    Table table;
    ~Guarded() { ended = true; }
  };
  thread_local Guarded guarded;
  return ended ? nullptr : &guarded.table;
}

}  // namespace ejk
