// The reference of blocksparse attention's gradients: those of flash_attention with the same mask, and its own laws.
#include <gtest/gtest.h>

#include "references/calls.hpp"

namespace ejk::reference::blocksparse_attention_bwd_test {
namespace {

TEST(BlocksparseAttentionBwd, GradientsAreThoseOfTheSameDenseMask) {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", "f32"}, {"Es", "f32"}};
  c.attributes = {{"causal", true}, {"logits_soft_cap", 3.0}, {"block_q", std::int64_t{16}}, {"block_k", std::int64_t{32}}};
  c.given = {"softmax_aux", "dsoftmax_aux"};
  for (const auto& [dim, size] :
       {std::pair{"B", 2}, {"Sq", 40}, {"Sk", 70}, {"Hq", 4}, {"Hkv", 2}, {"Hm", 4}, {"D", 8}, {"Dv", 8}, {"A", 2}})
    c.dims[dim] = std::int64_t{size};
  const Call call = make_call(spec_of("blocksparse_attention_bwd"), c, 3);
  const HostTensor& blocks = call.input("block_mask");
  std::vector<double> dense;
  for (std::int64_t row = 0; row < 2 * 4; ++row)
    for (std::int64_t i = 0; i < 40; ++i)
      for (std::int64_t j = 0; j < 70; ++j) dense.push_back(blocks.at((row * 3 + i / 16) * 3 + j / 32));
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : call.inputs)
    if (input.name() != "block_mask") inputs.push_back(input);
  inputs.emplace_back("attention_mask", DType::boolean, std::vector<std::int64_t>{2, 4, 40, 70}, dense);
  const Call same =
      make_call(spec_of("flash_attention_bwd"), {{"causal", true}, {"logits_soft_cap", 3.0}}, std::move(inputs), {"dsoftmax_aux"});
  const Values found = compute(call), expected = compute(same);
  for (const char* name : {"dq", "dk", "dv", "dsoftmax_aux"}) {
    ASSERT_EQ(found.at(name).size(), expected.at(name).size()) << name;
    for (std::size_t e = 0; e < found.at(name).size(); ++e) EXPECT_NEAR(found.at(name)[e], expected.at(name)[e], 1e-12) << name << e;
  }
}

// The call's sequence n as a row of the batch, with the blocks that it has.
Call alone(const Call& call, std::int64_t n, std::int64_t queries, std::int64_t keys) {
  const auto rows = [&](const char* name, const char* offsets, std::int64_t length) {
    const HostTensor& all = call.input(name);
    const std::int64_t width = all.elements() / all.shape()[0], first = static_cast<std::int64_t>(call.input(offsets).at(n));
    std::vector<double> own;
    for (std::int64_t i = first * width; i < (first + length) * width; ++i) own.push_back(all.at(i));
    return HostTensor(name, all.type(), {1, length, all.shape()[1], all.shape()[2]}, own);
  };
  const std::int64_t heads = call.dim("Hq"), first = static_cast<std::int64_t>(call.input("cum_seqlens_q").at(n));
  std::vector<double> logs, blocks;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i) logs.push_back(call.input("lse").at(h * call.dim("Tq") + first + i));
  const HostTensor& all = call.input("block_mask");
  const std::vector<std::int64_t>& shape = all.shape();
  const std::int64_t own_rows = (queries + 15) / 16, own_columns = (keys + 31) / 32;
  for (std::int64_t i = 0; i < shape[1] * own_rows * own_columns; ++i) {
    const std::int64_t h = i / own_columns / own_rows, row = i / own_columns % own_rows, column = i % own_columns;
    const bool has = row < shape[2] && column < shape[3];
    blocks.push_back(has ? all.at((((shape[0] == 1 ? 0 : n) * shape[1] + h) * shape[2] + row) * shape[3] + column) : 0);
  }
  return make_call(
      spec_of("blocksparse_attention_bwd"), {{"causal", true}, {"block_q", std::int64_t{16}}, {"block_k", std::int64_t{32}}},
      {rows("q", "cum_seqlens_q", queries), rows("k", "cum_seqlens_k", keys), rows("v", "cum_seqlens_k", keys),
       rows("out", "cum_seqlens_q", queries), HostTensor("lse", DType::f32, {1, heads, queries}, logs),
       rows("dout", "cum_seqlens_q", queries), HostTensor("block_mask", DType::boolean, {1, shape[1], own_rows, own_columns}, blocks)},
      {});
}

TEST(BlocksparseAttentionBwd, PackedSequencesAreAsCallsOfTheirOwn) {
  spec::Case c;
  c.name = "packed";
  c.types = {{"E", "f32"}};
  c.attributes = {{"causal", true}, {"block_q", std::int64_t{16}}, {"block_k", std::int64_t{32}}};
  c.given = {"cum_seqlens_q", "cum_seqlens_k"};
  for (const auto& [dim, size] :
       {std::pair{"N", 4}, {"Tq", 130}, {"Tk", 140}, {"Mq", 3}, {"Mk", 2}, {"Hq", 4}, {"Hkv", 2}, {"Hm", 4}, {"D", 8}, {"Dv", 8}})
    c.dims[dim] = std::int64_t{size};
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    const Call call = make_call(spec_of("blocksparse_attention_bwd"), c, seed);
    const Values found = compute(call);
    std::map<std::string, std::vector<double>> expected;
    for (std::int64_t n = 0; n < 4; ++n) {
      const auto length = [&](const char* offsets) {
        return static_cast<std::int64_t>(call.input(offsets).at(n + 1) - call.input(offsets).at(n));
      };
      const Values own = compute(alone(call, n, length("cum_seqlens_q"), length("cum_seqlens_k")));
      for (const char* name : {"dq", "dk", "dv"}) expected[name].insert(expected[name].end(), own.at(name).begin(), own.at(name).end());
    }
    for (auto& [name, values] : expected) {
      values.resize(found.at(name).size(), 0.0);  // tokens of no sequence
      for (std::size_t e = 0; e < values.size(); ++e) EXPECT_NEAR(found.at(name)[e], values[e], 1e-12) << name << e;
    }
  }
}

TEST(BlocksparseAttentionBwd, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("blocksparse_attention_bwd", 700, 25); }

}  // namespace
}  // namespace ejk::reference::blocksparse_attention_bwd_test
