// What each thread has of its own, and what calls find that come after its destructor: later destructors of the thread, atexit.
#pragma once
#include <vector>

namespace ejk {

// nullptr: it is gone. One table a type.
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

// As table_of_thread; calls after its end get another, which nothing destroys. One a type.
template <class Table>
Table& of_thread() {
  if (auto* const table = table_of_thread<Table>()) return *table;
  constinit thread_local Table* late = nullptr;
  if (!late) late = new Table;
  return *late;
}

// Closes the innermost scope of a thread; none is left of those that were open at its end.
template <class Scope>
void close_innermost(std::vector<Scope>& scopes) {
  if (!scopes.empty()) scopes.pop_back();
}

}  // namespace ejk
