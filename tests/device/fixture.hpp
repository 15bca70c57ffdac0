// Tests on the first CUDA device; without one they are skipped, with the reason. Kernel `shift` of tests/device/data, compiled on demand.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "device/driver.hpp"
#include "ejk/ejk.hpp"
#include "tests/paths.hpp"

namespace ejk {

// The checkout: where the tests run, or else where they were built.
inline std::string source_folder() {
  const auto here = std::filesystem::current_path();
  return std::filesystem::exists(here / "tests/device/data") ? here.string() : test::source_dir();
}

inline constexpr Device first_gpu{DeviceType::cuda, 0};

template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::vector<T> values) : count_(values.size()), data_(Driver::instance().allocate(count_ * sizeof(T))) { set(values); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() {
    try {
      Driver::instance().free(data_);
    } catch (const std::runtime_error&) {  // after a fault nothing works, and everything goes with the process
    }
  }
  void set(const std::vector<T>& values) {
    Driver::instance().to_device(data_, values.data(), count_ * sizeof(T));
    Driver::instance().wait();  // the copy is the default stream's, for which own streams do not wait
  }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    Driver::instance().to_host(values.data(), data_, count_ * sizeof(T));
    return values;
  }
  TensorView view(DType type = DType::f32) const {
    TensorView view(data_, type, {static_cast<std::int64_t>(count_)});
    view.device = first_gpu;
    return view;
  }

 private:
  std::size_t count_;
  void* data_;
};

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() {
    char pattern[] = "/tmp/ejk-device-XXXXXX";
    folder = mkdtemp(pattern);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    setenv("EJKERNEL_CACHE_DIR", folder.c_str(), 1);
  }
  ~DeviceTest() override { std::filesystem::remove_all(folder); }

  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    static const bool added = static_cast<bool>(add_store(source_folder() + "/tests/device/data"));
    ASSERT_TRUE(added);
  }

  std::filesystem::path folder;
};

inline std::vector<float> numbers(std::size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline std::vector<float> zeros(std::size_t count) { return std::vector<float>(count); }

inline std::vector<float> plus(std::vector<float> values, float by) {
  for (auto& value : values) value += by;
  return values;
}

inline Status shift(const TensorView& x, const TensorView& out, double by, std::int64_t scratch = 0, Stream stream = {}) {
  return call("shift", {{"x", x}, {"out", out}}, {{"by", by}, {"scratch", scratch}}, stream);
}

template <class T>
std::string message_of(const T& result) {
  return result ? "" : result.error().message;
}

}  // namespace ejk
