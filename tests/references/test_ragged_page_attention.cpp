// The references of ragged_page_attention, both versions, against hand-computed numbers and against flash_attention's on gathered keys.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reference/kernels/attention_rules.hpp"
#include "references/calls.hpp"
#include "references/samples.hpp"

namespace ejk::reference::ragged_page_attention_test {
namespace {

using Numbers = std::vector<double>;

spec::Case small_ragged(const char* type, const char* cache) {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", type}, {"C", cache}};
  for (const auto& [dim, size] : {std::pair{"T", 40}, {"N", 4}, {"Hq", 4}, {"Hkv2", 4}, {"D", 8}, {"P", 40}, {"ps", 4}, {"max_pages", 9}})
    c.dims[dim] = std::int64_t{size};
  return c;
}

std::int64_t integer_at(const Call& call, const char* name, std::int64_t i) { return static_cast<std::int64_t>(call.input(name).at(i)); }

// One row of queries, or of keys or values gathered from pages, of one sequence: tokens x heads x features.
HostTensor slice(const std::string& name, std::int64_t tokens, std::int64_t heads, std::int64_t dim,
                 const std::function<double(std::int64_t token, std::int64_t head, std::int64_t d)>& at) {
  Numbers values;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d) values.push_back(at(t, h, d));
  return {name, DType::f32, {1, tokens, heads, dim}, values};
}

// Sequence n of the call through flash_attention's reference, with a dense mask where the call has a tree.
Values by_flash_attention(const Call& call, std::int64_t n) {
  const std::int64_t first = integer_at(call, "query_start_loc", n), queries = integer_at(call, "query_start_loc", n + 1) - first;
  const std::int64_t keys = integer_at(call, "context_lens", n), dim = call.dim("D"), heads = call.dim("Hkv"), page = call.dim("ps");
  const HostTensor& pages = call.input("kv_pages");
  const auto cached = [&](std::int64_t row) {
    return [&, row](std::int64_t key, std::int64_t head, std::int64_t d) {
      const std::int64_t slot = integer_at(call, "block_tables", n * call.dim("max_pages") + key / page) * page + key % page;
      return pages.at((slot * 2 * heads + 2 * head + row) * dim + d);
    };
  };
  std::vector<HostTensor> inputs;
  inputs.push_back(slice("q", queries, call.dim("Hq"), dim, [&](std::int64_t t, std::int64_t h, std::int64_t d) {
    return call.input("queries").at(((first + t) * call.dim("Hq") + h) * dim + d);
  }));
  inputs.push_back(slice("k", keys, heads, dim, cached(0)));
  inputs.push_back(slice("v", keys, heads, dim, cached(1)));
  std::map<std::string, spec::Value> attributes = {{"softmax_scale", call.floating("softmax_scale")},
                                                   {"logits_soft_cap", call.floating("logits_soft_cap")}};
  if (call.given("tree_mask")) {
    Numbers mask;
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t key = 0; key < keys; ++key) {
        const std::int64_t fresh = key - (keys - queries);
        mask.push_back(fresh < 0 || (fresh < call.dim("L") && call.input("tree_mask").at((first + i) * call.dim("L") + fresh) != 0));
      }
    inputs.emplace_back("attention_mask", DType::boolean, std::vector<std::int64_t>{1, 1, queries, keys}, mask);
  } else {
    attributes["causal"] = true;
    attributes["window_left"] = call.integer("window_left");
  }
  if (const HostTensor* sinks = call.find("softmax_aux")) inputs.push_back(*sinks);
  return compute(make_call(spec_of("flash_attention"), std::move(attributes), std::move(inputs), {"lse"}));
}

void expect_flash_attention(const spec::Case& c, std::uint64_t seed) {
  const Call call = make_call(spec_of("ragged_page_attention"), c, seed);
  spec::check_live_requirements(call.binding);
  const Values found = compute(call);
  const std::int64_t row = call.dim("Hq") * call.dim("D"), count = integer_at(call, "num_seqs", 0);
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t first = integer_at(call, "query_start_loc", n), queries = integer_at(call, "query_start_loc", n + 1) - first;
    if (queries == 0) continue;
    const Values expected = by_flash_attention(call, n);
    for (std::int64_t i = 0; i < queries * row; ++i)
      ASSERT_NEAR(found.at("out")[at(first * row + i)], expected.at("out")[at(i)], 1e-9)
          << call.label << " sequence " << n << " element " << i;
    for (std::int64_t t = 0; t < queries; ++t)
      for (std::int64_t h = 0; h < call.dim("Hq"); ++h) {
        const double a = found.at("lse")[at((first + t) * call.dim("Hq") + h)], b = expected.at("lse")[at(h * queries + t)];
        ASSERT_TRUE(a == b || std::fabs(a - b) < 1e-9) << a << " and " << b;
      }
  }
  const std::int64_t end = integer_at(call, "query_start_loc", count);
  for (std::int64_t i = end * row; i < call.dim("T") * row; ++i) ASSERT_EQ(found.at("out")[at(i)], 0);
}

TEST(RaggedPageAttention, EachSequenceIsFlashAttentionOnItsGatheredKeys) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) expect_flash_attention(small_ragged("f32", "f32"), seed);
}

TEST(RaggedPageAttention, SoAreWindowsCapsAndSinks) {
  spec::Case c = small_ragged("f32", "f32");
  c.attributes = {{"window_left", std::int64_t{5}}, {"logits_soft_cap", 2.0}, {"softmax_scale", 0.7}};
  c.given = {"softmax_aux"};
  c.types["Es"] = "f32";
  c.dims["A"] = std::int64_t{2};
  for (std::uint64_t seed = 20; seed < 32; ++seed) expect_flash_attention(c, seed);
}

TEST(RaggedPageAttention, ATreeIsADenseMask) {
  spec::Case c = small_ragged("f32", "f32");
  c.given = {"tree_mask"};
  for (const std::int64_t columns : {0, 3, 40}) {
    c.dims["L"] = columns;
    for (std::uint64_t seed = 40; seed < 48; ++seed) expect_flash_attention(c, seed);
  }
}

TEST(RaggedPageAttention, NoSequencesGiveZerosWhateverTheTablesHold) {
  spec::Case c = small_ragged("f32", "f32");
  c.fill["num_seqs"] = "all 0";
  Call call = make_call(spec_of("ragged_page_attention"), c, 1);
  spec::check_live_requirements(call.binding);
  EXPECT_EQ(compute(call).at("out"), Numbers(40 * 4 * 8, 0.0));
  EXPECT_EQ(compute(call).at("lse"), Numbers(40 * 4, -infinity));
}

TEST(RaggedPageAttention, WhatLiesPastTheCountIsNotJudged) {
  spec::Case c = small_ragged("f32", "f32");
  c.fill["num_seqs"] = "all 2";
  Call call = make_call(spec_of("ragged_page_attention"), c, 3);
  EXPECT_LT(call.input("context_lens").at(2), -1e9);  // garbage
  spec::check_live_requirements(call.binding);
  call.input("num_seqs").set(0, 3);
  EXPECT_THROW(spec::check_live_requirements(call.binding), spec::CallError);
  call.input("num_seqs").set(0, 5);
  EXPECT_THROW(spec::check_live_requirements(call.binding), spec::CallError);
}

// One head of one feature: three old keys and one new one.
TEST(RaggedPageAttentionV3, NewRowsAreStoredRoundedAndSaturatedAndSeenAsStored) {
  const auto f32 = [](const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
    return HostTensor(name, DType::f32, std::move(shape), values);
  };
  const auto i32 = [](const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
    return HostTensor(name, DType::i32, std::move(shape), values);
  };
  std::vector<HostTensor> inputs{f32("queries", {2, 1, 1}, {0, 0}),
                                 f32("keys", {2, 1, 1}, {1, 2}),
                                 f32("values", {2, 1, 1}, {1.25, -900}),
                                 HostTensor("kv_pages", DType::i8, {2, 2, 2, 1}, Numbers{9, 9, 9, 9, 1, 2, 1, 4}),
                                 i32("context_lens", {1}, {4}),
                                 i32("block_tables", {1, 2}, {1, 0}),
                                 i32("query_start_loc", {2}, {0, 2}),
                                 i32("distribution", {3}, {0, 0, 1}),
                                 f32("v_scale", {}, {0.5})};
  const Call call = make_call(spec_of("ragged_page_attention_v3"), {}, std::move(inputs), {});
  spec::check_live_requirements(call.binding);
  const Values found = compute(call);
  EXPECT_EQ(found.at("kv_pages"), (Numbers{1, 2, 2, -128, 1, 2, 1, 4}));  // 1.25 / 0.5 = 2.5 is stored as 2
  EXPECT_NEAR(found.at("out")[0], 0.5 * (2 + 4 + 2) / 3, 1e-12);
  EXPECT_NEAR(found.at("out")[1], 0.5 * (2 + 4 + 2 - 128) / 4, 1e-12);
}

TEST(RaggedPageAttentionV3, IsV2OnThePagesThatItLeaves) {
  for (const char* cache : {"f32", "i8", "f8_e4m3"})
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      spec::Case c = small_ragged("f32", cache);
      c.given = {"k_scale", "v_scale"};
      const Call call = make_call(spec_of("ragged_page_attention_v3"), c, seed);
      const Values found = compute(call);
      std::vector<HostTensor> inputs;
      for (const char* name : {"queries", "kv_pages", "context_lens", "block_tables", "query_start_loc", "k_scale", "v_scale"})
        inputs.push_back(call.input(name));
      for (HostTensor& input : inputs)
        if (input.name() == "kv_pages") input.assign(found.at("kv_pages"));
      inputs.emplace_back("num_seqs", DType::i32, std::vector<std::int64_t>{1}, Numbers{call.input("distribution").at(2)});
      EXPECT_EQ(compute(make_call(spec_of("ragged_page_attention"), {}, std::move(inputs), {})).at("out"), found.at("out"));
    }
}

TEST(RaggedPageAttention, SamplesAreOfTheWhole) {
  expect_samples_of_the_whole(make_call(spec_of("ragged_page_attention"), small_ragged("f32", "f32"), 5));
  expect_samples_of_the_whole(make_call(spec_of("ragged_page_attention_v3"), small_ragged("f32", "f32"), 5));
}

TEST(RaggedPageAttention, RandomCallsPassTheirOwnChecks) { check_random_calls("ragged_page_attention", 1, 40); }
TEST(RaggedPageAttentionV3, RandomCallsPassTheirOwnChecks) { check_random_calls("ragged_page_attention_v3", 1, 40); }

// A kernel that reads whole pages, past the end of a sequence.
TEST(RaggedPageAttention, AKernelThatSeesAKeyTooManyIsCaught) {
  const Execute careless = [](Call& call) {
    Call longer = call;
    longer.attributes["window_left"] = call.integer("window_left") + 1;
    longer.rebind();
    const Values found = compute(longer);
    for (HostTensor& output : call.outputs) output.assign(found.at(output.name()));
  };
  spec::Case c = small_ragged("f32", "f32");
  c.attributes["window_left"] = std::int64_t{2};
  c.fill["context_lens"] = "all 30";
  c.fill["num_seqs"] = "all 4";
  Call call = make_call(spec_of("ragged_page_attention"), c, 1);
  EXPECT_NE(first_failure(verify_call(*find_reference("ragged_page_attention"), call, careless)), "");
}

// A v3 kernel that writes one slot beside the new tokens' is caught, whatever was there.
TEST(RaggedPageAttentionV3, AKernelThatWritesAnotherSlotIsCaught) {
  const Execute careless = [](Call& call) {
    const Values found = compute(call);
    for (HostTensor& output : call.outputs) {
      output.assign(found.at(output.name()));
      if (output.name() == "kv_pages") output.set(0, 77);
    }
  };
  spec::Case c = small_ragged("f32", "f32");
  c.fill["distribution"] = "all 0";
  const Call call = make_call(spec_of("ragged_page_attention_v3"), c, 1);
  Rng rng(1);
  bool caught = false;
  for (const PropertyResult& property : verify_properties(*find_reference("ragged_page_attention_v3"), call, careless, rng))
    caught = caught || property.message.find("slot 0") != std::string::npos;
  EXPECT_TRUE(caught);
}

}  // namespace
}  // namespace ejk::reference::ragged_page_attention_test
