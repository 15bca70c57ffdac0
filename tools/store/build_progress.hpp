// Shows the events of a build: a progress bar on a terminal, one plain line a step elsewhere.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>

#include "command_line/progress_line.hpp"
#include "store/build.hpp"

namespace ejk::tools {

// Call it with each event; the bar goes away with finish() or the object. Failures stay on the screen, above the bar.
class BuildProgress {
 public:
  explicit BuildProgress(std::FILE* out);  // a terminal or not is found out here
  BuildProgress(std::FILE* out, bool terminal);
  BuildProgress(const BuildProgress&) = delete;
  BuildProgress& operator=(const BuildProgress&) = delete;
  ~BuildProgress();
  void operator()(const store::BuildEvent& event);
  void finish();

 private:
  void count(const store::BuildEvent& event);
  void print_step(const store::BuildEvent& event);
  void draw(bool now);
  void clear();

  std::FILE* out_;
  bool terminal_, drawn_ = false;
  ProgressState state_;
  std::chrono::steady_clock::time_point start_, drawn_at_;
};

}  // namespace ejk::tools
