// The recurrence's reference against hand-computed numbers, and its laws on itself.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference::recurrent_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

// Three tokens of one head, one key and one value feature; scale 1.
std::vector<HostTensor> three_tokens() {
  return {f32("q", {1, 3, 1, 1}, {1, 2, 1}), f32("k", {1, 3, 1, 1}, {1, 2, 3}), f32("v", {1, 3, 1, 1}, {5, 7, 1})};
}

Values recurred(Attributes attributes, std::vector<HostTensor> inputs, std::vector<HostTensor> more = {}) {
  for (HostTensor& tensor : more) inputs.push_back(std::move(tensor));
  attributes.emplace("softmax_scale", 1.0);
  Call call = make_call(spec_of("recurrent"), std::move(attributes), std::move(inputs), {});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

void expect_near(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6 * std::abs(expected[i]) + 1e-9) << i;
}

TEST(Recurrent, TheStateIsTheSumOfKeysTimesValues) {
  const Values found = recurred({}, three_tokens());
  expect_near(found.at("out"), {5, 38, 22});
  expect_near(found.at("final_state"), {22});
}

TEST(Recurrent, GatesDecayWhatWasBeforeTheToken) {
  const Numbers logs{-infinity, std::log(0.5), 0};
  const Values found = recurred({}, three_tokens(), {f32("g", {1, 3, 1}, logs), f32("initial_state", {1, 1, 1, 1}, {100})});
  expect_near(found.at("out"), {5, 2 * 16.5, 19.5});
  for (const char* name : {"gk", "gv"})
    expect_near(recurred({}, three_tokens(), {f32(name, {1, 3, 1, 1}, logs)}).at("out"), found.at("out"));
  const Values all = recurred({}, three_tokens(), {f32("g", {1, 3, 1}, {0, std::log(0.5), 0}), f32("g_gamma", {1}, {std::log(0.5)})});
  expect_near(all.at("final_state"), {0.5 * (0.25 * 5 + 14) + 3});
}

TEST(Recurrent, TheDeltaRuleWritesWhatTheValueDiffersByFromWhatIsRead) {
  const Values found = recurred({}, three_tokens(), {f32("beta", {1, 3, 1}, {1, 0.5, 0})});
  expect_near(found.at("out"), {5, 2 * (5 + 2 * 0.5 * (7 - 10.0)), 2});  // beta 0: nothing is written
  expect_near(found.at("final_state"), {2});
}

TEST(Recurrent, FromTheLastTokenToTheFirst) { expect_near(recurred({{"reverse", true}}, three_tokens()).at("out"), {22, 34, 3}); }

TEST(Recurrent, NormsDivideQueriesAndKeys) {
  const Values found =
      recurred({{"l2_norm", true}}, {f32("q", {1, 1, 1, 2}, {3, 4}), f32("k", {1, 1, 1, 2}, {0, 2}), f32("v", {1, 1, 1, 1}, {10})});
  expect_near(found.at("final_state"), {0, 10 / std::sqrt(1 + 0.25e-6)});
  EXPECT_NEAR(found.at("out")[0], 8, 1e-5);
}

TEST(Recurrent, HeadsShareAndSequencesKeepApart) {
  const Values found =
      recurred({}, {f32("q", {1, 3, 1, 1}, {1, 1, 1}), f32("k", {1, 3, 2, 1}, {1, 10, 1, 10, 1, 10}), f32("v", {1, 3, 1, 1}, {5, 7, 9})},
               {HostTensor("cum_seqlens", DType::i32, {4}, Numbers{0, 0, 2, 2}), f32("initial_state", {3, 2, 1, 1}, {1, 2, 3, 4, 5, 6})});
  expect_near(found.at("out"), {8, 54, 15, 124, 0, 0});
  expect_near(found.at("final_state"), {1, 2, 15, 124, 5, 6});
}

// sum of out * dout + final_state * dfinal_state, where those are given.
double weighed(const Call& gradient, const Call& forward) {
  const Values values = compute(forward);
  double sum = 0;
  for (const char* name : {"out", "final_state"}) {
    const HostTensor* weights = gradient.find(std::string("d") + name);
    for (std::size_t i = 0; weights && i < values.at(name).size(); ++i)
      sum += values.at(name)[i] * weights->at(static_cast<std::int64_t>(i));
  }
  return sum;
}

// The forward call on a gradient call's inputs.
Call forward_of(const Call& gradient) {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : gradient.inputs)
    if (spec_of("recurrent").tensor(input.name())) inputs.push_back(input);
  return make_call(spec_of("recurrent"), gradient.attributes, std::move(inputs), {});
}

// Each gradient against differences of the forward reference: of every fifth element, by steps of what f32 holds.
void expect_gradients(const Call& gradient) {
  const Values found = compute(gradient);
  for (const auto& [name, values] : found) {
    if (!gradient.given(name)) continue;  // "dg_gamma rounding"
    Call forward = forward_of(gradient);
    HostTensor& input = forward.input(name.substr(1));
    for (std::int64_t i = 0; i < input.elements(); i += 5) {
      const double was = input.at(i);
      if (std::isinf(was)) {
        EXPECT_EQ(values[static_cast<std::size_t>(i)], 0) << gradient.label << " " << name << " " << i;
        continue;
      }
      const double step = 1e-5;  // short against the shortest rows, whose norms are 1e-3
      double sum[2], at[2];
      for (const int side : {0, 1}) {
        input.set(i, was + (side ? step : -step));
        at[side] = input.at(i), sum[side] = weighed(gradient, forward);
      }
      input.set(i, was);
      const double slope = (sum[1] - sum[0]) / (at[1] - at[0]);
      EXPECT_NEAR(values[static_cast<std::size_t>(i)], slope, 2e-4 * (1 + std::abs(slope))) << gradient.label << " " << name << " " << i;
    }
  }
}

TEST(RecurrentBackward, IsTheSlopeOfTheForwardReference) {
  int calls = 0;
  for (const OptionCase& one : find_reference("recurrent_bwd")->option_cases()) {
    if (one.c.types.at("E") != "f32") continue;
    spec::Case c = one.c;
    for (const char* dim : {"K", "V"}) c.dims[dim] = std::get<std::int64_t>(c.dims.at(dim)) / 12;
    c.dims["T"] = std::min<std::int64_t>(std::get<std::int64_t>(c.dims.at("T")), 6);
    const auto seed = static_cast<std::uint64_t>(++calls);
    if (test::of_the_day(seed, 4)) expect_gradients(make_call(spec_of("recurrent_bwd"), c, seed));
  }
  EXPECT_GT(calls, 100);
}

TEST(RecurrentBackward, ItsLawsHoldOfItself) { check_random_calls("recurrent_bwd", 1, 40); }

TEST(Recurrent, ItsLawsHoldOfItself) { check_random_calls("recurrent", 1, 60); }

}  // namespace
}  // namespace ejk::reference::recurrent_test
