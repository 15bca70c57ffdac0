// The text of a progress line: pure functions of what is done, so that tests can hold them.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace ejk::tools {

struct ProgressState {
  std::size_t done = 0, total = 0;
  std::size_t compiled = 0;            // of those done, the ones that took time
  double elapsed = 0;                  // seconds
  std::vector<std::string> compiling;  // ids, oldest first
};

// 7 s, 1:05, 2:03:04
inline std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, std::round(seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

// Seconds left by the pace so far; negative: nothing to judge by yet. Images that were present count as no work, so the rest is taken
// to be compiled at the pace of those that were.
inline double seconds_left(const ProgressState& state) {
  if (state.compiled == 0 || state.elapsed <= 0) return -1;
  return state.elapsed / static_cast<double>(state.compiled) * static_cast<double>(state.total - state.done);
}

inline int percent_done(const ProgressState& state) { return state.total == 0 ? 100 : static_cast<int>(100 * state.done / state.total); }

// "[##########..........] 12/24  50%  elapsed 7 s  left 9 s  mean_pooling.a (+1)", at most `width` - 1 characters: a full line would wrap.
inline std::string progress_line(const ProgressState& state, std::size_t width) {
  constexpr std::size_t bar_width = 20;
  const auto filled = state.total == 0 ? bar_width : bar_width * state.done / state.total;
  const auto left = seconds_left(state);
  std::string line =
      fmt::format("[{}{}] {}/{} {:3}%  elapsed {}  left {}", std::string(filled, '#'), std::string(bar_width - filled, '.'), state.done,
                  state.total, percent_done(state), duration_text(state.elapsed), left < 0 ? "?" : duration_text(left));
  if (!state.compiling.empty()) line += "  " + state.compiling.front();
  if (state.compiling.size() > 1) line += fmt::format(" (+{})", state.compiling.size() - 1);
  const auto room = width > 1 ? width - 1 : 1;
  if (line.size() > room) line = room > 3 ? line.substr(0, room - 3) + "..." : line.substr(0, room);
  return line;
}

}  // namespace ejk::tools
