// The recurrent layer's reference against formulas written out for one feature, its laws on itself, and its gradient against differences.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference::rnn_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Values ran(const std::string& cell, std::vector<HostTensor> inputs, bool bidirectional = false) {
  Call call = make_call(spec_of("rnn"), {{"cell_type", cell}, {"bidirectional", bidirectional}}, std::move(inputs), {});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

void expect_near(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

TEST(Rnn, AnLstmHasInputForgetCellAndOutputGatesInThisOrder) {
  const Values found = ran("lstm", {f32("x", {1, 1, 1}, {2}), f32("w_ih", {1, 4, 1}, {0.1, 0.2, 0.3, 0.4}),
                                    f32("w_hh", {1, 4, 1}, {0.5, 0.6, 0.7, 0.8}), f32("h0", {1, 1, 1}, {3}), f32("c0", {1, 1, 1}, {-1}),
                                    f32("b_ih", {1, 4}, {1, -1, 0.5, 0}), f32("b_hh", {1, 4}, {-2, 0, 0, -1})});
  const double i = sigmoid(0.2 + 1.5 + 1 - 2), f = sigmoid(0.4 + 1.8 - 1), g = std::tanh(0.6 + 2.1 + 0.5), o = sigmoid(0.8 + 2.4 - 1);
  const double c = -f + i * g, h = o * std::tanh(c);
  expect_near(found.at("y"), {h});
  expect_near(found.at("h_n"), {h});
  expect_near(found.at("c_n"), {c});
}

TEST(Rnn, AGrusResetGateMultipliesTheProductAndItsBias) {
  const Values found =
      ran("gru", {f32("x", {1, 1, 1}, {2}), f32("w_ih", {1, 3, 1}, {0.1, 0.2, 0.3}), f32("w_hh", {1, 3, 1}, {0.5, 0.6, 0.7}),
                  f32("h0", {1, 1, 1}, {3}), f32("b_ih", {1, 3}, {1, -1, 0.5}), f32("b_hh", {1, 3}, {-2, 0, 4})});
  const double r = sigmoid(0.2 + 1.5 + 1 - 2), z = sigmoid(0.4 + 1.8 - 1), n = std::tanh(0.6 + 0.5 + r * (2.1 + 4));
  expect_near(found.at("y"), {(1 - z) * n + z * 3});
  EXPECT_FALSE(found.contains("c_n"));
}

TEST(Rnn, RowsEndAtTheirLengthsAndTheSecondDirectionBeginsThere) {
  const Values found = ran(
      "rnn_relu",
      {f32("x", {3, 3, 1}, {1, 2, 4, 8, 16, 1e30, 1e30, 1e30, 1e30}), f32("w_ih", {2, 1, 1}, {1, 10}), f32("w_hh", {2, 1, 1}, {0.5, 0.25}),
       f32("h0", {2, 3, 1}, {0, 4, 7, 0, 40, 9}), HostTensor("lengths", DType::i32, {3}, Numbers{3, 2, 0})},
      true);
  expect_near(found.at("y"), {1, 17.5, 2.5, 30, 5.25, 40, 10, 122.5, 21, 170, 0, 0, 0, 0, 0, 0, 0, 0});
  expect_near(found.at("h_n"), {5.25, 21, 7, 17.5, 122.5, 9});
}

TEST(Rnn, TanhAndNegativeNumbersOfRelu) {
  const auto of = [](const char* cell) {
    return ran(cell, {f32("x", {1, 2, 1}, {-1, 0.25}), f32("w_ih", {1, 1, 1}, {1}), f32("w_hh", {1, 1, 1}, {1})}).at("y");
  };
  expect_near(of("rnn_relu"), {0, 0.25});
  expect_near(of("rnn_tanh"), {std::tanh(-1), std::tanh(0.25 + std::tanh(-1))});
}

// sum of y * dy + h_n * dh_n + c_n * dc_n, of those that are given.
double weighed(const Call& gradient, const Call& forward) {
  const Values values = compute(forward);
  double sum = 0;
  for (const char* name : {"y", "h_n", "c_n"}) {
    const HostTensor* weights = gradient.find(std::string("d") + name);
    for (std::size_t i = 0; weights && i < values.at(name).size(); ++i)
      sum += values.at(name)[i] * weights->at(static_cast<std::int64_t>(i));
  }
  return sum;
}

Call forward_of(const Call& gradient) {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : gradient.inputs)
    if (const spec::TensorSpec* tensor = spec_of("rnn").tensor(input.name()); tensor && !tensor->output) inputs.push_back(input);
  return make_call(spec_of("rnn"), gradient.attributes, std::move(inputs), {});
}

// Each gradient against differences of the forward reference, of every seventh element.
void expect_gradients(const Call& gradient) {
  const Values found = compute(gradient);
  for (const auto& [name, values] : found) {
    Call forward = forward_of(gradient);
    HostTensor& input = forward.input(name.substr(1));
    for (std::int64_t i = 0; i < input.elements(); i += 7) {
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

TEST(RnnBackward, IsTheSlopeOfTheForwardReference) {
  int calls = 0;
  for (const OptionCase& one : find_reference("rnn_bwd")->option_cases()) {
    // relu has no slope at 0, which a difference may step over.
    if (one.c.types.at("E") != "f32" || one.c.name.find("relu") != std::string::npos) continue;
    spec::Case c = one.c;
    c.dims["H"] = std::int64_t{4}, c.dims["I"] = std::int64_t{3};
    c.dims["B"] = std::min<std::int64_t>(std::get<std::int64_t>(c.dims.at("B")), 3);
    const auto seed = static_cast<std::uint64_t>(++calls);
    if (test::of_the_day(seed, 4)) expect_gradients(make_call(spec_of("rnn_bwd"), c, seed));
  }
  EXPECT_GT(calls, 50);
}

TEST(RnnBackward, ReluPassesTheGradientWhereTheStateIsPositive) {
  Call call = make_call(spec_of("rnn_bwd"), {{"cell_type", std::string("rnn_relu")}},
                        {f32("x", {1, 3, 1}, {1, -9, 2}), f32("w_ih", {1, 1, 1}, {3}), f32("w_hh", {1, 1, 1}, {0.5}),
                         f32("y", {1, 3, 1}, {3, 0, 6}), f32("dy", {1, 3, 1}, {10, 100, 1000})},
                        {});
  const Values found = compute(call);
  expect_near(found.at("dx"), {30, 0, 3000});
  expect_near(found.at("dw_ih"), {10 + 2000});
  expect_near(found.at("dw_hh"), {0});
}

TEST(RnnBackward, ItsLawsHoldOfItself) { check_random_calls("rnn_bwd", 1, 24); }

TEST(Rnn, ItsLawsHoldOfItself) { check_random_calls("rnn", 1, 60); }

}  // namespace
}  // namespace ejk::reference::rnn_test
