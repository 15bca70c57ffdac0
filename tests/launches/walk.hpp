// Kernels that walk over time (data/specs), called on the CPU and on the emulator, and the same steps as plain loops.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "emulator/simt.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {

inline constexpr Device host{DeviceType::cpu, 0}, warps{DeviceType::extension, 0}, waves{DeviceType::extension, 1};

inline std::string name_of_place(Device device) { return device.type == DeviceType::cpu ? "cpu" : "simt" + std::to_string(device.index); }

struct Walk {
  std::int64_t steps = 0, elements = 0;
  std::vector<float> x, out;

  Walk(std::int64_t t, std::int64_t n)
      : steps(t), elements(n), x(static_cast<std::size_t>(t * n)), out(static_cast<std::size_t>(n), -1.0f) {
    std::mt19937 random(static_cast<unsigned>(t * 1000 + n));
    for (auto& value : x) value = static_cast<float>(random() % 64) / 8;
  }

  // Every product and sum is exact for a few steps, so all ways to compute them give the same bits.
  std::vector<float> expected() const {
    std::vector<float> from(out.size()), to(out.size());
    for (std::int64_t t = 0; t < steps; ++t) {
      for (std::size_t i = 0; i < out.size(); ++i)
        to[i] = 0.5f * from[(i + 1) % out.size()] + x[static_cast<std::size_t>(t * elements) + i];
      std::swap(from, to);
    }
    return from;
  }

  // The views, for `call`; the emulator's memory is the host's.
  std::map<std::string, TensorView> tensors(Device device) {
    TensorView in(x.data(), DType::f32, {steps, elements}), result(out.data(), DType::f32, {elements});
    in.device = result.device = device;
    return {{"x", in}, {"out", result}};
  }
};

class WalkTest : public StoreTest {
 protected:
  void SetUp() override {
    add_backend(simt_backend());
    ASSERT_TRUE(add_store(test::source_dir() + "/tests/launches/data"));
  }
};

}  // namespace ejk
