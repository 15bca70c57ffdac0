// The references of grouped_matmul and tgmm against hand-computed numbers, and the gradient that the spec describes against differences.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"
#include "spec/call/gradient.hpp"

namespace ejk::reference::grouped_matmul_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

HostTensor sizes(const Numbers& values) { return {"group_sizes", DType::i32, {static_cast<std::int64_t>(values.size())}, values}; }

Numbers product(Attributes attributes, std::vector<HostTensor> inputs) {
  return compute(make_call(spec_of("grouped_matmul"), std::move(attributes), std::move(inputs), {})).at("out");
}

TEST(GroupedMatmul, EachGroupHasItsMatrixAndRowsPastTheLastGetZero) {
  const HostTensor lhs = f32("lhs", {4, 2}, {1, 2, 3, 4, 5, 6, NAN, NAN});
  const HostTensor rhs = f32("rhs", {3, 2, 1}, {1, 10, NAN, NAN, 2, 1});
  EXPECT_EQ(product({}, {lhs, rhs, sizes({1, 0, 2})}), (Numbers{21, 10, 16, 0}));
}

TEST(GroupedMatmul, SizesBeyondTheRowsAreCut) {
  const HostTensor lhs = f32("lhs", {3, 1}, {1, 2, 3}), rhs = f32("rhs", {3, 1, 1}, {10, 100, NAN});
  EXPECT_EQ(product({}, {lhs, rhs, sizes({1, 7, 2})}), (Numbers{10, 200, 300}));
}

TEST(GroupedMatmul, TransposedMatricesHaveTheSummedFeaturesInnermost) {
  const HostTensor lhs = f32("lhs", {1, 2}, {1, 10}), rhs = f32("rhs", {1, 3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(product({{"transpose_rhs", true}}, {lhs, rhs, sizes({1})}), (Numbers{21, 43, 65}));
}

TEST(GroupedMatmul, OnlyGroupsFromTheOffsetOnAreHeldAndExistingRowsAreKept) {
  const HostTensor lhs = f32("lhs", {3, 1}, {1, 2, 3}), rhs = f32("rhs", {1, 1, 1}, {10});
  const HostTensor existing = f32("existing_out", {3, 1}, {4, 5, 6});
  EXPECT_EQ(product({{"group_offset", std::int64_t{1}}}, {lhs, rhs, sizes({1, 1, 1})}), (Numbers{0, 20, 0}));
  EXPECT_EQ(product({{"group_offset", std::int64_t{1}}}, {lhs, rhs, sizes({1, 1, 1}), existing}), (Numbers{4, 25, 6}));
}

TEST(GroupedMatmul, BatchedGroupsHaveOneSize) {
  const HostTensor lhs = f32("lhs", {1, 2, 2, 1}, {1, 2, 3, 4}), rhs = f32("rhs", {1, 2, 1, 1}, {10, 100});
  EXPECT_EQ(product({}, {lhs, rhs}), (Numbers{10, 20, 300, 400}));
}

TEST(WeightGradient, SumsOverTheRowsOfEachGroup) {
  const HostTensor lhs = f32("lhs", {4, 2}, {1, 2, 3, 4, 5, 6, NAN, NAN}), dout = f32("dout", {4, 1}, {1, 10, 100, NAN});
  const auto gradient = [&](Attributes attributes) {
    return compute(make_call(spec_of("tgmm"), std::move(attributes), {lhs, dout, sizes({1, 0, 2})}, {})).at("out");
  };
  EXPECT_EQ(gradient({}), (Numbers{1, 2, 0, 0, 530, 640}));
  EXPECT_EQ(gradient({{"group_offset", std::int64_t{1}}}), (Numbers{0, 0, 530, 640}));
  EXPECT_EQ(gradient({{"group_offset", std::int64_t{1}}, {"groups", std::int64_t{1}}}), (Numbers{0, 0}));
}

// ---- the gradient that the spec describes ----

Numbers rounded_normals(std::int64_t count, Rng& rng) {
  Numbers values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(std::round(16 * rng.normal()) / 16);
  return values;
}

// A small call on data that f32 holds exactly, so that sums and differences are exact too.
Call small_call(std::uint64_t seed) {
  Rng rng(seed);
  spec::Case c = find_reference("grouped_matmul")->random_case(rng);
  for (auto& [name, type] : c.types) type = "f32";
  for (const char* dim : {"M", "K", "N"}) c.dims[dim] = std::get<std::int64_t>(c.dims[dim]) % 10;
  Call call = make_call(spec_of("grouped_matmul"), c, seed);
  for (HostTensor& input : call.inputs)
    if (input.type() == DType::f32) input.assign(rounded_normals(input.elements(), rng));
  return call;
}

// The gradients of all inputs by the spec's steps, each computed by the reference of the kernel it names.
Values gradients_of(const Call& call, const HostTensor& dout) {
  Values gradients;
  const auto named = [&](const std::string& own) { return own == "dout" ? &dout : call.find(own); };
  for (const spec::GradientStep& step : call.spec->gradient) {
    if (step.kernel.empty()) {
      if (call.given(spec::differentiated(*call.spec, step.tensor))) gradients[step.tensor] = named(step.is)->values();
      continue;
    }
    const spec::Spec& target = spec_of(step.kernel);
    std::vector<HostTensor> inputs;
    std::string output, gradient;
    for (const auto& [name, own] : step.tensors)
      if (target.tensor(name)->output)
        output = name, gradient = own;
      else if (const HostTensor* tensor = named(own))
        inputs.emplace_back(name, tensor->type(), tensor->shape(), tensor->values());
    gradients[gradient] = compute(make_call(target, spec::gradient_attributes(step, call.binding), std::move(inputs), {})).at(output);
  }
  return gradients;
}

double loss(const Call& call, const Numbers& dout) {
  const Numbers out = compute(call).at("out");
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
  return sum;
}

TEST(GroupedMatmul, TheGradientIsWhatDifferencesSay) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Call call = small_call(seed);
    Rng rng(seed + 1000);
    const HostTensor dout("dout", DType::f32, call.find("out")->shape(), rounded_normals(call.find("out")->elements(), rng));
    const Values gradients = gradients_of(call, dout);
    ASSERT_EQ(gradients.size(), call.given("existing_out") ? 3U : 2U);
    for (const auto& [name, gradient] : gradients) {
      HostTensor& input = call.input(name.substr(1));
      ASSERT_EQ(static_cast<std::int64_t>(gradient.size()), input.elements()) << name << " of " << call.label;
      for (int i = 0; i < 4 && input.elements() > 0; ++i) {
        const std::int64_t element = rng.between(0, input.elements() - 1);
        const double value = input.at(element);
        input.set(element, value + 1);
        const double above = loss(call, dout.values());
        input.set(element, value - 1);
        const double below = loss(call, dout.values());
        input.set(element, value);
        EXPECT_NEAR((above - below) / 2, gradient[static_cast<std::size_t>(element)], 1e-9) << name << " of " << call.label;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(GroupedMatmul, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("grouped_matmul", 300, 60); }
TEST(WeightGradient, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("tgmm", 400, 60); }

}  // namespace
}  // namespace ejk::reference::grouped_matmul_test
