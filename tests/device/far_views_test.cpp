// Views that reach further than 32 bits count, on the device: rows more than 2^31 elements apart, and broadcast views of more than 2^31
// elements.
#include <cmath>

#include "device/fixture.hpp"

namespace ejk::far_views_test {
namespace {

constexpr std::int64_t far = (std::int64_t{1} << 31) + 16;                             // elements
constexpr std::uint16_t one = 0x3f80, two = 0x4000, three = 0x4040, nothing = 0x7fc0;  // bf16

// On the project's own kernels; the store is the process's first, so each test needs a process of its own.
class FarViews : public DeviceTest {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    const auto added = add_store(source_folder());
    if (!added) GTEST_SKIP() << "needs a process of its own: " << added.error().message;
  }
  static TensorView placed(const TensorView& memory, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
    TensorView view(memory.data, memory.type, std::move(shape), std::move(strides));
    view.device = first_gpu;
    return view;
  }
};

TEST_F(FarViews, RowsMoreThan2To31ElementsApart) {
  auto& driver = Driver::instance();
  constexpr std::int64_t features = 8;
  void* memory = nullptr;
  try {
    memory = driver.allocate((far + features) * sizeof(std::uint16_t));
  } catch (const std::runtime_error& error) {
    GTEST_SKIP() << "no 4 GB here: " << error.what();
  }
  const std::vector<std::uint16_t> first(features, one), second(features, three);
  driver.to_device(memory, first.data(), features * sizeof(std::uint16_t));
  driver.to_device(static_cast<std::uint16_t*>(memory) + far, second.data(), features * sizeof(std::uint16_t));
  driver.wait();
  const OnGpu<std::uint16_t> out(std::vector<std::uint16_t>(features, nothing));
  const TensorView x(memory, DType::bf16, {far + features});
  const auto status =
      call("mean_pooling",
           {{"x", placed(x, {1, 2, features}, {0, far, 1})}, {"out", placed(out.view(DType::bf16), {1, features}, {features, 1})}}, {});
  ASSERT_TRUE(status) << message_of(status);
  driver.wait();
  EXPECT_EQ(out.values(), std::vector<std::uint16_t>(features, two));
  driver.free(memory);
}

TEST_F(FarViews, BroadcastToMoreThan2To31Elements) {
  constexpr std::int64_t features = 256, tokens = far / features + 1;
  const OnGpu<float> x(std::vector<float>(features, 1)), out(std::vector<float>(features, NAN));
  const auto status =
      call("mean_pooling",
           {{"x", placed(x.view(), {1, tokens, features}, {0, 0, 1})}, {"out", placed(out.view(), {1, features}, {features, 1})}}, {});
  ASSERT_TRUE(status) << message_of(status);
  Driver::instance().wait();
  for (const float each : out.values()) EXPECT_NEAR(each, 1, 1e-5);
}

// One page in the place of a million, of which a sequence names the last.
TEST_F(FarViews, PagesBroadcastToMoreThan2To31Elements) {
  constexpr std::int64_t heads = 2, tokens = 16, depth = 64, page = heads * tokens * depth, pages = far / page + 2;
  const OnGpu<std::uint16_t> query(std::vector<std::uint16_t>(heads * depth, one)), out(std::vector<std::uint16_t>(heads * depth, nothing));
  const OnGpu<std::uint16_t> keys(std::vector<std::uint16_t>(page, one)), values(std::vector<std::uint16_t>(page, three));
  const OnGpu<std::int32_t> lengths({40}), table({pages - 1, pages / 2 + 1, pages - 2});
  const auto cache = [&](const OnGpu<std::uint16_t>& memory) {
    return placed(memory.view(DType::bf16), {pages, heads, tokens, depth}, {0, tokens * depth, depth, 1});
  };
  const auto status = call("page_attention",
                           {{"query", placed(query.view(DType::bf16), {1, heads, depth}, {heads * depth, depth, 1})},
                            {"key_cache", cache(keys)},
                            {"value_cache", cache(values)},
                            {"context_lens", placed(lengths.view(DType::i32), {1}, {1})},
                            {"block_tables", placed(table.view(DType::i32), {1, 3}, {3, 1})},
                            {"out", placed(out.view(DType::bf16), {1, heads, depth}, {heads * depth, depth, 1})}},
                           {});
  ASSERT_TRUE(status) << message_of(status);
  Driver::instance().wait();
  EXPECT_EQ(out.values(), std::vector<std::uint16_t>(heads * depth, three));
}

}  // namespace
}  // namespace ejk::far_views_test
