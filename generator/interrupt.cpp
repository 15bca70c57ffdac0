// A handler may do no more than set a flag.
#include "generator/interrupt.hpp"

#include <csignal>

namespace ejk::generator {
namespace {

volatile std::sig_atomic_t noted = 0;

}  // namespace

void note_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, [](int which) { noted = which; }) == SIG_IGN) std::signal(signal, SIG_IGN);
}

void check_interrupts() {
  if (noted != 0) throw Interrupted(noted);
}

}  // namespace ejk::generator
