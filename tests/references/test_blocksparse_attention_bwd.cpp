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

TEST(BlocksparseAttentionBwd, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("blocksparse_attention_bwd", 700, 25); }

}  // namespace
}  // namespace ejk::reference::blocksparse_attention_bwd_test
