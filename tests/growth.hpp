// How the processor time of a task grows with its size: a test of what must not be quadratic, on machines of any speed and load.
#pragma once

#include <algorithm>
#include <ctime>
#include <functional>

namespace ejk::test {

// The least of some runs, in seconds of all the process's threads.
inline double processor_seconds(const std::function<void()>& task, int runs = 3) {
  double least = 1e300;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::clock();
    task();
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

// task(8 * size) takes less than 24 times as long as task(size): in proportion it takes 8 times as long, with the square 64 times.
inline bool grows_in_proportion(int size, const std::function<void(int)>& task) {
  return processor_seconds([&] { task(8 * size); }, 1) < 24 * processor_seconds([&] { task(size); });
}

}  // namespace ejk::test
