// The process's tuner.
#include "ejk/tuning.hpp"

#include <mutex>

#include "execute/library_state.hpp"

namespace ejk {
namespace {

struct ProcessTuner {
  std::mutex mutex;
  std::shared_ptr<Tuner> tuner;
};

ProcessTuner& process_tuner() {
  static auto* tuner = new ProcessTuner;  // never destroyed: threads may outlive main
  return *tuner;
}

}  // namespace

void set_tuner(std::shared_ptr<Tuner> tuner) {
  auto& process = process_tuner();
  {
    const std::lock_guard lock(process.mutex);
    process.tuner.swap(tuner);  // the old one is destroyed after the lock
  }
  ++Library::epoch;  // plans that fell back for want of a tuner are made anew
}

std::shared_ptr<Tuner> tuner() {
  auto& process = process_tuner();
  const std::lock_guard lock(process.mutex);
  return process.tuner;
}

}  // namespace ejk
