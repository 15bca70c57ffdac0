// The reference of latent attention's gradients against finite differences of the forward reference, and its own laws.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference::mla_attention_bwd_test {
namespace {

Call forward_of(const Call& gradient) {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : gradient.inputs)
    if (const spec::TensorSpec* tensor = spec_of("mla_attention").tensor(input.name()); tensor && !tensor->output) inputs.push_back(input);
  return make_call(spec_of("mla_attention"), gradient.attributes, std::move(inputs), {});
}

double weighed(const Call& gradient, const Call& forward) {
  const std::vector<double> out = compute(forward).at("out"), dout = gradient.input("dout").values();
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
  return sum;
}

// Each gradient against differences of the forward reference.
void expect_gradients(Call gradient) {
  for (const char* name : {"kv_latent", "k_rope"}) {
    HostTensor& tensor = gradient.input(name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (std::isnan(tensor.at(i))) tensor.set(i, 1);
  }
  Values found = compute(gradient);
  std::erase_if(found,
                [](const auto& value) { return value.first.ends_with(" rounding"); });  // no gradients: what rounding may leave of them
  ASSERT_EQ(found.size(), 6);
  for (const auto& [name, values] : found) {
    Call forward = forward_of(gradient);
    HostTensor& input = forward.input(name.substr(1));
    ASSERT_EQ(static_cast<std::size_t>(input.elements()), values.size()) << name;
    for (std::int64_t i = 0; i < input.elements(); i += 3) {
      const double was = input.at(i);
      double sum[2], at[2];
      for (const int side : {0, 1}) {
        input.set(i, was + (side ? 1e-3 : -1e-3));
        at[side] = input.at(i), sum[side] = weighed(gradient, forward);
      }
      input.set(i, was);
      const double slope = (sum[1] - sum[0]) / (at[1] - at[0]);
      EXPECT_NEAR(values[static_cast<std::size_t>(i)], slope, 2e-4 * (1 + std::abs(slope))) << gradient.label << " " << name << " " << i;
    }
  }
}

TEST(MlaAttentionBackward, IsTheSlopeOfTheForwardReference) {
  int calls = 0;
  for (const OptionCase& one : find_reference("mla_attention_bwd")->option_cases()) {
    if (one.c.types.at("E") != "f32") continue;
    spec::Case c = one.c;
    const bool more = c.dims.at("Sq") > c.dims.at("Sk");
    for (const auto& [dim, size] :
         {std::pair{"B", 2}, {"Sq", more ? 5 : 3}, {"Sk", more ? 3 : 5}, {"H", 2}, {"Dn", 3}, {"Dr", 2}, {"R", 4}, {"Dv", 3}})
      c.dims[dim] = std::int64_t{size};
    for (auto& [name, value] : c.attributes)
      if (name == "window_left" || name == "window_right" || name == "causal_offset") value = std::int64_t{1};
    if (c.attributes.contains("softmax_scale")) c.attributes["softmax_scale"] = 0.7;
    if (c.attributes.contains("logits_soft_cap")) c.attributes["logits_soft_cap"] = 0.5;
    expect_gradients(make_call(spec_of("mla_attention_bwd"), c, static_cast<std::uint64_t>(++calls)));
  }
  EXPECT_GT(calls, 30);
}

TEST(MlaAttentionBackward, RandomCallsPassTheirOwnChecks) { check_random_calls("mla_attention_bwd", 950, 16); }

}  // namespace
}  // namespace ejk::reference::mla_attention_bwd_test
