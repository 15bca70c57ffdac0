// The reference of native sparse attention against hand-computed numbers, dense attention and its own laws.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference::native_sparse_attention_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor tensor(const char* name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}
HostTensor filled(const char* name, std::vector<std::int64_t> shape, double value) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return tensor(name, std::move(shape), Numbers(static_cast<std::size_t>(count), value));
}
HostTensor named(std::vector<std::int64_t> shape, const Numbers& blocks) { return {"block_indices", DType::i32, std::move(shape), blocks}; }

Numbers counting(std::int64_t tokens) {
  Numbers values;
  for (std::int64_t j = 0; j < tokens; ++j) values.push_back(static_cast<double>(j + 1));
  return values;
}

// One sequence, one head, one feature: queries of 1, these keys, values that count up from 1.
Values attention(const Numbers& keys, Attributes attributes, std::vector<HostTensor> more) {
  const auto tokens = static_cast<std::int64_t>(keys.size());
  attributes.emplace("softmax_scale", 1.0);
  std::vector<HostTensor> inputs = {filled("q", {1, tokens, 1, 1}, 1), tensor("k", {1, tokens, 1, 1}, keys),
                                    tensor("v", {1, tokens, 1, 1}, counting(tokens))};
  for (HostTensor& input : more) inputs.push_back(std::move(input));
  return compute(make_call(spec_of("native_sparse_attention"), std::move(attributes), std::move(inputs), {"branch_lse", "selected"}));
}

Attributes blocks_of(std::int64_t size, std::int64_t count) { return {{"block_size", size}, {"block_count", count}}; }

TEST(NativeSparseAttention, MeansAreOfWholeBlocksOfThePast) {
  const Values values = attention(Numbers(7, 0.0), blocks_of(2, 1), {filled("g_cmp", {1, 7, 1}, 1)});
  const Numbers expected{0, 1.5, 1.5, 2.5, 2.5, 3.5, 3.5};  // the token itself ends a block that counts
  for (std::size_t t = 0; t < expected.size(); ++t) EXPECT_NEAR(values.at("out")[t], expected[t], 1e-12) << t;
  EXPECT_EQ(values.at("branch_lse")[0], -infinity);
  EXPECT_NEAR(values.at("branch_lse")[6], std::log(3), 1e-12);
}

TEST(NativeSparseAttention, TheLargestImportanceIsSelected) {
  Numbers keys(12, 0.0);
  keys[4] = keys[5] = 2;  // block 2
  keys[7] = 1;            // block 3
  const Values values = attention(keys, blocks_of(2, 3), {filled("g_slc", {1, 12, 1}, 1)});
  const Numbers selected = values.at("selected");
  const std::vector<Numbers> expected{{0, -1, -1}, {0, 1, -1}, {0, 1, 2}, {0, 2, 3}, {0, 2, 4}, {0, 2, 5}};
  for (std::size_t t = 0; t < 12; ++t)
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(selected[3 * t + i], expected[t / 2][i]) << t;
  const double heavy = std::exp(2);
  EXPECT_NEAR(values.at("out")[10], (1 + 2 + heavy * (5 + 6) + 11) / (3 + 2 * heavy), 1e-6);
}

TEST(NativeSparseAttention, OfEqualBlocksTheFirstIsSelectedAndOneBlockIsTheFirst) {
  const Numbers keys(12, 0.0);
  const Numbers selected = attention(keys, blocks_of(2, 4), {filled("g_slc", {1, 12, 1}, 1)}).at("selected");
  EXPECT_EQ(Numbers(selected.end() - 4, selected.end()), (Numbers{0, 1, 2, 5}));
  const Values one = attention(keys, blocks_of(2, 1), {filled("g_slc", {1, 12, 1}, 1)});
  EXPECT_EQ(one.at("selected")[11], 0);
  EXPECT_NEAR(one.at("out")[11], 1.5, 1e-12);
}

TEST(NativeSparseAttention, BranchesAreAddedByTheirGates) {
  Attributes attributes = blocks_of(2, 1);
  attributes["window_left"] = std::int64_t{1};
  const Values values = attention(Numbers(6, 0.0), attributes,
                                  {filled("g_cmp", {1, 6, 1}, 100), filled("g_slc", {1, 6, 1}, 10), filled("g_swa", {1, 6, 1}, 1)});
  EXPECT_NEAR(values.at("out")[5], 100 * 3.5 + 10 * 1.5 + 5.5, 1e-9);
  EXPECT_NEAR(values.at("out")[0], 10 * 1 + 1, 1e-9);
}

TEST(NativeSparseAttention, NamedBlocksCountOnceAndNotAfterTheQuery) {
  const Numbers names{0, 0, 1, 1, 0, 1, -1, 1, 2, 2, 0, 2};
  const Values values = attention(Numbers(4, 0.0), blocks_of(2, 3), {filled("g_slc", {1, 4, 1}, 1), named({1, 4, 1, 3}, names)});
  const Numbers expected{1, 1.5, 3, 1.5};  // blocks 0; 0 (1 begins later); 1; 0 (2 begins later)
  for (std::size_t t = 0; t < expected.size(); ++t) EXPECT_NEAR(values.at("out")[t], expected[t], 1e-12) << t;
}

// With every block selected, the branch of blocks is dense causal attention; and so is the window without a bound.
TEST(NativeSparseAttention, AllBlocksAreDenseAttention) {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", "f32"}};
  c.attributes = {{"block_size", std::int64_t{8}}, {"block_count", std::int64_t{5}}};
  c.given = {"g_slc"};
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"T", 37}, {"Hq", 4}, {"Hkv", 2}, {"D", 8}, {"Dv", 5}})
    c.dims[dim] = std::int64_t{size};
  for (const char* gate : {"g_slc", "g_swa"}) {
    c.given = {gate};
    Call call = make_call(spec_of("native_sparse_attention"), c, 3);
    HostTensor& gates = call.input(gate);
    for (std::int64_t e = 0; e < gates.elements(); ++e) gates.set(e, 1);
    const Call dense =
        make_call(spec_of("flash_attention"), {{"causal", true}}, {call.input("q"), call.input("k"), call.input("v")}, {"lse"});
    const Numbers found = compute(call).at("out"), expected = compute(dense).at("out");
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t e = 0; e < found.size(); ++e) ASSERT_NEAR(found[e], expected[e], 1e-12) << gate << e;
  }
}

TEST(NativeSparseAttention, AQueryWhoseSelectionHangsOnARoundingIsSettled) {
  spec::Case c;
  c.name = "alike";
  c.types = {{"E", "f32"}};
  c.attributes = {{"block_size", std::int64_t{1}}, {"block_count", std::int64_t{3}}, {"softmax_scale", 1e-7}};
  c.given = {"g_slc", "selected"};
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"T", 9}, {"Hq", 2}, {"Hkv", 1}, {"D", 4}, {"Dv", 4}})
    c.dims[dim] = std::int64_t{size};
  const Call call = make_call(spec_of("native_sparse_attention"), c, 3);
  EXPECT_EQ(compute(call).at("selected")[3 * 8 + 1], 1);
  EXPECT_EQ(call.input("q").at(8 * 8), 0);
}

TEST(NativeSparseAttention, CallsThatSayTooLittleAreRefused) {
  EXPECT_THROW(attention(Numbers(4, 0.0), blocks_of(2, 0), {}), spec::CallError);
  EXPECT_THROW(attention(Numbers(4, 0.0), blocks_of(0, 1), {}), spec::CallError);
  EXPECT_THROW(attention(Numbers(4, 0.0), blocks_of(2, 1), {named({1, 4, 1, 1}, Numbers(4, 0.0))}), spec::CallError);
}

// ---- packed sequences ----

// Tokens [first, end) of [1, T, ...], or of log-sum-exps, whose tokens are last.
HostTensor tokens_of(const HostTensor& all, std::int64_t first, std::int64_t end) {
  const bool last = all.name().ends_with("lse");
  std::vector<std::int64_t> shape = all.shape();
  const std::size_t axis = last ? shape.size() - 1 : 1;
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  Numbers values;
  for (std::int64_t e = 0; e < all.elements(); ++e)
    if (const std::int64_t token = e / inner % shape[axis]; token >= first && token < end) values.push_back(all.at(e));
  shape[axis] = end - first;
  return {all.name(), all.type(), std::move(shape), values};
}

// A packed call of these offsets gives for each sequence what a call of its own gives, and for tokens of none `nothing`; NaN there does not
// matter.
void expect_sequences_alone(const char* kernel, spec::Case c, const Numbers& offsets) {
  c.name = "packed";
  c.types = {{"E", "f32"}};
  c.attributes["block_size"] = std::int64_t{4};
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"T", 40}, {"Hq", 4}, {"Hkv", 2}, {"D", 5}, {"Dv", 3}})
    c.dims[dim] = std::int64_t{size};
  c.dims["N"] = static_cast<std::int64_t>(offsets.size()) - 1;
  Call call = make_call(spec_of(kernel), c, 7);
  call.input("cum_seqlens").assign(offsets);
  call.rebind();
  find_reference(kernel)->complete(call);
  for (HostTensor& input : call.inputs)
    for (std::int64_t e = 0; input.type() == DType::f32 && !input.name().ends_with("lse") && e < input.elements(); ++e)
      if (e / (input.elements() / 40) >= static_cast<std::int64_t>(offsets.back())) input.set(e, nan);
  const Values packed = compute(call);
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    const auto first = static_cast<std::int64_t>(offsets[n]), end = static_cast<std::int64_t>(offsets[n + 1]);
    std::vector<HostTensor> inputs;
    for (const HostTensor& input : call.inputs)
      if (input.name() != "cum_seqlens") inputs.push_back(tokens_of(input, first, end));
    std::vector<std::string> outputs;
    for (const HostTensor& output : call.outputs) outputs.push_back(output.name());
    const Values alone = compute(make_call(spec_of(kernel), call.attributes, std::move(inputs), outputs));
    for (const HostTensor& output : call.outputs) {
      const HostTensor all(output.name(), DType::f64, output.shape(), packed.at(output.name()));
      EXPECT_EQ(tokens_of(all, first, end).values(), alone.at(output.name())) << kernel << " " << output.name() << " of sequence " << n;
    }
  }
  for (const HostTensor& output : call.outputs) {
    const HostTensor all(output.name(), DType::f64, output.shape(), packed.at(output.name()));
    const double nothing = output.name() == "selected" ? -1.0 : output.name().ends_with("lse") ? -infinity : 0.0;
    for (const double x : tokens_of(all, static_cast<std::int64_t>(offsets.back()), 40).values())
      EXPECT_EQ(x, nothing) << kernel << " " << output.name();
  }
}

// Empty sequences, some shorter than a block, tokens of none; no sequence; one of all tokens.
const std::vector<Numbers> packed_offsets{{0, 0, 3, 4, 21, 21, 37}, {0}, {0, 0}, {0, 40}, {0, 7, 40}};

TEST(NativeSparseAttention, PackedSequencesAreTreatedAlone) {
  for (const Numbers& offsets : packed_offsets) {
    spec::Case c;
    c.attributes = {{"block_count", std::int64_t{3}}, {"window_left", std::int64_t{5}}};
    c.given = {"g_cmp", "g_slc", "g_swa", "branch_lse", "selected", "cum_seqlens"};
    expect_sequences_alone("native_sparse_attention", c, offsets);
    c.given = {"g_slc", "block_indices", "block_counts", "selected", "cum_seqlens"};
    expect_sequences_alone("native_sparse_attention", c, offsets);
    c.attributes = {};
    c.given = {"block_counts", "lse", "cum_seqlens"};
    c.dims["S"] = std::int64_t{3};
    expect_sequences_alone("apply_native_sparse_attention", c, offsets);
  }
}

TEST(NativeSparseAttention, PackedCallsOfSeveralRowsAreRefused) {
  std::vector<HostTensor> inputs = {filled("q", {2, 3, 1, 1}, 1), filled("k", {2, 3, 1, 1}, 1), filled("v", {2, 3, 1, 1}, 1),
                                    HostTensor("cum_seqlens", DType::i32, {2}, Numbers{0, 3})};
  EXPECT_THROW(make_call(spec_of("native_sparse_attention"), {}, std::move(inputs), {}), spec::CallError);
}

TEST(NativeSparseAttention, RandomCallsOfEveryKindPassTheirOwnChecks) {
  check_random_calls("native_sparse_attention", 1700, 20);
  check_random_calls("apply_native_sparse_attention", 1800, 20);
}

// What must be found if a kernel gets it wrong: another block than the one that is selected.
TEST(NativeSparseAttention, AWrongBlockIsCaught) {
  spec::Case c;
  c.name = "blocks";
  c.types["E"] = "f32";
  c.attributes = {{"block_size", std::int64_t{4}}};
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"T", 30}, {"Hq", 2}, {"Hkv", 1}, {"S", 2}, {"D", 16}, {"Dv", 16}})
    c.dims[dim] = std::int64_t{size};
  const KernelReference& reference = *find_reference("apply_native_sparse_attention");
  Call call = make_call(spec_of("apply_native_sparse_attention"), c, 1);
  for (std::int64_t t = 0; t < 30; ++t) call.input("block_indices").set(2 * t, 0), call.input("block_indices").set(2 * t + 1, t / 4);
  for (const std::int64_t wrong : {18, 40, 58}) {
    const Execute careless = [&](Call& executed) {
      Call other = executed;
      other.input("block_indices").set(wrong, 1);
      const Values values = compute(other);
      for (HostTensor& output : executed.outputs) output.assign(values.at(output.name()));
    };
    EXPECT_NE(first_failure(verify_call(reference, call, careless)), "") << wrong;
  }
}

// ---- gradients ----

// <out(inputs), dout> by the forward reference, of the blocks that the backward call has.
double objective(const Call& backward, bool gated) {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : backward.inputs) {
    if (input.name() == "selected") {
      HostTensor blocks("block_indices", DType::i32, input.shape(), input.values());
      if (backward.given("g_slc")) inputs.push_back(std::move(blocks));
    } else if (input.name() != "dout" && input.name() != "lse" && input.name() != "branch_lse") {
      inputs.push_back(input);
    }
  }
  const Call forward =
      make_call(spec_of(gated ? "native_sparse_attention" : "apply_native_sparse_attention"), backward.attributes, std::move(inputs), {});
  const Numbers out = compute(forward).at("out"), dout = backward.input("dout").values();
  double sum = 0;
  for (std::size_t e = 0; e < out.size(); ++e) sum += out[e] * dout[e];
  return sum;
}

void expect_gradient(Call& call, const Values& gradients, const char* input, const char* gradient, bool gated) {
  HostTensor* tensor = call.find(input);
  if (!tensor) return;
  const Numbers& expected = gradients.at(gradient);
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(tensor->elements()));
  const auto slope = [&](std::int64_t i, double h) {
    const double x = tensor->at(i);
    tensor->set(i, x + h);
    const double above = objective(call, gated), up = tensor->at(i);
    tensor->set(i, x - h);
    const double below = objective(call, gated), down = tensor->at(i);
    tensor->set(i, x);
    return (above - below) / (up - down);
  };
  for (std::int64_t i = 0; i < tensor->elements(); i += std::max<std::int64_t>(1, tensor->elements() / 24)) {
    const double found = (4 * slope(i, 0.01) - slope(i, 0.02)) / 3;
    ASSERT_NEAR(expected[static_cast<std::size_t>(i)], found, 1e-5 * (1 + std::fabs(found)))
        << gradient << " " << i << " of " << call.label;
  }
}

spec::Case gradient_case() {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", "f32"}};
  c.attributes = {{"block_size", std::int64_t{3}}};
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"T", 11}, {"Hq", 4}, {"Hkv", 2}, {"D", 3}, {"Dv", 2}})
    c.dims[dim] = std::int64_t{size};
  return c;
}

TEST(NativeSparseAttentionBwd, IsTheGradientOfEachBranchAndOfAll) {
  const std::vector<std::vector<std::string>> branches{{"g_cmp"}, {"g_slc"}, {"g_swa"}, {"g_cmp", "g_slc", "g_swa"}};
  for (const auto& gates : branches) {
    spec::Case c = gradient_case();
    c.attributes["block_count"] = std::int64_t{3};
    c.attributes["window_left"] = std::int64_t{4};
    for (const std::string& gate : gates) c.given.insert(c.given.end(), {gate, "d" + gate});
    Call call = make_call(spec_of("native_sparse_attention_bwd"), c, 5);
    const Values gradients = compute(call);
    for (const char* input : {"q", "k", "v", "g_cmp", "g_slc", "g_swa"})
      expect_gradient(call, gradients, input, (std::string("d") + input).c_str(), true);
  }
}

TEST(NativeSparseAttentionBwd, IsTheGradientOfNamedBlocks) {
  spec::Case c = gradient_case();
  c.dims["S"] = std::int64_t{3};
  c.given = {"block_counts"};
  Call call = make_call(spec_of("apply_native_sparse_attention_bwd"), c, 5);
  const Values gradients = compute(call);
  for (const char* input : {"q", "k", "v"}) expect_gradient(call, gradients, input, (std::string("d") + input).c_str(), false);
}

TEST(NativeSparseAttentionBwd, PackedSequencesAreTreatedAlone) {
  for (const Numbers& offsets : packed_offsets) {
    spec::Case c;
    c.attributes = {{"block_count", std::int64_t{3}}, {"window_left", std::int64_t{5}}};
    c.given = {"g_cmp", "g_slc", "g_swa", "dg_cmp", "dg_slc", "dg_swa", "cum_seqlens"};
    expect_sequences_alone("native_sparse_attention_bwd", c, offsets);
    c.attributes = {};
    c.given = {"block_counts", "cum_seqlens"};
    c.dims["S"] = std::int64_t{3};
    expect_sequences_alone("apply_native_sparse_attention_bwd", c, offsets);
  }
}

TEST(NativeSparseAttentionBwd, RandomCallsOfEveryKindPassTheirOwnChecks) {
  check_random_calls("native_sparse_attention_bwd", 1900, 12);
  check_random_calls("apply_native_sparse_attention_bwd", 2000, 12);
}

}  // namespace
}  // namespace ejk::reference::native_sparse_attention_test
