// HIP on the fake driver of tests/cuda: the same book, under HIP's rules.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "backends/hip/hip_driver.hpp"
#include "cuda/fake_driver.hpp"

namespace ejk::hip {

// Beside cuda::FakeDriver's: what only HIP has.
struct FakeHip {
  std::vector<std::string> archs = {"gfx90a:sramecc+:xnack-", "gfx942"};  // of the devices
  int current = 0;
  std::vector<std::string> calls;  // "module on 1"
  static FakeHip& instance();
  static void reset();
};

Driver fake_hip();

}  // namespace ejk::hip
