// Ctrl-C and its like as an exception, so that a run leaves nothing half-written.
#pragma once
#include <stdexcept>

namespace ejk::generator {

class Interrupted : public std::runtime_error {
 public:
  explicit Interrupted(int signal) : std::runtime_error("interrupted; the output folder is as it was"), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

// From here on SIGINT, SIGTERM and SIGHUP are noted; those that the process was started to ignore stay ignored.
void note_interrupts();
// Throws Interrupted if one was noted.
void check_interrupts();

}  // namespace ejk::generator
