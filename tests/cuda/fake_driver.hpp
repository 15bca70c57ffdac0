// A fake driver that records every call instead of launching: CUDA's rules on machines without a GPU.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda/cuda_driver.hpp"

namespace ejk::cuda {

struct FakeLaunch {
  std::string kernel;
  int device = 0;
  unsigned grid[3] = {}, block[3] = {}, shared_bytes = 0, cluster[3] = {};
  bool cooperative = false;
  Stream stream = nullptr;
  TensorMap first_map = {};  // the first argument, of kernels that take a map first
  bool overlaps = false;
  std::int64_t integer = 0;  // the argument that integer_arguments names
};

// Bytes set on a stream, after so many launches.
struct FakeFill {
  Address address = 0;
  unsigned char value = 0;
  std::size_t bytes = 0, launches_before = 0;
  Stream stream = nullptr;
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
  int blocks_a_processor = 2, clusters_at_once = 8;
  std::map<std::string, std::size_t> integer_arguments;  // kernel, and which of its arguments is an integer to keep

  // What was done
  std::vector<int> context_stack;  // of devices; primary contexts only
  std::vector<FakeLaunch> launches;
  std::vector<FakeFill> fills;
  std::vector<std::string> calls;  // of the functions that cost something: "retain 0", "load", "attribute 8=65536 on 0"
  std::map<Address, std::size_t> memory;
  std::uint64_t threshold = 0;
  int capture_mode = 0;
  int capturing = 0;  // what streams say of themselves

  static FakeDriver& instance();
  static void reset() { instance() = FakeDriver(); }
  std::size_t count(const std::string& call) const;
  Result answer(const std::string& function) const;
};

Driver fake_driver();

}  // namespace ejk::cuda
