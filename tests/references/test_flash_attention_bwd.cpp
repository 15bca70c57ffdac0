// The reference of the attention gradient against finite differences of the forward reference: every option alone, and in pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "reference/element.hpp"
#include "reference/kernels/attention_scores.hpp"
#include "references/calls.hpp"

namespace ejk::reference::flash_attention_bwd_test {
namespace {

using Numbers = std::vector<double>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

spec::Case plain_case() {
  spec::Case c;
  c.name = "small";
  c.types = {{"E", "f32"}, {"Eb", "f32"}, {"Es", "f32"}};
  for (const auto& [dim, size] : {std::pair{"B", 2}, {"Sq", 4}, {"Sk", 5}, {"Hq", 2}, {"Hkv", 2}, {"D", 3}, {"Dv", 3}})
    c.dims[dim] = std::int64_t{size};
  return c;
}

void give(spec::Case& c, std::initializer_list<const char*> tensors) { c.given.insert(c.given.end(), tensors.begin(), tensors.end()); }

struct Option {
  const char* name;
  void (*apply)(spec::Case&);
  bool packs = false, batched = false;  // needs the packed form; exists in the batched one only
};

const Option options[] = {
    {"causal", [](spec::Case& c) { c.attributes["causal"] = true; }},
    {"causal_offset", [](spec::Case& c) { c.attributes["causal_offset"] = std::int64_t{2}; }},
    {"window", [](spec::Case& c) { c.attributes["window_left"] = std::int64_t{1}, c.attributes["window_right"] = std::int64_t{1}; }},
    {"softmax_scale", [](spec::Case& c) { c.attributes["softmax_scale"] = 0.3; }},
    {"logits_soft_cap", [](spec::Case& c) { c.attributes["logits_soft_cap"] = 1.5; }},
    {"dropout", [](spec::Case& c) { c.attributes["dropout_prob"] = 0.4, c.attributes["dropout_seed"] = std::int64_t{-5}; }},
    {"bias", [](spec::Case& c) { give(c, {"bias"}), c.dims["Bb"] = c.dims["B"], c.dims["Hb"] = c.dims["Hq"]; }, false, true},
    {"attention_mask", [](spec::Case& c) { give(c, {"attention_mask"}); }, false, true},
    {"segments",
     [](spec::Case& c) {
       give(c, {"q_segment_ids", "kv_segment_ids"});
     },
     false, true},
    {"lengths",
     [](spec::Case& c) {
       give(c, {"query_seq_lengths", "key_value_seq_lengths"});
     },
     false, true},
    {"weights",
     [](spec::Case& c) {
       give(c, {"weights", "dweights"});
     },
     false, true},
    {"sinks", [](spec::Case& c) { give(c, {"softmax_aux"}), c.dims["A"] = std::int64_t{3}; }},
    {"sink_a_head", [](spec::Case& c) { give(c, {"softmax_aux"}), c.dims["A"] = c.dims["Hq"]; }},
    {"groups", [](spec::Case& c) { c.dims["Hq"] = std::int64_t{4}; }},
    {"value_dim", [](spec::Case& c) { c.dims["Dv"] = std::int64_t{5}; }},
    {"packed",
     [](spec::Case& c) {
       for (const char* dim : {"B", "Sq", "Sk"}) c.dims.erase(dim);
       c.dims["N"] = std::int64_t{3}, c.dims["Tq"] = std::int64_t{7}, c.dims["Tk"] = std::int64_t{8};
       give(c, {"cum_seqlens_q", "cum_seqlens_k"});
     },
     true},
};

bool both_sinks(const Option& first, const Option& second) {
  return std::string_view(first.name).starts_with("sink") && std::string_view(second.name).starts_with("sink");
}

// The backward call of a case: the forward pass's inputs, out, lse and a random dout, with every gradient wanted. `shared`: bias and
// sinks of the smallest shape.
Call backward_call(spec::Case c, std::uint64_t seed, bool shared) {
  if (c.dims.contains("Bb") && shared) c.dims["Bb"] = c.dims["Hb"] = std::int64_t{1};
  const auto given = [&](const char* tensor) { return std::find(c.given.begin(), c.given.end(), tensor) != c.given.end(); };
  if (given("bias")) {
    c.given.push_back("dbias");
    c.dims["Bb"] = shared ? spec::Value{std::int64_t{1}} : c.dims.at("B");
    c.dims["Hb"] = shared ? spec::Value{std::int64_t{1}} : c.dims.at("Hq");
  }
  if (given("softmax_aux")) c.given.push_back("dsoftmax_aux");
  return make_call(spec_of("flash_attention_bwd"), c, seed, {Layout{}, shared});
}

double inner_product(const Numbers& a, const Numbers& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

// <out(inputs), dout> + <weights(inputs), dweights>, by the forward reference.
double objective(const Call& backward) {
  std::vector<HostTensor> inputs;
  for (const HostTensor& tensor : backward.inputs)
    if (spec_of("flash_attention").tensor(tensor.name()) && tensor.name() != "out" && tensor.name() != "lse" && tensor.name() != "weights")
      inputs.push_back(tensor);
  std::vector<std::string> outputs = {"lse"};
  if (backward.given("weights")) outputs.push_back("weights");
  const Call forward = make_call(spec_of("flash_attention"), backward.attributes, std::move(inputs), outputs);
  const Values values = compute(forward);
  const double of_out = inner_product(values.at("out"), backward.input("dout").values());
  return backward.given("weights") ? of_out + inner_product(values.at("weights"), backward.input("dweights").values()) : of_out;
}

// (f(x + h) - f(x - h)) / 2h; h is what f32 makes of it.
double difference(Call& call, HostTensor& tensor, std::int64_t i, double h) {
  const double x = tensor.at(i);
  tensor.set(i, x + h);
  const double above = objective(call), up = tensor.at(i);
  tensor.set(i, x - h);
  const double below = objective(call), down = tensor.at(i);
  tensor.set(i, x);
  return (above - below) / (up - down);
}

// Of a sample of elements, all if they are few: Richardson's step removes the error of second order.
void expect_gradient(Call& call, const Values& gradients, const char* input, const char* gradient) {
  HostTensor* tensor = call.find(input);
  if (!tensor) return;
  const Numbers& expected = gradients.at(gradient);
  ASSERT_EQ(expected.size(), at(tensor->elements())) << call.label;
  const std::int64_t step = std::max<std::int64_t>(1, tensor->elements() / 24);
  for (std::int64_t i = 0; i < tensor->elements(); i += step) {
    const double found = (4 * difference(call, *tensor, i, 0.01) - difference(call, *tensor, i, 0.02)) / 3;
    ASSERT_NEAR(expected[at(i)], found, 1e-5 * (1 + std::fabs(found))) << gradient << " " << i << " of " << call.label;
  }
}

void check_gradients(const spec::Case& c, std::uint64_t seed, bool shared) {
  Call call = backward_call(c, seed, shared);
  const Values gradients = compute(call);
  expect_gradient(call, gradients, "q", "dq");
  expect_gradient(call, gradients, "k", "dk");
  expect_gradient(call, gradients, "v", "dv");
  expect_gradient(call, gradients, "bias", "dbias");
  expect_gradient(call, gradients, "softmax_aux", "dsoftmax_aux");
}

TEST(FlashAttentionBackward, IsTheGradientWithoutOptions) { check_gradients(plain_case(), 1, false); }

TEST(FlashAttentionBackward, IsTheGradientWithEachOptionAlone) {
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    for (const Option& option : options) {
      spec::Case c = plain_case();
      option.apply(c);
      c.name = option.name;
      check_gradients(c, seed, seed % 2 == 1);
    }
}

TEST(FlashAttentionBackward, IsTheGradientWithEachPairOfOptions) {
  std::uint64_t seed = 100;
  for (const Option& first : options)
    for (const Option& second : options) {
      if (&first >= &second || (first.batched && second.packs) || both_sinks(first, second)) continue;
      spec::Case c = plain_case();
      first.apply(c);
      second.apply(c);
      c.name = std::string(first.name) + " and " + second.name;
      if (test::of_the_day(seed, 4)) check_gradients(c, seed, seed % 2 == 1);
      ++seed;
    }
}

double root_mean_square(const Numbers& x) {
  return std::sqrt(inner_product(x, x) / static_cast<double>(std::max<std::size_t>(x.size(), 1)));
}

// Values that are nearly one value make gradients that cancel to a thousandth of what they are made of: what rounding leaves is forgiven,
// but not delta left out.
TEST(FlashAttentionBackward, GradientsThatCancelAreForgivenTheirRounding) {
  spec::Case c = plain_case();
  c.dims["B"] = std::int64_t{1}, c.dims["Sk"] = std::int64_t{1000};
  Call call = backward_call(c, 5, false);
  Rng rng(5);
  for (std::int64_t i = 0; i < call.input("v").elements(); ++i) call.input("v").set(i, 1 + 1e-3 * rng.normal());
  find_reference("flash_attention_bwd")->complete(call);
  const Values truth = compute(call);
  const Numbers& dq = truth.at("dq");
  const double rounding = rounding_of(truth, "dq");
  EXPECT_LT(1e-5 * root_mean_square(dq), rounding / 10);
  const auto good = [&](const Numbers& found) { return compare("dq", call.input("q").shape(), found, dq, 1e-5, rounding).ok(); };
  Numbers rounded = dq, rough = dq;
  for (double& x : rounded) x += 0.5 * rounding * rng.normal();
  for (double& x : rough) x += 2 * rounding * rng.normal();
  EXPECT_TRUE(good(rounded));
  EXPECT_FALSE(good(rough));
  Call without_delta = call;
  without_delta.input("out").assign(Numbers(at(call.input("out").elements()), 0.0));
  EXPECT_FALSE(good(compute(without_delta).at("dq")));
}

// The gradients of one head without options as a kernel on matrix instructions makes them, but in float64: dS goes through `round`, and dq
// misses key `forgotten`.
struct RoundingKernel {
  double (*round)(double);
  std::int64_t forgotten = -1;

  void operator()(Call& call) const {
    const std::int64_t sq = call.dim("Sq"), sk = call.dim("Sk"), d = call.dim("D");
    const double scale = call.floating("softmax_scale");
    const auto of = [&](const char* name) { return call.input(name).values(); };
    const Numbers q = of("q"), k = of("k"), v = of("v"), out = of("out"), lse = of("lse"), dout = of("dout");
    Numbers dq(q.size(), 0.0), dk(k.size(), 0.0), dv(v.size(), 0.0);
    const auto dot = [&](const Numbers& a, std::int64_t i, const Numbers& b, std::int64_t j) {
      return std::inner_product(a.begin() + i * d, a.begin() + (i + 1) * d, b.begin() + j * d, 0.0);
    };
    for (std::int64_t i = 0; i < sq; ++i)
      for (std::int64_t j = 0; j < sk; ++j) {
        const double p = std::exp(scale * dot(q, i, k, j) - lse[at(i)]);
        const double ds = round(p * (dot(dout, i, v, j) - dot(dout, i, out, i)));
        for (std::int64_t e = 0; e < d; ++e) {
          if (j != forgotten) dq[at(i * d + e)] += scale * ds * k[at(j * d + e)];
          dk[at(j * d + e)] += scale * ds * q[at(i * d + e)];
          dv[at(j * d + e)] += p * dout[at(i * d + e)];
        }
      }
    call.find("dq")->assign(dq), call.find("dk")->assign(dk), call.find("dv")->assign(dv);
  }
};

double to_bf16(double x) { return decode16(encode16(x, 8, 7), 8, 7); }
double to_f16(double x) { return decode16(encode16(x, 5, 10), 5, 10); }
double with_three_bits_less(double x) { return decode16(encode16(x, 8, 4), 8, 4); }

// How many of 40 calls with one key for all pass.
int right_where_keys_are_alike(const char* type, std::int64_t queries, std::int64_t keys, const RoundingKernel& kernel) {
  int right = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    spec::Case c;
    c.types = {{"E", type}};
    for (const auto& [dim, size] :
         {std::pair{"B", std::int64_t{1}}, {"Sq", queries}, {"Sk", keys}, {"Hq", 1}, {"Hkv", 1}, {"D", 16}, {"Dv", 16}})
      c.dims[dim] = size;
    Call call = make_call(spec_of("flash_attention_bwd"), c, seed);
    HostTensor& k = call.input("k");
    for (std::int64_t i = 16; i < k.elements(); ++i) k.set(i, k.at(i % 16));
    find_reference("flash_attention_bwd")->complete(call);
    right += first_failure(verify_call(*find_reference("flash_attention_bwd"), call, kernel)).empty();
  }
  return right;
}

// What seeds 2502919614698420949 and 819797440877185675 of `ejk verify` found: dS adds up to 0, and its rounding is all that is left of dq.
TEST(FlashAttentionBackward, RoundedScoreGradientsAreRightWhereKeysAreAlike) {
  for (const std::int64_t queries : {1, 24, 128})
    for (const std::int64_t keys : {2, 13, 31, 257}) {
      EXPECT_EQ(right_where_keys_are_alike("bf16", queries, keys, {to_bf16}), 40) << queries << " queries, " << keys << " keys";
      EXPECT_EQ(right_where_keys_are_alike("f16", queries, keys, {to_f16}), 40) << queries << " queries, " << keys << " keys";
    }
}

TEST(FlashAttentionBackward, MistakesAreFoundWhereKeysAreAlike) {
  EXPECT_EQ(right_where_keys_are_alike("bf16", 24, 257, {with_three_bits_less}), 0);
  EXPECT_EQ(right_where_keys_are_alike("bf16", 24, 257, {to_bf16, 5}), 0);
  EXPECT_EQ(right_where_keys_are_alike("f16", 24, 257, {to_bf16}), 0);
}

// What rounding is forgiven could hide a mistake in which keys count, so the calls that look for it must not cancel: those of every option
// and pair do not.
TEST(FlashAttentionBackward, GradientsOfEveryOptionAreJudgedByThemselves) {
  std::uint64_t seed = 900;
  for (const OptionCase& option : find_reference("flash_attention_bwd")->option_cases()) {
    if (!test::of_the_day(++seed, 4)) continue;
    const Call call = make_call(spec_of("flash_attention_bwd"), option.c, seed);
    const Values truth = compute(call);
    for (const char* gradient : {"dq", "dk"})
      EXPECT_GE(tolerance_of(call, *call.find(gradient)) * root_mean_square(truth.at(gradient)), rounding_of(truth, gradient))
          << gradient << " of " << option.c.name;
  }
}

// One batch row and head, all dims 1, scale 1.
Values gradients_of(std::map<std::string, spec::Value> attributes, const Numbers& q, const Numbers& k, const Numbers& v, const Numbers& out,
                    const Numbers& lse, const Numbers& dout, std::vector<HostTensor> more = {}) {
  const auto sq = static_cast<std::int64_t>(q.size()), sk = static_cast<std::int64_t>(k.size());
  std::vector<HostTensor> inputs;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, const Numbers& values) {
    inputs.emplace_back(name, DType::f32, std::move(shape), values);
  };
  add("q", {1, sq, 1, 1}, q), add("k", {1, sk, 1, 1}, k), add("v", {1, sk, 1, 1}, v);
  add("out", {1, sq, 1, 1}, out), add("lse", {1, 1, sq}, lse), add("dout", {1, sq, 1, 1}, dout);
  for (HostTensor& tensor : more) inputs.push_back(std::move(tensor));
  attributes.emplace("softmax_scale", 1.0);
  return compute(make_call(spec_of("flash_attention_bwd"), std::move(attributes), std::move(inputs), {}));
}

TEST(FlashAttentionBackward, TwoKeysByHand) {
  // Equal scores: p = 1/2 each, out = 4, ds = p (v - out) dout.
  const Values g = gradients_of({}, {2}, {0, 0}, {3, 5}, {4}, {std::log(2.0)}, {1});
  EXPECT_NEAR(g.at("dv")[0], 0.5, 1e-6);
  EXPECT_NEAR(g.at("dv")[1], 0.5, 1e-6);
  EXPECT_NEAR(g.at("dk")[0], -1, 1e-6);
  EXPECT_NEAR(g.at("dk")[1], 1, 1e-6);
  EXPECT_NEAR(g.at("dq")[0], 0, 1e-6);
}

TEST(FlashAttentionBackward, ASinkLosesWhatTheKeysGain) {
  // A key and a sink of equal weight: out = v / 2, and both gradients are p p' v dout of opposite sign.
  const HostTensor sink("softmax_aux", DType::f32, {1}, Numbers{0});
  const Values g = gradients_of({}, {1}, {0}, {6}, {3}, {std::log(2.0)}, {1}, {sink});
  EXPECT_NEAR(g.at("dsoftmax_aux")[0], -1.5, 1e-6);
  EXPECT_NEAR(g.at("dk")[0], 1.5, 1e-6);
}

TEST(FlashAttentionBackward, AQueryThatSeesNoKeyHasNoGradientEvenOfNaN) {
  const Values g = gradients_of({{"causal", true}}, {NAN, 1}, {0}, {3}, {0, 3}, {-infinity, 0}, {NAN, 1});
  EXPECT_EQ(g.at("dq"), (Numbers{0, 0}));
  EXPECT_EQ(g.at("dk"), (Numbers{0}));
  EXPECT_EQ(g.at("dv"), (Numbers{1}));
}

TEST(FlashAttentionBackward, ABiasOfMinusInfinityGivesItsKeyNothing) {
  const HostTensor bias("bias", DType::f32, {1, 1, 1, 2}, Numbers{0, -infinity});
  const Values g = gradients_of({}, {1}, {0, 7}, {3, 9}, {3}, {0}, {1}, {bias});
  EXPECT_EQ(g.at("dv"), (Numbers{1, 0}));
  EXPECT_EQ(g.at("dk"), (Numbers{0, 0}));
  EXPECT_EQ(g.at("dbias"), (Numbers{0, 0}));
}

TEST(FlashAttentionBackward, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("flash_attention_bwd", 500, 25); }

// Weights that no forward pass leaves would send kernels another way than a benchmark is to time.
TEST(FlashAttentionBackward, EstimatedLogSumExpsLeaveNoLargeWeights) {
  for (const char* given : {"", "bias"}) {
    spec::Case c = plain_case();
    c.attributes["causal"] = true;
    c.dims["Sq"] = c.dims["Sk"] = std::int64_t{400};
    c.dims["Hq"] = c.dims["Bb"] = std::int64_t{2}, c.dims["Hb"] = std::int64_t{2};
    c.dims["D"] = std::int64_t{32};
    if (*given) give(c, {given});
    const Call call = make_call(spec_of("flash_attention_bwd"), c, 1);
    const std::vector<double> exact = call.input("lse").values(), estimated = expected_lse(call);
    ASSERT_EQ(exact.size(), estimated.size());
    for (std::size_t row = 0; row < exact.size(); ++row)
      EXPECT_GT(estimated[row], exact[row] - std::log(2)) << "row " << row << " " << given;
  }
}

// A row of the lowest finite biases is a mean, whose gradient it has, though its log-sum-exp holds no count of keys in f32.
TEST(FlashAttentionBackward, KeysOfTheLowestFiniteBiasShareTheirRow) {
  spec::Case c = plain_case();
  give(c, {"bias", "dbias"});
  c.dims["B"] = c.dims["Hq"] = c.dims["Hkv"] = c.dims["Sq"] = c.dims["Bb"] = c.dims["Hb"] = std::int64_t{1};
  Call call = make_call(spec_of("flash_attention_bwd"), c, 3);
  HostTensor& bias = call.input("bias");
  for (std::int64_t j = 0; j < bias.elements(); ++j) bias.set(j, -std::numeric_limits<float>::max());
  find_reference("flash_attention_bwd")->complete(call);
  ASSERT_EQ(call.input("lse").at(0), -0x1p40);
  const Values found = compute(call);
  const HostTensor &v = call.input("v"), &dout = call.input("dout");
  double mean_product = 0;
  for (std::int64_t e = 0; e < 15; ++e) mean_product += v.at(e) * dout.at(e % 3) / 5;
  for (std::int64_t j = 0; j < 5; ++j) {
    double product = 0;
    for (std::int64_t e = 0; e < 3; ++e) {
      product += v.at(3 * j + e) * dout.at(e);
      EXPECT_NEAR(found.at("dv")[at(3 * j + e)], dout.at(e) / 5, 1e-12);
    }
    EXPECT_NEAR(found.at("dbias")[at(j)], (product - mean_product) / 5, 1e-6);  // out is f32
  }
}

TEST(FlashAttentionBackward, AKernelThatForgetsDropoutOrDeltaIsCaught) {
  const auto caught = [](const char* attribute, const spec::Value& value) {
    const Execute careless = [=](Call& call) {
      Call other = call;
      if (attribute) {
        other.attributes[attribute] = value;
      } else {
        HostTensor& out = other.input("out");
        out.assign(Numbers(at(out.elements()), 0.0));
      }
      other.rebind();
      const Values values = compute(other);
      for (HostTensor& output : call.outputs) output.assign(values.at(output.name()));
    };
    spec::Case c = plain_case();
    c.attributes["dropout_prob"] = 0.3;
    Call call = make_call(spec_of("flash_attention_bwd"), c, 1);
    return first_failure(verify_call(*find_reference("flash_attention_bwd"), call, careless)) != "";
  };
  EXPECT_TRUE(caught("dropout_prob", 0.0));
  EXPECT_TRUE(caught("dropout_seed", std::int64_t{1}));
  EXPECT_TRUE(caught("softmax_scale", 0.5));
  EXPECT_TRUE(caught(nullptr, {}));
}

}  // namespace
}  // namespace ejk::reference::flash_attention_bwd_test
