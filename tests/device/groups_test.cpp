// Grouped products in a graph: group sizes are read on the device, so a replay does the groups that it finds there.
#include "device/fixture.hpp"

namespace ejk::groups_test {
namespace {

using Sizes = std::vector<std::int32_t>;
constexpr std::int64_t rows = 700, depth = 136, columns = 200, groups = 5;

// -1, 0 or 1 in bf16: products of these are exact in f32.
std::vector<std::uint16_t> signs(std::int64_t count, unsigned seed) {
  static constexpr std::uint16_t values[] = {0xbf80, 0, 0x3f80};
  std::vector<std::uint16_t> list;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    list.push_back(values[(seed >> 16) % 3]);
  }
  return list;
}

float sign_of(std::uint16_t bits) { return bits == 0 ? 0.0f : bits == 0x3f80 ? 1.0f : -1.0f; }

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// On the project's own kernels; the store is the process's first, so each test needs a process of its own.
class Groups : public DeviceTest {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    const auto added = add_store(source_folder());
    if (!added) GTEST_SKIP() << "needs a process of its own: " << added.error().message;
  }

  static TensorView shaped(TensorView view, std::vector<std::int64_t> shape) {
    TensorView result(view.data, view.type, std::move(shape));
    result.device = first_gpu;
    return result;
  }

  // Calls visit(row, group) for every row of a group.
  template <class Visit>
  static void each_row(const Sizes& sizes, Visit visit) {
    std::int64_t row = 0;
    for (std::size_t group = 0; group < sizes.size(); ++group)
      for (std::int32_t i = 0; i < sizes[group] && row < rows; ++i) visit(row++, static_cast<std::int64_t>(group));
  }

  // Captures one call, replays it for each of the sizes, and compares what is in `out` then.
  template <class Expected>
  static void replays(const std::string& kernel, std::map<std::string, TensorView> tensors, OnGpu<float>& out, Expected expected) {
    auto& driver = Driver::instance();
    OnGpu<std::int32_t> sizes(Sizes(groups, 0));
    tensors["group_sizes"] = shaped(sizes.view(DType::i32), {groups});
    const OwnStream stream;
    driver.begin_capture(stream.handle);
    const auto status = call(kernel, tensors, {}, {stream.handle});
    void* graph = driver.end_capture(stream.handle);
    ASSERT_TRUE(status) << message_of(status);
    const auto poison = std::vector<float>(out.values().size(), -7777.0f);
    for (const Sizes& now : {Sizes{140, 140, 140, 140, 140}, Sizes{0, 700, 0, 0, 0}, Sizes{1, 300, 0, 77, 65}, Sizes{0, 0, 0, 0, 0},
                             Sizes{500, 3, 900, 1, 1}}) {
      sizes.set(now);
      out.set(poison);
      driver.launch_graph(graph, stream.handle);
      driver.wait(stream.handle);
      EXPECT_EQ(out.values(), expected(now));
    }
    driver.free_graph(graph);
  }

  const std::vector<std::uint16_t> lhs_values = signs(rows * depth, 1), dout_values = signs(rows * columns, 2),
                                   rhs_values = signs(groups * depth * columns, 3);
  float lhs_at(std::int64_t row, std::int64_t k) const { return sign_of(lhs_values[at(row * depth + k)]); }
};

TEST_F(Groups, AReplayedProductFollowsTheSizes) {
  const OnGpu<std::uint16_t> lhs(lhs_values), rhs(rhs_values);
  OnGpu<float> out(zeros(rows * columns));
  replays("grouped_matmul",
          {{"lhs", shaped(lhs.view(DType::bf16), {rows, depth})},
           {"rhs", shaped(rhs.view(DType::bf16), {groups, depth, columns})},
           {"out", shaped(out.view(), {rows, columns})}},
          out, [&](const Sizes& sizes) {
            auto expected = zeros(rows * columns);
            each_row(sizes, [&](std::int64_t row, std::int64_t group) {
              for (std::int64_t k = 0; k < depth; ++k)
                for (std::int64_t n = 0; n < columns; ++n)
                  expected[at(row * columns + n)] += lhs_at(row, k) * sign_of(rhs_values[at((group * depth + k) * columns + n)]);
            });
            return expected;
          });
}

TEST_F(Groups, AReplayedGradientFollowsTheSizes) {
  const OnGpu<std::uint16_t> lhs(lhs_values), dout(dout_values);
  OnGpu<float> out(zeros(groups * depth * columns));
  replays("tgmm",
          {{"lhs", shaped(lhs.view(DType::bf16), {rows, depth})},
           {"dout", shaped(dout.view(DType::bf16), {rows, columns})},
           {"out", shaped(out.view(), {groups, depth, columns})}},
          out, [&](const Sizes& sizes) {
            auto expected = zeros(groups * depth * columns);
            each_row(sizes, [&](std::int64_t row, std::int64_t group) {
              for (std::int64_t k = 0; k < depth; ++k)
                for (std::int64_t n = 0; n < columns; ++n)
                  expected[at((group * depth + k) * columns + n)] += lhs_at(row, k) * sign_of(dout_values[at(row * columns + n)]);
            });
            return expected;
          });
}

}  // namespace
}  // namespace ejk::groups_test
