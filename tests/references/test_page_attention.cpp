// The page attention reference against hand-computed numbers, and the data of paged caches.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "references/calls.hpp"

namespace ejk::reference::page_attention_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;
constexpr double garbage = 1'000'000'007;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

// One head, D = 1, scale 1, four pages of two tokens: equal keys, so that out is the mean of the visible values.
std::vector<HostTensor> cache_of(const Numbers& lengths, const Numbers& table, const Numbers& values) {
  const auto count = static_cast<std::int64_t>(lengths.size()), columns = static_cast<std::int64_t>(table.size()) / count;
  return {f32("query", {count, 1, 1}, Numbers(lengths.size(), 1)), f32("key_cache", {4, 1, 2, 1}, Numbers(8, 0)),
          f32("value_cache", {4, 1, 2, 1}, values), HostTensor("context_lens", DType::i32, {count}, lengths),
          HostTensor("block_tables", DType::i32, {count, columns}, table)};
}

Values attention(Attributes attributes, std::vector<HostTensor> inputs, std::vector<HostTensor> more = {}) {
  for (HostTensor& tensor : more) inputs.push_back(std::move(tensor));
  attributes.emplace("softmax_scale", 1.0);
  Call call = make_call(spec_of("page_attention"), std::move(attributes), std::move(inputs), {"lse"});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

const Numbers values{1, 2, 4, 8, 16, 32, 64, nan};

TEST(PageAttention, TokensAreFoundThroughTheTable) {
  const Values found = attention({}, cache_of({3, 0, 4}, {2, 0, garbage, -garbage, 1, 2}, values));
  EXPECT_NEAR(found.at("out")[0], (16 + 32 + 1) / 3.0, 1e-12);
  EXPECT_EQ(found.at("out")[1], 0);
  EXPECT_NEAR(found.at("out")[2], (4 + 8 + 16 + 32) / 4.0, 1e-12);
  EXPECT_NEAR(found.at("lse")[0], std::log(3), 1e-12);
  EXPECT_EQ(found.at("lse")[1], -infinity);
}

TEST(PageAttention, AWindowLeavesTheLastTokensAndItsPagesTable) {
  const Attributes window{{"window_left", std::int64_t{1}}};
  EXPECT_NEAR(attention(window, cache_of({4}, {garbage, 1}, values)).at("out")[0], 6, 1e-12);
  EXPECT_NEAR(attention({{"window_left", std::int64_t{0}}}, cache_of({3}, {garbage, 2}, values)).at("out")[0], 16, 1e-12);
  EXPECT_NEAR(attention(window, cache_of({3}, {0, 3}, values)).at("out")[0], (2 + 64) / 2.0, 1e-12);
  EXPECT_NEAR(attention({{"window_left", std::numeric_limits<std::int64_t>::max()}}, cache_of({2}, {0, garbage}, values)).at("out")[0], 1.5,
              1e-12);
}

TEST(PageAttention, ScalesMultiplyKeysAndValues) {
  auto inputs = cache_of({2}, {0, garbage}, values);
  inputs[1].assign(Numbers{0, 2, 0, 0, 0, 0, 0, 0});
  const Values found = attention({}, inputs, {f32("k_scale", {1}, {0.5}), f32("v_scale", {1}, {10})});
  EXPECT_NEAR(found.at("out")[0], 10 * (1 + 2 * std::exp(1)) / (1 + std::exp(1)), 1e-9);
  EXPECT_NEAR(found.at("lse")[0], std::log(1 + std::exp(1)), 1e-9);
}

TEST(PageAttention, SinksTakeWeightAndAreAllThatAnEmptySequenceHas) {
  const Values found = attention({}, cache_of({1, 0}, {1, 0, 0, 0}, values), {f32("softmax_aux", {1, 1}, {std::log(3)})});
  EXPECT_NEAR(found.at("out")[0], 1, 1e-6);
  EXPECT_NEAR(found.at("lse")[0], std::log(4), 1e-6);
  EXPECT_EQ(found.at("out")[1], 0);
  EXPECT_NEAR(found.at("lse")[1], std::log(3), 1e-6);
}

TEST(PageAttention, LayoutsHoldTheSameTokens) {
  // Two heads: token t of page 0 has value 10 * head + t.
  const auto of = [](std::vector<std::int64_t> shape, const Numbers& v, const char* layout) {
    std::vector<HostTensor> inputs{f32("query", {1, 2, 1}, {0, 0}), f32("key_cache", shape, {0, 0, 0, 0}), f32("value_cache", shape, v),
                                   HostTensor("context_lens", DType::i32, {1}, Numbers{2}),
                                   HostTensor("block_tables", DType::i32, {1, 1}, Numbers{0})};
    return attention({{"layout", std::string(layout)}}, inputs).at("out");
  };
  EXPECT_EQ(of({1, 2, 2, 1}, {0, 1, 10, 11}, "HND"), (Numbers{0.5, 10.5}));
  EXPECT_EQ(of({1, 2, 2, 1}, {0, 10, 1, 11}, "NHD"), (Numbers{0.5, 10.5}));
}

spec::Case small_case(const std::string& lengths) {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", "f32"}, {"C", "f32"}};
  for (const auto& [dim, size] : {std::pair{"N", 3}, {"Hq", 2}, {"Hkv", 2}, {"D", 4}, {"P", 20}, {"ps", 4}, {"max_pages", 5}})
    c.dims[dim] = std::int64_t{size};
  if (!lengths.empty()) c.fill["context_lens"] = lengths;
  return c;
}

TEST(PagedData, EverySequenceHasPagesOfItsOwnAndTheRestIsSpoiled) {
  bool empty = false, full = false;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Call call = make_call(spec_of("page_attention"), small_case(""), seed);
    const Numbers lengths = call.input("context_lens").values(), table = call.input("block_tables").values();
    std::set<double> pages;
    std::size_t used = 0;
    double tokens = 0;
    for (std::size_t n = 0; n < 3; ++n) {
      ASSERT_TRUE(lengths[n] >= 0 && lengths[n] <= 20);
      tokens += lengths[n];
      empty = empty || lengths[n] == 0, full = full || lengths[n] == 20;
      for (std::size_t column = 0; column < 5; ++column) {
        const double entry = table[n * 5 + column];
        if (static_cast<double>(column) * 4 < lengths[n]) {
          ASSERT_TRUE(entry >= 0 && entry < 20);
          pages.insert(entry), ++used;
        } else {
          ASSERT_TRUE(std::fabs(entry) > 1e9);
        }
      }
    }
    EXPECT_EQ(pages.size(), used) << "a page has two owners, though there are enough";
    const Numbers keys = call.input("key_cache").values();
    EXPECT_EQ(std::count_if(keys.begin(), keys.end(), [](double key) { return !std::isnan(key); }),
              static_cast<std::ptrdiff_t>(tokens) * 2 * 4);
  }
  EXPECT_TRUE(empty && full);
}

TEST(PagedData, ACaseChoosesLengthsAndTooFewPagesAreShared) {
  spec::Case c = small_case("all 2 * ps");
  EXPECT_EQ(make_call(spec_of("page_attention"), c, 1).input("context_lens").values(), (Numbers{8, 8, 8}));
  c.dims["P"] = std::int64_t{2};
  const Call call = make_call(spec_of("page_attention"), c, 1);
  spec::check_live_requirements(call.binding);  // every entry in use is a page
  c.fill["context_lens"] = "lengths 3 to 5";
  for (const double length : make_call(spec_of("page_attention"), c, 1).input("context_lens").values())
    EXPECT_TRUE(length >= 3 && length <= 5);
}

TEST(PagedData, QuantisedCachesHaveLargeNumbersAndSmallScales) {
  spec::Case c = small_case("all 20");
  c.given = {"k_scale"};
  for (const char* type : {"i8", "f8_e4m3"}) {
    c.types["C"] = type;
    const Call call = make_call(spec_of("page_attention"), c, 1);
    double squares = 0, count = 0;
    for (const double key : call.input("key_cache").values())
      if (!std::isnan(key) && key != -128) squares += key * key, ++count;
    EXPECT_NEAR(std::sqrt(squares / count), 24, 3) << type;
    for (const double scale : call.input("k_scale").values()) EXPECT_TRUE(scale >= 1 / 48.0 && scale <= 3 / 48.0);
  }
}

TEST(PageAttention, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("page_attention", 400, 40); }

// A kernel that reads whole pages, past the end of a sequence.
TEST(PageAttention, AKernelThatReadsPastTheEndIsCaught) {
  const Execute careless = [](Call& call) {
    Call longer = call;
    HostTensor& lengths = longer.input("context_lens");
    for (std::int64_t n = 0; n < lengths.elements(); ++n) lengths.set(n, std::ceil(lengths.at(n) / 4) * 4);
    const Values found = compute(longer);
    for (HostTensor& output : call.outputs) output.assign(found.at(output.name()));
  };
  Call call = make_call(spec_of("page_attention"), small_case("all 7"), 1);
  EXPECT_NE(first_failure(verify_call(*find_reference("page_attention"), call, careless)), "");
}

}  // namespace
}  // namespace ejk::reference::page_attention_test
