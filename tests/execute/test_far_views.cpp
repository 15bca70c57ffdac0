// Views that reach further than 32 bits count: rows more than 2^31 elements apart, and caches and broadcast views of more than 2^31
// elements, on the CPU and on the emulator's GPUs of both makers. tests/device/far_views_test.cpp has CUDA's.
#include <sys/mman.h>

#include <cstring>
#include <limits>

#include "emulator/sanitizer.hpp"
#include "emulator/simt.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk::far_views_test {
namespace {

constexpr std::int64_t far = (std::int64_t{1} << 31) + 16;  // elements
constexpr Device cpu{}, nvidia{DeviceType::extension, 0}, amd{DeviceType::extension, 1};
constexpr const char* warp = simt::sanitized ? "warp32_sanitized" : "warp32";

// Where a call runs, and by which variant; without one by that of the heuristic.
struct Way {
  Device device;
  const char* variant = nullptr;
  std::optional<Config> config() const {
    if (!variant) return std::nullopt;
    return Config{variant, device.type == DeviceType::cpu ? "generic" : warp, {}};
  }
};

// Address space of which only touched pages take memory.
class Space {
 public:
  explicit Space(std::int64_t elements) : bytes_(static_cast<std::size_t>(elements) * sizeof(float)) {
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory = at == MAP_FAILED ? nullptr : static_cast<float*>(at);
  }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space() {
    if (memory) munmap(memory, bytes_);
  }
  float* memory = nullptr;

 private:
  std::size_t bytes_;
};

class FarViews : public StoreTest {
 protected:
  FarViews() {
    add_backend(simt_backend());
    EXPECT_TRUE(add_store(test::source_dir()));
  }
  static std::string failure(const std::string& kernel, std::map<std::string, TensorView> views, const Way& way) {
    for (auto& [name, view] : views) view.device = way.device;
    const auto config = way.config();
    return message_of(call(kernel, views, {}, {}, config ? &*config : nullptr));
  }
};

TEST_F(FarViews, OfMeanPooling) {
  Space x(4 * far), out(2 * far);
  if (!x.memory || !out.memory) GTEST_SKIP() << "no address space of 50 GB here";
  const TensorView x_view(x.memory, DType::f32, std::vector<std::int64_t>{2, 3, 6}, std::vector<std::int64_t>{far - 8, far, 1});
  const TensorView out_view(out.memory, DType::f32, std::vector<std::int64_t>{2, 6}, std::vector<std::int64_t>{far, 1});
  for (int b = 0; b < 2; ++b)
    for (int s = 0; s < 3; ++s)
      for (int c = 0; c < 6; ++c) x.memory[b * (far - 8) + s * far + c] = static_cast<float>(100 * b + 10 * s + c);
  for (const Way& way : {Way{cpu, "strided"}, Way{nvidia}, Way{nvidia, "gpu_strided"}, Way{amd}}) {
    for (int b = 0; b < 2; ++b) std::fill_n(out.memory + b * far, 6, 0.0f);
    ASSERT_EQ(failure("mean_pooling", {{"x", x_view}, {"out", out_view}}, way), "");
    for (int b = 0; b < 2; ++b)
      for (int c = 0; c < 6; ++c) EXPECT_NEAR(out.memory[b * far + c], 100 * b + 10 + c, 1e-4) << b << c;
  }
}

TEST_F(FarViews, OfFlashAttention) {
  constexpr std::int64_t tokens = 3, depth = 16;
  Space q(tokens * far), k(tokens * far), v(tokens * far), out(tokens * far);
  if (!q.memory || !k.memory || !v.memory || !out.memory) GTEST_SKIP() << "no address space of 100 GB here";
  std::vector<float> near_memory(4 * tokens * depth);
  std::map<std::string, TensorView> far_views, near_views;
  const char* names[] = {"q", "k", "v", "out"};
  float* const memories[] = {q.memory, k.memory, v.memory, out.memory};
  for (int i = 0; i < 4; ++i) {
    auto* const close = near_memory.data() + i * tokens * depth;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t d = 0; d < depth; ++d)
        memories[i][t * far + d] = close[t * depth + d] = static_cast<float>((7 * i + 3 * t + 5 * d) % 11) / 11 - 0.5f;
    const std::vector<std::int64_t> shape{1, tokens, 1, depth};
    near_views.emplace(names[i], TensorView(close, DType::f32, std::span<const std::int64_t>(shape)));
    far_views.emplace(names[i], TensorView(memories[i], DType::f32, shape, std::vector<std::int64_t>{tokens * far, far, depth, 1}));
  }
  for (const Way& way : {Way{cpu, "plain"}, Way{cpu, "tiled"}, Way{nvidia}, Way{nvidia, "gpu_plain"}, Way{amd}}) {
    for (std::int64_t t = 0; t < tokens; ++t) std::fill_n(out.memory + t * far, depth, 0.0f);
    ASSERT_EQ(failure("flash_attention", near_views, way), "");
    ASSERT_EQ(failure("flash_attention", far_views, way), "");
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t d = 0; d < depth; ++d)
        EXPECT_NEAR(out.memory[t * far + d], near_memory[static_cast<std::size_t>((3 * tokens + t) * depth + d)], 1e-5);
  }
}

TEST_F(FarViews, ThatAreBroadcastToMoreThan2To31Elements) {
  constexpr std::int64_t features = 256, tokens = far / features + 1;
  std::vector<float> x(features, 1), out(features, std::numeric_limits<float>::quiet_NaN());  // sums up to 2^24 are exact
  const TensorView x_view(x.data(), DType::f32, std::vector<std::int64_t>{1, tokens, features}, std::vector<std::int64_t>{0, 0, 1});
  const TensorView out_view(out.data(), DType::f32, {1, features});
  ASSERT_EQ(message_of(call("mean_pooling", {{"x", x_view}, {"out", out_view}}, {})), "");
  for (const float each : out) EXPECT_NEAR(each, 1, 1e-6);
}

// A paged cache of more than 2^31 elements, of which few pages are in use, against the same pages in a small one.
class FarPages : public FarViews {
 protected:
  static constexpr std::int64_t heads = 2, tokens = 16, depth = 64, page = heads * tokens * depth, many = far / page + 2;
  static constexpr std::int64_t used[] = {many - 1, 0, many / 2 + 1, many - 2};

  // What page `number` of the small cache has; in bf16.
  static void fill(std::uint16_t* memory, int number, int salt) {
    for (std::int64_t i = 0; i < page; ++i) {
      const float value = static_cast<float>((number * 31 + salt + i * 7) % 23) / 16 - 0.5f;
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      memory[i] = static_cast<std::uint16_t>(bits >> 16);
    }
  }

  // The bits of out for a cache of `pages` pages, each `step` elements after the other; table: of two sequences of 40 and 7 tokens.
  static std::vector<std::uint16_t> out_of(std::uint16_t* keys, std::uint16_t* values, std::int64_t pages, std::int64_t step,
                                           std::vector<std::int32_t> table, const Way& way) {
    std::vector<std::uint16_t> query(2 * heads * depth), out(query.size(), 0x7fc0);
    for (std::size_t i = 0; i < query.size(); ++i) query[i] = i % 3 ? 0x3f00 : 0xbe80;  // 0.5 and -0.25
    std::vector<std::int32_t> lengths{40, 7};
    const auto cache = [&](std::uint16_t* memory) {
      return TensorView(memory, DType::bf16, std::vector<std::int64_t>{pages, heads, tokens, depth},
                        std::vector<std::int64_t>{step, tokens * depth, depth, 1});
    };
    EXPECT_EQ(failure("page_attention",
                      {{"query", TensorView(query.data(), DType::bf16, {2, heads, depth})},
                       {"key_cache", cache(keys)},
                       {"value_cache", cache(values)},
                       {"context_lens", TensorView(lengths.data(), DType::i32, {2})},
                       {"block_tables", TensorView(table.data(), DType::i32, {2, 3})},
                       {"out", TensorView(out.data(), DType::bf16, {2, heads, depth})}},
                      way),
              "");
    return out;
  }
  static std::vector<Way> ways() { return {Way{cpu, "split"}, Way{cpu, "plain"}, Way{nvidia}, Way{nvidia, "gpu_plain"}, Way{amd}}; }
};

TEST_F(FarPages, BehindMoreThan2To31Elements) {
  Space keys(many * page / 2), values(many * page / 2);  // floats
  if (!keys.memory || !values.memory) GTEST_SKIP() << "no address space of 9 GB here";
  auto *const far_keys = reinterpret_cast<std::uint16_t*>(keys.memory), *const far_values = reinterpret_cast<std::uint16_t*>(values.memory);
  std::vector<std::uint16_t> near_keys(4 * page), near_values(4 * page);
  for (int i = 0; i < 4; ++i) {
    fill(near_keys.data() + i * page, i, 1), fill(near_values.data() + i * page, i, 2);
    fill(far_keys + used[i] * page, i, 1), fill(far_values + used[i] * page, i, 2);
  }
  std::vector<std::int32_t> table{0, 1, 2, 3, 0, 0}, far_table;
  for (const auto number : table) far_table.push_back(static_cast<std::int32_t>(used[number]));
  for (const Way& way : ways()) {
    const auto expected = out_of(near_keys.data(), near_values.data(), 4, page, table, way);
    EXPECT_EQ(out_of(far_keys, far_values, many, page, far_table, way), expected);
    EXPECT_NE(expected[0], 0x7fc0);
  }
}

TEST_F(FarPages, ThatAreOnePageBroadcastToMoreThan2To31Elements) {
  std::vector<std::uint16_t> keys(page), values(page);
  fill(keys.data(), 0, 1), fill(values.data(), 0, 2);
  std::vector<std::int32_t> far_table;
  for (const auto number : {0, 1, 2, 3, 0, 0}) far_table.push_back(static_cast<std::int32_t>(used[number]));
  for (const Way& way : ways()) {
    const auto expected = out_of(keys.data(), values.data(), 1, page, {0, 0, 0, 0, 0, 0}, way);
    EXPECT_EQ(out_of(keys.data(), values.data(), many, 0, far_table, way), expected);
  }
}

// Caches in one piece, of two rows of five tokens, whose rows or tokens are far apart, against the same close together.
class FarTokens : public FarPages {
 protected:
  static constexpr std::int64_t rows = 2, row_tokens = 5, token = heads * depth;
  struct Steps {
    std::int64_t row, token;
  };

  static std::int64_t place(const Steps& steps, std::int64_t i) {
    return i / (row_tokens * token) * steps.row + i / token % row_tokens * steps.token + i % token;
  }

  // The bits of out: sequences of the tokens 1 to 4 and 0 to 2.
  static std::vector<std::uint16_t> out_of(std::uint16_t* keys, std::uint16_t* values, const Steps& steps, const Way& way) {
    std::vector<std::uint16_t> query(rows * token), out(query.size(), 0x7fc0);
    for (std::size_t i = 0; i < query.size(); ++i) query[i] = i % 3 ? 0x3f00 : 0xbe80;  // 0.5 and -0.25
    std::vector<std::int32_t> starts{1, 0}, ends{5, 3};
    const auto cache = [&](std::uint16_t* memory) {
      return TensorView(memory, DType::bf16, std::vector<std::int64_t>{rows, row_tokens, heads, depth},
                        std::vector<std::int64_t>{steps.row, steps.token, depth, 1});
    };
    EXPECT_EQ(failure("ragged_decode_attention",
                      {{"query", TensorView(query.data(), DType::bf16, {rows, heads, depth})},
                       {"key", cache(keys)},
                       {"value", cache(values)},
                       {"sequence_start", TensorView(starts.data(), DType::i32, {rows})},
                       {"sequence_end", TensorView(ends.data(), DType::i32, {rows})},
                       {"out", TensorView(out.data(), DType::bf16, {rows, heads, depth})}},
                      way),
              "");
    return out;
  }
};

TEST_F(FarTokens, AreFoundMoreThan2To31ElementsApart) {
  constexpr Steps close{row_tokens * token, token};
  std::vector<std::uint16_t> near_keys(2 * page), near_values(2 * page);
  fill(near_keys.data(), 0, 1), fill(near_values.data(), 0, 2);
  for (const Steps& steps : {Steps{far, token}, Steps{token, far / 4 / 8 * 8 + 8}}) {
    Space keys(far), values(far);  // floats
    if (!keys.memory || !values.memory) GTEST_SKIP() << "no address space of 17 GB here";
    auto *const far_keys = reinterpret_cast<std::uint16_t*>(keys.memory), *const far_values =
                                                                              reinterpret_cast<std::uint16_t*>(values.memory);
    for (std::int64_t i = 0; i < rows * row_tokens * token; ++i) {
      far_keys[place(steps, i)] = near_keys[static_cast<std::size_t>(i)];
      far_values[place(steps, i)] = near_values[static_cast<std::size_t>(i)];
    }
    for (const Way& way : ways()) {
      const auto expected = out_of(near_keys.data(), near_values.data(), close, way);
      EXPECT_EQ(out_of(far_keys, far_values, steps, way), expected);
      EXPECT_NE(expected[0], 0x7fc0);
    }
  }
}

}  // namespace
}  // namespace ejk::far_views_test
