// The process's tuner.
#include "ejk/tuning.hpp"

#include <mutex>

#include "common/epoch.hpp"
#include "ejk/autotune.hpp"

namespace ejk {
namespace {

// Of a call that tunes by itself: somebody waits for it.
constexpr double unasked_seconds = 20;

struct ProcessTuner {
  std::mutex mutex;
  std::shared_ptr<Tuner> tuner = make_tuner({.budget_seconds = unasked_seconds});
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
  ++decisions_epoch;  // plans that fell back for want of a tuner are made anew
}

std::shared_ptr<Tuner> tuner() {
  auto& process = process_tuner();
  const std::lock_guard lock(process.mutex);
  return process.tuner;
}

}  // namespace ejk
