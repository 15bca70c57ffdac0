// What a piece of work took, stage by stage.
#pragma once
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace ejk {

using Stages = std::vector<std::pair<std::string, double>>;  // name and seconds, in the order in which they came

class StageClock {
 public:
  // The time since the last stage, or since the clock was made, was this one's.
  void end(const char* stage) {
    const auto now = std::chrono::steady_clock::now();
    stages_.emplace_back(stage, std::chrono::duration<double>(now - last_).count());
    last_ = now;
  }
  const Stages& stages() const { return stages_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  Stages stages_;
};

}  // namespace ejk
