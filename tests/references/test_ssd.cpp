// Mamba-2's reference against hand-computed numbers and against recurrent's, its laws on itself, and its gradient against differences.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference::ssd_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

HostTensor f32(const std::string& name, std::vector<std::int64_t> shape, const Numbers& values) {
  return {name, DType::f32, std::move(shape), values};
}

// Three tokens of one head, with one feature and one column of state.
std::vector<HostTensor> three_tokens() {
  return {f32("x", {1, 3, 1, 1}, {5, 7, 1}), f32("dt", {1, 3, 1}, {1, 0.5, 2}), f32("A", {1}, {-std::log(2)}),
          f32("Bm", {1, 3, 1, 1}, {1, 2, 3}), f32("C", {1, 3, 1, 1}, {1, 2, 1})};
}

Values scanned(Attributes attributes, std::vector<HostTensor> inputs, std::vector<HostTensor> more = {}) {
  for (HostTensor& tensor : more) inputs.push_back(std::move(tensor));
  Call call = make_call(spec_of("ssd"), std::move(attributes), std::move(inputs), {});
  spec::check_live_requirements(call.binding);
  return compute(call);
}

void expect_near(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6 * std::abs(expected[i]) + 1e-9) << i;
}

TEST(Ssd, StepsScaleWhatIsWrittenAndDecayTheState) {
  const double second = 5 * std::sqrt(0.5) + 7, third = second / 4 + 6;
  const Values found = scanned({}, three_tokens());
  expect_near(found.at("out"), {5, 2 * second, third});
  expect_near(found.at("final_state"), {third});
  const Values skipped = scanned({}, three_tokens(), {f32("D", {1}, {10}), f32("initial_state", {1, 1, 1, 1}, {8})});
  expect_near(skipped.at("out"), {4 + 5 + 50, 2 * (4 * std::sqrt(0.5) + second) + 70, std::sqrt(0.5) + third + 10});
}

TEST(Ssd, TheBiasIsAddedBeforeSoftplus) {
  const double step = std::log1p(std::exp(1 - 3));
  const std::vector<HostTensor> one = {f32("x", {1, 1, 1, 1}, {5}), f32("dt", {1, 1, 1}, {1}), f32("A", {1}, {-2}),
                                       f32("Bm", {1, 1, 1, 1}, {1}), f32("C", {1, 1, 1, 1}, {1})};
  const std::vector<HostTensor> more = {f32("dt_bias", {1}, {-3}), f32("initial_state", {1, 1, 1, 1}, {100})};
  expect_near(scanned({{"dt_softplus", true}}, one, more).at("out"), {100 * std::exp(-2 * step) + 5 * step});
  expect_near(scanned({}, one, more).at("out"), {100 * std::exp(4) - 10});
}

TEST(Ssd, StatesHaveARowAFeatureAndHeadsShareGroups) {
  const Values found = scanned({}, {f32("x", {1, 1, 2, 2}, {1, 2, 3, 4}), f32("dt", {1, 1, 2}, {1, 1}), f32("A", {2}, {0, 0}),
                                    f32("Bm", {1, 1, 1, 3}, {1, 10, 100}), f32("C", {1, 1, 1, 3}, {1, 0, 1})});
  expect_near(found.at("final_state"), {1, 10, 100, 2, 20, 200, 3, 30, 300, 4, 40, 400});
  expect_near(found.at("out"), {101, 202, 303, 404});
}

TEST(Ssd, SequencesKeepApart) {
  const Values found =
      scanned({},
              {f32("x", {1, 4, 1, 1}, {1, 2, 3, nan}), f32("dt", {1, 4, 1}, {1, 1, 1, nan}), f32("A", {1}, {0}),
               f32("Bm", {1, 4, 1, 1}, {1, 1, 1, nan}), f32("C", {1, 4, 1, 1}, {1, 1, 1, nan})},
              {HostTensor("cum_seqlens", DType::i32, {4}, Numbers{0, 1, 1, 3}), f32("initial_state", {3, 1, 1, 1}, {10, 20, 30})});
  expect_near(found.at("out"), {11, 32, 35, 0});
  expect_near(found.at("final_state"), {11, 20, 35});
}

// A tensor [.., rows, columns] with the two exchanged.
Numbers exchanged(const Numbers& values, std::int64_t rows, std::int64_t columns) {
  Numbers result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i), within = at % (rows * columns);
    result[static_cast<std::size_t>(at - within + within % columns * rows + within / columns)] = values[i];
  }
  return result;
}

// recurrent with C, Bm and dt x as queries, keys and values, and dt A as its gate.
TEST(Ssd, IsRecurrentOnOperandsPreparedBefore) {
  spec::Case c;
  for (const char* type : {"E", "Et", "Ea"}) c.types[type] = "f32";
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"T", 9}, {"H", 4}, {"G", 2}, {"N", 5}, {"P", 3}}) c.dims[dim] = std::int64_t{size};
  c.given = {"initial_state"};
  Call call = make_call(spec_of("ssd"), c, 1);
  for (HostTensor& input : call.inputs)  // products of two are f32 numbers
    for (std::int64_t i = 0; i < input.elements(); ++i) input.set(i, std::round(64 * input.at(i)) / 64);
  const HostTensor &x = call.input("x"), &dt = call.input("dt"), &state = call.input("initial_state");
  Numbers values, gates;
  for (std::int64_t i = 0; i < x.elements(); ++i) values.push_back(x.at(i) * dt.at(i / 3));
  for (std::int64_t i = 0; i < dt.elements(); ++i) gates.push_back(dt.at(i) * call.input("A").at(i % 4));
  const auto named = [&](const char* name, const char* from) { return f32(name, call.input(from).shape(), call.input(from).values()); };
  const Call other = make_call(spec_of("recurrent"), {{"softmax_scale", 1.0}},
                               {named("q", "C"), named("k", "Bm"), f32("v", x.shape(), values), f32("g", dt.shape(), gates),
                                f32("initial_state", {2, 4, 5, 3}, exchanged(state.values(), 3, 5))},
                               {});
  const Values found = compute(call), expected = compute(other);
  expect_near(found.at("out"), expected.at("out"));
  expect_near(found.at("final_state"), exchanged(expected.at("final_state"), 5, 3));
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

// Each gradient against differences of the forward reference: of every fifth element, by steps of what f32 holds.
void expect_gradients(const Call& gradient) {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : gradient.inputs)
    if (spec_of("ssd").tensor(input.name())) inputs.push_back(input);
  for (const auto& [name, values] : compute(gradient)) {
    Call forward = make_call(spec_of("ssd"), gradient.attributes, inputs, {});
    HostTensor& input = forward.input(name.substr(1));
    for (std::int64_t i = 0; i < input.elements(); i += name == "dA" ? 1 : 5) {
      const double was = input.at(i), step = 1e-4 * std::max(1.0, std::abs(was));
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

TEST(SsdBackward, IsTheSlopeOfTheForwardReference) {
  int calls = 0;
  for (const OptionCase& one : find_reference("ssd_bwd")->option_cases()) {
    if (one.c.types.at("E") != "f32") continue;
    spec::Case c = one.c;
    for (const char* dim : {"N", "P"}) c.dims[dim] = std::get<std::int64_t>(c.dims.at(dim)) / 12;
    c.dims["T"] = std::min<std::int64_t>(std::get<std::int64_t>(c.dims.at("T")), 6);
    const auto seed = static_cast<std::uint64_t>(++calls);
    if (test::of_the_day(seed, 4)) expect_gradients(make_call(spec_of("ssd_bwd"), c, seed));
  }
  EXPECT_GT(calls, 60);
}

TEST(SsdBackward, ItsLawsHoldOfItself) { check_random_calls("ssd_bwd", 1, 40); }

TEST(Ssd, ItsLawsHoldOfItself) { check_random_calls("ssd", 1, 60); }

}  // namespace
}  // namespace ejk::reference::ssd_test
