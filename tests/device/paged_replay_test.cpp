// page_attention, ragged_decode_attention and ragged_page_attention in a graph: lengths, bounds and page tables change between replays, and
// no one but the device reads them.
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

  // A captured call, `count` times replayed after change(i), against a call of its own each time.
  template <class Change>
  static void check_replays(const char* kernel, const std::map<std::string, TensorView>& tensors, OnGpu<std::uint16_t>& out,
                            std::size_t count, const Change& change) {
    auto& driver = Driver::instance();
    const OwnStream stream;
    driver.begin_capture(stream.handle);
    const auto captured = call(kernel, tensors, {}, {stream.handle});
    void* graph = driver.end_capture(stream.handle);
    ASSERT_TRUE(captured) << message_of(captured);

    const std::vector<std::uint16_t> poisoned(out.values().size(), poison);
    std::vector<std::uint16_t> previous;
    for (std::size_t i = 0; i < count; ++i) {
      change(i);
      out.set(poisoned);
      driver.launch_graph(graph, stream.handle);
      driver.wait(stream.handle);
      const auto replayed = out.values();
      out.set(poisoned);
      const auto direct = call(kernel, tensors, {}, {stream.handle});
      ASSERT_TRUE(direct) << message_of(direct);
      driver.wait(stream.handle);
      EXPECT_EQ(out.values(), replayed) << "replay " << i;
      EXPECT_EQ(std::count(replayed.begin(), replayed.end(), poison), 0) << "replay " << i;
      EXPECT_NE(replayed, previous) << "replay " << i;
      previous = replayed;
    }
    driver.free_graph(graph);
  }
};

TEST_F(PagedReplay, HasTheBitsOfACallWithTheseLengths) {
  const OnGpu<std::uint16_t> query(values(sequences * heads * dim)), keys(values(pages * kv_heads * page * dim));
  OnGpu<std::int32_t> lengths(std::vector<std::int32_t>(sequences, 1)), table(tables(0));
  OnGpu<std::uint16_t> out(std::vector<std::uint16_t>(sequences * heads * dim, poison));
  const std::map<std::string, TensorView> tensors = {{"query", shaped(query.view(DType::bf16), {sequences, heads, dim})},
                                                     {"key_cache", shaped(keys.view(DType::bf16), {pages, kv_heads, page, dim})},
                                                     {"value_cache", shaped(keys.view(DType::bf16), {pages, kv_heads, page, dim})},
                                                     {"context_lens", shaped(lengths.view(DType::i32), {sequences})},
                                                     {"block_tables", shaped(table.view(DType::i32), {sequences, columns})},
                                                     {"out", shaped(out.view(DType::bf16), {sequences, heads, dim})}};
  const std::vector<std::vector<std::int32_t>> all = {
      {640, 640, 640, 640}, {1, 0, 640, 17}, {0, 0, 0, 0}, {33, 512, 1, 0}, {640, 640, 640, 640}};
  check_replays("page_attention", tensors, out, all.size(), [&](std::size_t i) {
    lengths.set(all[i]);
    table.set(tables(static_cast<unsigned>(i)));
  });
}

TEST_F(PagedReplay, HasTheBitsOfACallWithTheseBounds) {
  constexpr std::int64_t tokens = 640;
  const OnGpu<std::uint16_t> query(values(sequences * heads * dim)), keys(values(sequences * tokens * kv_heads * dim));
  OnGpu<std::int32_t> starts(std::vector<std::int32_t>(sequences, 0)), ends(std::vector<std::int32_t>(sequences, 1));
  OnGpu<std::uint16_t> out(std::vector<std::uint16_t>(sequences * heads * dim, poison));
  const std::map<std::string, TensorView> tensors = {{"query", shaped(query.view(DType::bf16), {sequences, heads, dim})},
                                                     {"key", shaped(keys.view(DType::bf16), {sequences, tokens, kv_heads, dim})},
                                                     {"value", shaped(keys.view(DType::bf16), {sequences, tokens, kv_heads, dim})},
                                                     {"sequence_start", shaped(starts.view(DType::i32), {sequences})},
                                                     {"sequence_end", shaped(ends.view(DType::i32), {sequences})},
                                                     {"out", shaped(out.view(DType::bf16), {sequences, heads, dim})}};
  const std::vector<std::vector<std::int32_t>> firsts = {{0, 0, 0, 0}, {7, 0, 3, 639}, {5, 640, 0, 9}, {0, 100, 15, 16}, {1, 1, 1, 1}};
  const std::vector<std::vector<std::int32_t>> lasts = {
      {640, 640, 640, 640}, {8, 0, 640, 640}, {5, 640, 0, 0}, {33, 612, 17, 600}, {640, 640, 640, 640}};
  check_replays("ragged_decode_attention", tensors, out, firsts.size(), [&](std::size_t i) {
    starts.set(firsts[i]);
    ends.set(lasts[i]);
  });
}

// Prefills and decodes change places, and their number changes.
TEST_F(PagedReplay, HasTheBitsOfACallWithTheseSequences) {
  constexpr std::int64_t tokens = 96;
  const OnGpu<std::uint16_t> queries(values(tokens * heads * dim)), pages_of_all(values(pages * page * 2 * kv_heads * dim));
  OnGpu<std::int32_t> lengths(std::vector<std::int32_t>(sequences, 1)), table(tables(0)),
      starts(std::vector<std::int32_t>(sequences + 1, 0)), count({0});
  OnGpu<std::uint16_t> out(std::vector<std::uint16_t>(tokens * heads * dim, poison));
  const std::map<std::string, TensorView> tensors = {{"queries", shaped(queries.view(DType::bf16), {tokens, heads, dim})},
                                                     {"kv_pages", shaped(pages_of_all.view(DType::bf16), {pages, page, 2 * kv_heads, dim})},
                                                     {"context_lens", shaped(lengths.view(DType::i32), {sequences})},
                                                     {"block_tables", shaped(table.view(DType::i32), {sequences, columns})},
                                                     {"query_start_loc", shaped(starts.view(DType::i32), {sequences + 1})},
                                                     {"num_seqs", shaped(count.view(DType::i32), {1})},
                                                     {"out", shaped(out.view(DType::bf16), {tokens, heads, dim})}};
  constexpr std::int32_t garbage = 0x7fffffff;
  struct Batch {
    std::vector<std::int32_t> starts, lengths;
    std::int32_t count;
  };
  const std::vector<Batch> all = {{{0, 1, 2, 3, 4}, {640, 640, 640, 640}, 4},
                                  {{0, 90, 91, 96, 96}, {600, 1, 17, 640}, 4},
                                  {{0, garbage, garbage, garbage, garbage}, {garbage, garbage, garbage, garbage}, 0},
                                  {{0, 96, garbage, garbage, garbage}, {96, garbage, garbage, garbage}, 1},
                                  {{0, 0, 4, 8, garbage}, {640, 333, 64, garbage}, 3}};
  check_replays("ragged_page_attention", tensors, out, all.size(), [&](std::size_t i) {
    starts.set(all[i].starts);
    lengths.set(all[i].lengths);
    count.set({all[i].count});
    table.set(tables(static_cast<unsigned>(i)));
  });
}

}  // namespace
}  // namespace ejk::paged_replay_test
