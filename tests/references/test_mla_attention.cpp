// The reference of latent attention: against flash_attention on expanded keys, mla_decode on absorbed queries, the paged form against the
// dense one, and its own laws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/kernels/attention_rules.hpp"
#include "references/samples.hpp"

namespace ejk::reference::mla_attention_test {
namespace {

using Numbers = std::vector<double>;
using Shape = std::vector<std::int64_t>;

HostTensor f32(const std::string& name, Shape shape, const Numbers& values) { return {name, DType::f32, std::move(shape), values}; }
HostTensor i32(const std::string& name, Shape shape, const Numbers& values) { return {name, DType::i32, std::move(shape), values}; }

// One sequence: Sq 3, Sk 5, H 2; a head has Dn 4 and Dv 3; Dr 2; R 6.
constexpr std::int64_t queries = 3, keys = 5, heads = 2, own = 4, rope = 2, latent = 6, value = 3;

Numbers random_numbers(std::int64_t count, std::uint64_t seed) {
  Rng rng(seed);
  Numbers numbers(at(count));
  for (double& number : numbers) number = static_cast<double>(static_cast<float>(rng.normal()));
  return numbers;
}

struct Parts {
  Numbers q_nope = random_numbers(queries * heads * own, 1), q_rope = random_numbers(queries * heads * rope, 2);
  Numbers latents = random_numbers(keys * latent, 3), ropes = random_numbers(keys * rope, 4);
  Numbers w_kc = random_numbers(latent * heads * own, 5), w_vc = random_numbers(latent * heads * value, 6);

  // Feature d of the head's row that `w`, [R, H, features], makes of a latent row.
  static double made(const Numbers& w, const double* row, std::int64_t h, std::int64_t d, std::int64_t features) {
    double sum = 0;
    for (std::int64_t r = 0; r < latent; ++r) sum += row[r] * w[at((r * heads + h) * features + d)];
    return sum;
  }
  std::vector<HostTensor> dense() const {
    return {f32("q_nope", {1, queries, heads, own}, q_nope), f32("q_rope", {1, queries, heads, rope}, q_rope),
            f32("kv_latent", {1, keys, latent}, latents),    f32("k_rope", {1, keys, rope}, ropes),
            f32("w_kc", {latent, heads, own}, w_kc),         f32("w_vc", {latent, heads, value}, w_vc)};
  }
};

Values attend(std::vector<HostTensor> inputs, std::map<std::string, spec::Value> attributes = {}) {
  Call call = make_call(spec_of("mla_attention"), std::move(attributes), std::move(inputs), {"lse"});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

void expect_near(const Numbers& found, const Numbers& expected, double tolerance = 1e-5) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // also infinity
    EXPECT_NEAR(found[i], expected[i], tolerance) << i;
  }
}

TEST(MlaAttention, IsFlashAttentionOnExpandedKeys) {
  const Parts parts;
  Numbers q, k, v;
  for (std::int64_t row = 0; row < queries * heads; ++row) {
    q.insert(q.end(), parts.q_nope.begin() + row * own, parts.q_nope.begin() + (row + 1) * own);
    q.insert(q.end(), parts.q_rope.begin() + row * rope, parts.q_rope.begin() + (row + 1) * rope);
  }
  for (std::int64_t row = 0; row < keys * heads; ++row) {
    const double* from = parts.latents.data() + row / heads * latent;
    for (std::int64_t d = 0; d < own; ++d) k.push_back(Parts::made(parts.w_kc, from, row % heads, d, own));
    for (std::int64_t d = 0; d < rope; ++d) k.push_back(parts.ropes[at(row / heads * rope + d)]);
    for (std::int64_t d = 0; d < value; ++d) v.push_back(Parts::made(parts.w_vc, from, row % heads, d, value));
  }
  const std::vector<std::map<std::string, spec::Value>> options{{},
                                                                {{"causal", true}},
                                                                {{"causal", true}, {"causal_offset", std::int64_t{0}}},
                                                                {{"window_left", std::int64_t{1}}, {"window_right", std::int64_t{0}}},
                                                                {{"logits_soft_cap", 0.7}, {"softmax_scale", 0.9}}};
  for (const auto& attributes : options)
    for (const bool segmented : {false, true}) {
      std::vector<HostTensor> inputs = parts.dense(),
                              flash{f32("q", {1, queries, heads, own + rope}, q), f32("k", {1, keys, heads, own + rope}, k),
                                    f32("v", {1, keys, heads, value}, v)};
      for (std::vector<HostTensor>* each : {&inputs, &flash}) {
        if (!segmented) continue;
        each->push_back(i32("q_segment_ids", {1, queries}, {0, 1, -1}));
        each->push_back(i32("kv_segment_ids", {1, keys}, {0, 0, 1, -1, 1}));
      }
      const Values found = attend(inputs, attributes),
                   expected = compute(make_call(spec_of("flash_attention"), attributes, flash, {"lse"}));
      expect_near(found.at("out"), expected.at("out"));
      expect_near(found.at("lse"), expected.at("lse"));
    }
}

TEST(MlaAttention, IsMlaDecodeBetweenTwoProducts) {
  const Parts parts;
  Numbers absorbed;
  for (std::int64_t row = 0; row < queries * heads; ++row)
    for (std::int64_t r = 0; r < latent; ++r) {
      double sum = 0;
      for (std::int64_t d = 0; d < own; ++d) sum += parts.q_nope[at(row * own + d)] * parts.w_kc[at((r * heads + row % heads) * own + d)];
      absorbed.push_back(sum);
    }
  const double scale = 1 / std::sqrt(static_cast<double>(own + rope));  // the default
  const Values core = compute(make_call(spec_of("mla_decode"), {{"softmax_scale", scale}},
                                        {f32("q_latent", {1, queries, heads, latent}, absorbed), parts.dense()[1],
                                         f32("kv_latent", {1, keys, latent}, parts.latents), f32("k_rope", {1, keys, rope}, parts.ropes)},
                                        {"lse"}));
  const Values found = attend(parts.dense(), {{"causal", true}});
  Numbers out;
  for (std::int64_t row = 0; row < queries * heads; ++row)
    for (std::int64_t d = 0; d < value; ++d)
      out.push_back(Parts::made(parts.w_vc, core.at("out").data() + row * latent, row % heads, d, value));
  expect_near(found.at("out"), out);
  expect_near(found.at("lse"), core.at("lse"));
}

// Sequences of 0, 3 and 5 tokens in pages of 2; what no sequence has is NaN.
TEST(MlaAttention, APagedQueryIsTheLastOfItsSequence) {
  const Parts parts;
  const std::vector<std::int64_t> lengths{0, 3, 5};
  const Numbers table{9, 9, 9, 4, 1, 9, 0, 2, 3};
  Numbers cache(at(5 * 2 * (latent + rope)), nan);
  for (std::int64_t n = 0; n < 3; ++n)
    for (std::int64_t t = 0; t < lengths[at(n)]; ++t) {
      double* to = cache.data() + (static_cast<std::int64_t>(table[at(n * 3 + t / 2)]) * 2 + t % 2) * (latent + rope);
      std::copy_n(parts.latents.begin() + t * latent, latent, to);
      std::copy_n(parts.ropes.begin() + t * rope, rope, to + latent);
    }
  for (const std::int64_t left : {-1, 0, 1}) {
    const Values found = attend(
        {f32("q_nope", {3, heads, own}, parts.q_nope), f32("q_rope", {3, heads, rope}, parts.q_rope), parts.dense()[4], parts.dense()[5],
         f32("cache", {5, 2, latent + rope}, cache), i32("context_lens", {3}, {0, 3, 5}), i32("block_tables", {3, 3}, table)},
        {{"window_left", left}});
    for (std::int64_t n = 0; n < 3; ++n) {
      const auto part = [&](const Numbers& all, std::int64_t size, std::int64_t first) {
        return Numbers(all.begin() + first * size, all.begin() + (first + 1) * size);
      };
      const auto head_of = [](const Numbers& all, std::int64_t count) { return Numbers(all.begin(), all.begin() + count); };
      const std::int64_t tokens = lengths[at(n)];
      const Values expected =
          attend({f32("q_nope", {1, 1, heads, own}, part(parts.q_nope, heads * own, n)),
                  f32("q_rope", {1, 1, heads, rope}, part(parts.q_rope, heads * rope, n)),
                  f32("kv_latent", {1, tokens, latent}, head_of(parts.latents, tokens * latent)),
                  f32("k_rope", {1, tokens, rope}, head_of(parts.ropes, tokens * rope)), parts.dense()[4], parts.dense()[5]},
                 {{"window_left", left}});
      expect_near(part(found.at("out"), heads * value, n), expected.at("out"), 0);
      expect_near(part(found.at("lse"), heads, n), expected.at("lse"), 0);
    }
  }
}

TEST(MlaAttention, BadCallsSayWhatIsWrong) {
  const auto message = [](std::vector<HostTensor> inputs, std::map<std::string, spec::Value> attributes = {}) -> std::string {
    try {
      attend(std::move(inputs), std::move(attributes));
      return "no error";
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  const Parts parts;
  const std::vector<HostTensor> all = parts.dense();
  EXPECT_EQ(message(all), "no error");
  EXPECT_NE(message({all[0], all[1], all[4], all[5]}).find("keys must be given: kv_latent and k_rope, or cache"), std::string::npos);
  EXPECT_NE(message(all, {{"softmax_scale", -1.0}}).find("softmax_scale must be finite in f32 and not negative"), std::string::npos);
  EXPECT_NE(message(all, {{"window_left", std::int64_t{-2}}}).find("window_left must be -1 (unbounded) or more"), std::string::npos);
  const std::vector<HostTensor> paged{f32("q_nope", {1, 1, 1}, {1}),   f32("q_rope", {1, 1, 0}, {}),    f32("w_kc", {1, 1, 1}, {1}),
                                      f32("w_vc", {1, 1, 1}, {1}),     f32("cache", {1, 2, 1}, {1, 2}), i32("context_lens", {1}, {2}),
                                      i32("block_tables", {1, 1}, {0})};
  EXPECT_EQ(message(paged), "no error");
  EXPECT_NE(message(paged, {{"causal_offset", std::int64_t{0}}}).find("causal_offset is for the dense form"), std::string::npos);
  std::vector<HostTensor> longer = paged;
  longer[5].set(0, 3);
  EXPECT_NE(message(longer).find("context_lens[0] is 3, expected 0 to 2"), std::string::npos) << message(longer);
}

TEST(MlaAttention, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("mla_attention", 900, 40); }

TEST(MlaAttention, SamplesAreOfTheWhole) {
  Rng rng(5);
  for (std::uint64_t seed = 1; seed < 8; ++seed)
    expect_samples_of_the_whole(make_call(spec_of("mla_attention"), find_reference("mla_attention")->random_case(rng), seed));
}

// A kernel whose queries see a key too many.
TEST(MlaAttention, AKernelThatSeesAHiddenKeyIsCaught) {
  const Execute careless = [](Call& call) {
    Call wider = call;
    wider.attributes["causal_offset"] = call.dim("Sk") - call.dim("Sq") + 1;
    wider.rebind();
    const Values found = compute(wider);
    for (HostTensor& output : call.outputs) output.assign(found.at(output.name()));
  };
  spec::Case c;
  c.name = "small", c.types = {{"E", "f32"}}, c.attributes["causal"] = true;
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"Sq", 4}, {"Sk", 6}, {"H", 2}, {"Dn", 4}, {"Dr", 2}, {"R", 8}, {"Dv", 4}})
    c.dims[dim] = std::int64_t{size};
  c.given = {"kv_latent", "k_rope"};
  Call call = make_call(spec_of("mla_attention"), c, 1);
  EXPECT_NE(first_failure(verify_call(*find_reference("mla_attention"), call, careless)), "");
}

}  // namespace
}  // namespace ejk::reference::mla_attention_test
