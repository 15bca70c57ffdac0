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

TEST(Rnn, ItsLawsHoldOfItself) { check_random_calls("rnn", 1, 60); }

}  // namespace
}  // namespace ejk::reference::rnn_test
