// A driver that keeps book instead of launching: CUDA's rules on machines without a GPU.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda_driver.hpp"

namespace ejk::cuda {

struct FakeLaunch {
  std::string kernel;
  int device = 0;
  unsigned grid[3] = {}, block[3] = {}, shared_bytes = 0, cluster[3] = {};
  bool cooperative = false;
  Stream stream = nullptr;
  TensorMap first_map = {};  // the first argument, of kernels that take a map first
  bool overlaps = false;
};

// One process-wide state, since the driver's functions take none. Each test resets it.
struct FakeDriver {
  // What it has
  struct Part {
    std::string name = "NVIDIA H200";
    int major = 9, minor = 0;
  };
  std::vector<Part> parts = {Part{}, Part{}};
  Result init_result = success;
  std::map<std::string, Result> next_result;  // by function ("launch"): what it answers from now on
  Context context = nullptr;                  // the current one, where it is not a device's primary one
  std::set<std::string> kernels = {"fetch", "fill", "scale"};
  std::set<std::string> kernels_of_maps = {"fetch", "scale"};

  // What was done
  std::vector<int> context_stack;  // of devices; primary contexts only
  std::vector<FakeLaunch> launches;
  std::vector<std::string> calls;  // of the functions that cost something: "retain 0", "load", "attribute 8=65536 on 0"
  std::map<Address, std::size_t> memory;
  std::uint64_t threshold = 0;
  int capture_mode = 0;

  static FakeDriver& instance();
  static void reset() { instance() = FakeDriver(); }
  std::size_t count(const std::string& call) const;
  Result answer(const std::string& function) const;
};

Driver fake_driver();

}  // namespace ejk::cuda
