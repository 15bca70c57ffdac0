// Shows a tuning run: a bar with the time left on a terminal, a line for each config and call elsewhere.
#pragma once
#include <chrono>
#include <cstdio>
#include <string>

#include "tune/search.hpp"

namespace ejk::tools {

// "[####................] 3/31 calls  12%  elapsed 7 s  left 53 s  minilm.f32: checking ...", at most width - 1 characters.
struct TuneProgressState {
  std::size_t done = 0, total = 0;  // calls
  double elapsed = 0, budget = 0;   // seconds, of the run
  double of_call = 0;               // share of the current call's time that has gone
  std::string text;
};
double tune_seconds_left(const TuneProgressState& state);
std::string tune_progress_line(const TuneProgressState& state, std::size_t width);

class TuneProgress {
 public:
  TuneProgress(std::FILE* out, bool terminal, std::size_t total, double budget);
  TuneProgress(const TuneProgress&) = delete;
  TuneProgress& operator=(const TuneProgress&) = delete;
  ~TuneProgress();
  void begin(const std::string& name);
  void step(const SearchProgress& progress);
  void config(const Trial& trial);
  void end(const std::string& verdict);  // of the call
  void line(const std::string& text);    // that stays

 private:
  void draw(bool now);
  void clear();
  std::FILE* out_;
  const bool terminal_;
  bool drawn_ = false;
  TuneProgressState state_;
  std::string name_;
  std::chrono::steady_clock::time_point start_, drawn_at_;
};

}  // namespace ejk::tools
