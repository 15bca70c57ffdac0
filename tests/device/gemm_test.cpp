// Hopper's words at work: a GEMM of tile copies, wgmma and matrix stores, each config against a thread an element. Skipped elsewhere.
#include <algorithm>
#include <array>

#include "command_line/device_option.hpp"
#include "device/fixture.hpp"

namespace ejk::gemm_test {
namespace {

// -1, 0 or 1 in bf16: sums are exact, so both variants round the same numbers.
std::vector<std::uint16_t> signs(std::int64_t count, unsigned seed) {
  static constexpr std::uint16_t values[] = {0xbf80, 0, 0x3f80};
  std::vector<std::uint16_t> list;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    list.push_back(values[(seed >> 16) % 3]);
  }
  return list;
}

struct Gemm {
  std::int64_t rows, columns, depth;
  OnGpu<std::uint16_t> a{signs(rows * depth, 1)}, b{signs(depth * columns, 2)};

  std::vector<std::uint16_t> run(const Config& config, std::string& error) const {
    const OnGpu<std::uint16_t> c(std::vector<std::uint16_t>(static_cast<std::size_t>(rows * columns), 0x7fc0));
    const auto status =
        call("gemm", {{"a", matrix(a, rows, depth)}, {"b", matrix(b, depth, columns)}, {"c", matrix(c, rows, columns)}}, {}, {}, &config);
    error = message_of(status);
    return c.values();
  }

  static TensorView matrix(const OnGpu<std::uint16_t>& memory, std::int64_t rows, std::int64_t columns) {
    TensorView view(memory.view(DType::bf16).data, DType::bf16, {rows, columns});
    view.device = first_gpu;
    return view;
  }
};

TEST_F(DeviceTest, HoppersGemmIsThatOfAThreadAnElement) {
  const auto& archs = tools::find_device({"cuda", 0}).probe.archs;
  if (std::find(archs.begin(), archs.end(), "cuda:sm_90a") == archs.end()) GTEST_SKIP() << "the device is no Hopper";
  std::string error;
  for (const auto& [rows, columns, depth] : {std::array<std::int64_t, 3>{128, 128, 64}, {321, 200, 136}, {1024, 512, 2048}}) {
    const Gemm gemm{rows, columns, depth};
    const auto expected = gemm.run({"plain", "", {}}, error);
    ASSERT_EQ(error, "");
    for (const std::int64_t blocks : {1, 2})
      for (const char* a_in : {"shared", "registers"})
        for (const std::int64_t stages : {3, 4}) {
          const Config config{"hopper", "", {{"blocks", blocks}, {"a_in", std::string(a_in)}, {"stages", stages}}};
          const auto found = gemm.run(config, error);
          EXPECT_EQ(error, "");
          EXPECT_TRUE(found == expected) << rows << " x " << columns << " x " << depth << ", blocks " << blocks << ", a in " << a_in
                                         << ", stages " << stages;
        }
  }
}

}  // namespace
}  // namespace ejk::gemm_test
