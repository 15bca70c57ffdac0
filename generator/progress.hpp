// How far a run is: a bar on a terminal, else a line every some seconds. A quick run shows nothing.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdio>

namespace ejk::generator {

class Progress {
 public:
  explicit Progress(std::FILE* to);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // total 0: they are being counted.
  void show(std::size_t done, std::size_t total);

 private:
  using Clock = std::chrono::steady_clock;
  void bar(std::size_t done, std::size_t total) const;
  void line(std::size_t done, std::size_t total) const;
  double seconds_left(std::size_t done, std::size_t total) const;

  std::FILE* const to_;
  const bool terminal_;
  bool shown_ = false;
  std::size_t total_ = 0;
  Clock::time_point begun_, next_;
};

}  // namespace ejk::generator
