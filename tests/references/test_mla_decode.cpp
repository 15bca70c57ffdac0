// The reference of latent attention's decode core: against flash_attention on expanded keys, by hand for bytes and lists, and its own laws.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "reference/element.hpp"
#include "reference/kernels/attention_rules.hpp"
#include "references/samples.hpp"

namespace ejk::reference::mla_decode_test {
namespace {

using Numbers = std::vector<double>;
using Shape = std::vector<std::int64_t>;

HostTensor f32(const std::string& name, Shape shape, const Numbers& values) { return {name, DType::f32, std::move(shape), values}; }
HostTensor i32(const std::string& name, Shape shape, const Numbers& values) { return {name, DType::i32, std::move(shape), values}; }

Values decode(std::vector<HostTensor> inputs, std::map<std::string, spec::Value> attributes = {}) {
  attributes.emplace("softmax_scale", 1.0);
  Call call = make_call(spec_of("mla_decode"), std::move(attributes), std::move(inputs), {"lse"});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

Numbers random_numbers(std::size_t count, std::uint64_t seed) {
  Rng rng(seed);
  Numbers numbers(count);
  for (double& number : numbers) number = static_cast<double>(static_cast<float>(rng.normal()));
  return numbers;
}

// One sequence: Sq 2, Sk 5, H 3; a head has Dn 4 features of its own and Dr 2 of rope; latent rows have 6.
constexpr std::int64_t queries = 2, keys = 5, heads = 3, own = 4, rope = 2, latent = 6;

// The head's matrix [R, Dn] of a weight [R, H, Dn], times a latent row.
double expanded(const Numbers& w, const double* row, std::int64_t h, std::int64_t d) {
  double sum = 0;
  for (std::int64_t r = 0; r < latent; ++r) sum += row[r] * w[at((r * heads + h) * own + d)];
  return sum;
}

TEST(MlaDecode, IsFlashAttentionOnExpandedKeysByAbsorbedQueries) {
  const Numbers q_nope = random_numbers(at(queries * heads * own), 1), q_rope = random_numbers(at(queries * heads * rope), 2);
  const Numbers latents = random_numbers(at(keys * latent), 3), ropes = random_numbers(at(keys * rope), 4);
  const Numbers w_kc = random_numbers(at(latent * heads * own), 5), w_vc = random_numbers(at(latent * heads * own), 6);
  Numbers q, k, v, absorbed;
  for (std::int64_t row = 0; row < queries * heads; ++row) {
    for (std::int64_t d = 0; d < own; ++d) q.push_back(q_nope[at(row * own + d)]);
    for (std::int64_t d = 0; d < rope; ++d) q.push_back(q_rope[at(row * rope + d)]);
    for (std::int64_t r = 0; r < latent; ++r) {
      double sum = 0;
      for (std::int64_t d = 0; d < own; ++d) sum += q_nope[at(row * own + d)] * w_kc[at((r * heads + row % heads) * own + d)];
      absorbed.push_back(sum);
    }
  }
  for (std::int64_t row = 0; row < keys * heads; ++row) {
    const double* from = latents.data() + row / heads * latent;
    for (std::int64_t d = 0; d < own; ++d)
      k.push_back(expanded(w_kc, from, row % heads, d)), v.push_back(expanded(w_vc, from, row % heads, d));
    for (std::int64_t d = 0; d < rope; ++d) k.push_back(ropes[at(row / heads * rope + d)]);
  }
  const double scale = 0.4;
  const Values found = decode({f32("q_latent", {1, queries, heads, latent}, absorbed), f32("q_rope", {1, queries, heads, rope}, q_rope),
                               f32("kv_latent", {1, keys, latent}, latents), f32("k_rope", {1, keys, rope}, ropes)},
                              {{"softmax_scale", scale}});
  const Call flash = make_call(
      spec_of("flash_attention"), {{"softmax_scale", scale}, {"causal", true}},
      {f32("q", {1, queries, heads, own + rope}, q), f32("k", {1, keys, heads, own + rope}, k), f32("v", {1, keys, heads, own}, v)},
      {"lse"});
  const Values expected = compute(flash);
  for (std::int64_t row = 0; row < queries * heads; ++row) {
    EXPECT_NEAR(found.at("lse")[at(row % heads * queries + row / heads)], expected.at("lse")[at(row % heads * queries + row / heads)],
                1e-5);
    for (std::int64_t d = 0; d < own; ++d)
      EXPECT_NEAR(expanded(w_vc, found.at("out").data() + row * latent, row % heads, d), expected.at("out")[at(row * own + d)], 1e-5);
  }
}

// One head, R 1, no rope: equal keys, so that out is the mean of the visible ones' values.
std::vector<HostTensor> means(const Shape& queries_of, const Numbers& cache) {
  const auto rows = static_cast<std::size_t>(queries_of[0] * queries_of[1]);
  return {f32("q_latent", {queries_of[0], queries_of[1], 1, 1}, Numbers(rows, 0)), f32("q_rope", {queries_of[0], queries_of[1], 1, 0}, {}),
          f32("cache", {static_cast<std::int64_t>(cache.size()) / 2, 2, 1}, cache)};
}

TEST(MlaDecode, QueriesAreTheLastTokensAndEarlyOnesMayHaveNone) {
  std::vector<HostTensor> inputs = means({2, 3}, {1, 2, 4, 8, 16, 32, nan, nan});
  inputs.push_back(i32("context_lens", {2}, {5, 1}));
  inputs.push_back(i32("block_tables", {2, 3}, {2, 0, 1, 1, 99, 99}));
  const Values found = decode(inputs);
  const Numbers expected{(16 + 32 + 1) / 3.0, (16 + 32 + 1 + 2) / 4.0, (16 + 32 + 1 + 2 + 4) / 5.0, 0, 0, 4};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.at("out")[i], expected[i], 1e-12) << i;
  EXPECT_NEAR(found.at("lse")[1], std::log(4), 1e-12);
  EXPECT_EQ(found.at("lse")[3], -infinity);
}

TEST(MlaDecode, AListOfSlotsAloneCounts) {
  std::vector<HostTensor> inputs = means({1, 2}, {1, 2, 4, 8, 16, nan});
  inputs.push_back(i32("indices", {1, 2, 4}, {-1, 4, -1, 0, -1, -1, -1, -1}));
  const Values found = decode(inputs);
  EXPECT_NEAR(found.at("out")[0], 8.5, 1e-12);
  EXPECT_EQ(found.at("out")[1], 0);
  EXPECT_EQ(found.at("lse")[1], -infinity);
}

TEST(MlaDecode, BytesAreValuesThenScalesThenRope) {
  // R 256, Dr 1, one slot: 2 in the first 128 features by a scale of 3, 4 in the others by 0.5; rope 1.5.
  Numbers bytes(at(256 + 8 + 2), 0);
  for (std::size_t d = 0; d < 256; ++d) bytes[d] = encode_e4m3(d < 128 ? 2 : 4);
  const auto put = [&](std::size_t place, std::uint32_t bits, int count) {
    for (int i = 0; i < count; ++i) bytes[place++] = static_cast<double>(bits >> (8 * i) & 255);
  };
  put(256, std::bit_cast<std::uint32_t>(3.0F), 4), put(260, std::bit_cast<std::uint32_t>(0.5F), 4), put(264, encode16(1.5, 8, 7), 2);
  const Values found = decode({f32("q_latent", {1, 1, 1, 256}, Numbers(256, 1)), f32("q_rope", {1, 1, 1, 1}, {10}),
                               HostTensor("cache", DType::u8, {1, 1, 266}, bytes), i32("indices", {1, 1, 1}, {0})});
  EXPECT_EQ(found.at("out")[127], 6);
  EXPECT_EQ(found.at("out")[128], 2);
  EXPECT_NEAR(found.at("lse")[0], 128 * 6 + 128 * 2 + 15, 1e-9);
}

TEST(MlaDecode, BadCallsSayWhatIsWrong) {
  const auto message = [](std::vector<HostTensor> inputs, std::map<std::string, spec::Value> attributes = {}) -> std::string {
    try {
      decode(std::move(inputs), std::move(attributes));
      return "no error";
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  EXPECT_NE(message(means({1, 1}, {1, 2})).find("cache needs context_lens and block_tables, or indices"), std::string::npos);
  std::vector<HostTensor> inputs = means({1, 1}, {1, 2});
  inputs.push_back(i32("indices", {1, 1, 3}, {0, -1, 2}));
  EXPECT_NE(message(inputs).find("indices[0, 0, 2] is 2, expected a slot of the cache, 0 to 1, or -1"), std::string::npos)
      << message(inputs);
  inputs.pop_back();
  inputs.push_back(i32("indices", {1, 1, 1}, {0}));
  EXPECT_EQ(message(inputs), "no error");
  EXPECT_NE(message(inputs, {{"softmax_scale", -1.0}}).find("softmax_scale must be finite in f32 and not negative"), std::string::npos);
  EXPECT_NE(message({inputs[0], inputs[1]}).find("keys must be given"), std::string::npos);
}

TEST(MlaDecode, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("mla_decode", 700, 40); }

TEST(MlaDecode, SamplesAreOfTheWhole) {
  Rng rng(5);
  for (std::uint64_t seed = 1; seed < 8; ++seed)
    expect_samples_of_the_whole(make_call(spec_of("mla_decode"), find_reference("mla_decode")->random_case(rng), seed));
}

// A kernel whose early queries see the newest token.
TEST(MlaDecode, AKernelThatSeesAHiddenKeyIsCaught) {
  const Execute careless = [](Call& call) {
    Call longer = call;
    HostTensor& lengths = longer.input("context_lens");
    for (std::int64_t n = 0; n < lengths.elements(); ++n) lengths.set(n, lengths.at(n) + 1);
    const Values found = compute(longer);
    for (HostTensor& output : call.outputs) output.assign(found.at(output.name()));
  };
  spec::Case c;
  c.name = "small", c.types = {{"E", "f32"}, {"C", "f32"}}, c.attributes["softmax_scale"] = 0.1;
  for (const auto& [dim, size] : {std::pair{"N", 2}, {"Sq", 2}, {"H", 2}, {"R", 8}, {"Dr", 4}, {"P", 9}, {"ps", 4}, {"max_pages", 3}})
    c.dims[dim] = std::int64_t{size};
  c.given = {"cache", "context_lens", "block_tables"}, c.fill["context_lens"] = "all 7";
  Call call = make_call(spec_of("mla_decode"), c, 1);
  EXPECT_NE(first_failure(verify_call(*find_reference("mla_decode"), call, careless)), "");
}

}  // namespace
}  // namespace ejk::reference::mla_decode_test
