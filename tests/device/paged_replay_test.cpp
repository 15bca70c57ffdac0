// page_attention in a graph: lengths and page tables change between replays, and no one but the device reads them.
#include <algorithm>
#include <cstring>
#include <random>

#include "device/fixture.hpp"

namespace ejk::paged_replay_test {
namespace {

constexpr std::int64_t sequences = 4, heads = 8, kv_heads = 2, dim = 64, page = 16, columns = 40, pages = 170;
constexpr std::uint16_t poison = 0xffff;  // NaN

// On the project's own kernels; the store is the process's first, so each test needs a process of its own.
class PagedReplay : public DeviceTest {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    Driver::instance().use_on_this_thread();
    const auto added = add_store(source_folder());
    if (!added) GTEST_SKIP() << "needs a process of its own: " << added.error().message;
  }

  static std::vector<std::uint16_t> values(std::int64_t count) {
    std::mt19937 random(7);
    std::vector<std::uint16_t> result(static_cast<std::size_t>(count));
    for (auto& value : result) {
      const float number = std::uniform_real_distribution<float>(-1, 1)(random);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      value = static_cast<std::uint16_t>(bits >> 16);
    }
    return result;
  }

  // Every sequence has its own pages, in an order that `seed` says.
  static std::vector<std::int32_t> tables(unsigned seed) {
    std::vector<std::int32_t> all(pages);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), std::mt19937(seed));
    all.resize(sequences * columns);
    return all;
  }

  static TensorView shaped(const TensorView& flat, std::vector<std::int64_t> shape) {
    TensorView view(flat.data, flat.type, shape);
    view.device = flat.device;
    return view;
  }
};

TEST_F(PagedReplay, HasTheBitsOfACallWithTheseLengths) {
  auto& driver = Driver::instance();
  const OnGpu<std::uint16_t> query(values(sequences * heads * dim)), keys(values(pages * kv_heads * page * dim));
  OnGpu<std::int32_t> lengths(std::vector<std::int32_t>(sequences, 1)), table(tables(0));
  const std::vector<std::uint16_t> poisoned(sequences * heads * dim, poison);
  OnGpu<std::uint16_t> out(poisoned);
  const std::map<std::string, TensorView> tensors = {{"query", shaped(query.view(DType::bf16), {sequences, heads, dim})},
                                                     {"key_cache", shaped(keys.view(DType::bf16), {pages, kv_heads, page, dim})},
                                                     {"value_cache", shaped(keys.view(DType::bf16), {pages, kv_heads, page, dim})},
                                                     {"context_lens", shaped(lengths.view(DType::i32), {sequences})},
                                                     {"block_tables", shaped(table.view(DType::i32), {sequences, columns})},
                                                     {"out", shaped(out.view(DType::bf16), {sequences, heads, dim})}};
  const OwnStream stream;
  driver.begin_capture(stream.handle);
  const auto captured = call("page_attention", tensors, {}, {stream.handle});
  void* graph = driver.end_capture(stream.handle);
  ASSERT_TRUE(captured) << message_of(captured);

  const std::vector<std::vector<std::int32_t>> all = {
      {640, 640, 640, 640}, {1, 0, 640, 17}, {0, 0, 0, 0}, {33, 512, 1, 0}, {640, 640, 640, 640}};
  std::vector<std::uint16_t> previous;
  for (std::size_t i = 0; i < all.size(); ++i) {
    lengths.set(all[i]);
    table.set(tables(static_cast<unsigned>(i)));
    out.set(poisoned);
    driver.launch_graph(graph, stream.handle);
    driver.wait(stream.handle);
    const auto replayed = out.values();
    out.set(poisoned);
    const auto direct = call("page_attention", tensors, {}, {stream.handle});
    ASSERT_TRUE(direct) << message_of(direct);
    driver.wait(stream.handle);
    EXPECT_EQ(out.values(), replayed) << "replay " << i;
    EXPECT_EQ(std::count(replayed.begin(), replayed.end(), poison), 0) << "replay " << i;
    EXPECT_NE(replayed, previous) << "replay " << i;
    previous = replayed;
  }
  driver.free_graph(graph);
}

}  // namespace
}  // namespace ejk::paged_replay_test
