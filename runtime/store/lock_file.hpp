// One attempt at a lock file: flock for exclusion, an owner record inside for messages and take-over.
#pragma once
#include <string>

#include "store/held_folder.hpp"

namespace ejk::store {

struct LockAttempt {
  enum class Outcome { locked, held, without_locks, unwritable };
  Outcome outcome = Outcome::unwritable;
  int fd = -1;         // for locked
  std::string holder;  // for held: the record of the one who has it, or empty if it has not written it yet
};

// Makes the file if it is missing; never waits.
LockAttempt try_lock_file(const HeldFolder& folder, const std::string& name);
void release_lock(int fd, const HeldFolder& folder, const std::string& name);
// Removes the file if `holder`'s record is still in it: its process is dead, but a child of it keeps the lock. One waiter at a time, so
// that none removes the file of the waiter that took over just before.
void remove_dead_lock(const HeldFolder& folder, const std::string& name, const std::string& holder);
// Lock files of that folder which nobody holds.
void remove_free_locks(const HeldFolder& folder);

}  // namespace ejk::store
