// The autotune tier: asks the tuner, one thread a key, and keeps what it measured.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "select/question.hpp"

namespace ejk {

struct Tuned {
  std::shared_ptr<const TuningRecord> record;  // null: the detail says why
  std::string detail;
  bool measured_here = false;  // by this thread, not by another one or another process
};

// Keys that are being tuned now: the first thread that asks for one measures, later ones wait for its answer.
class TuningFlights {
 public:
  template <class Measure>
  Tuned join(const std::string& key, const Measure& measure) {
    std::unique_lock lock(mutex_);
    auto& slot = flights_[key];
    if (slot) {
      const auto flight = slot;
      landed_.wait(lock, [&] { return flight->done; });
      auto answer = flight->answer;
      answer.measured_here = false;
      if (answer.record) answer.detail += "; measured by another thread";
      return answer;
    }
    const auto flight = slot = std::make_shared<Flight>();
    lock.unlock();
    auto answer = measure();  // does not throw
    lock.lock();
    flight->answer = answer;
    flight->done = true;
    flights_.erase(key);
    landed_.notify_all();
    return answer;
  }

 private:
  struct Flight {
    bool done = false;
    Tuned answer;
  };
  std::mutex mutex_;
  std::condition_variable landed_;
  std::map<std::string, std::shared_ptr<Flight>> flights_;
};

// Whether the tier had an answer; it is kept in memory and in the user's records then. explain: says what a call would do, and measures
// nothing.
bool ask_autotune(Question& question, const ConfigSelectorChain& chain, TuningFlights& flights, bool explain);

}  // namespace ejk
