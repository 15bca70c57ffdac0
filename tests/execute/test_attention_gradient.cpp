// flash_attention_bwd as a caller meets it: after the forward pass, on any number of threads, on sizes and views that are easy to get
// wrong.
#include <cstring>
#include <limits>

#include "execute/strange_views.hpp"

namespace ejk::attention_gradient_test {
namespace {

const Config plain{"plain", "generic", {}}, tiled{"tiled", "generic", {}};

struct Problem {
  Dims dims = {{"B", 2L}, {"Sq", 5L}, {"Sk", 7L}, {"Hq", 4L}, {"Hkv", 2L}, {"D", 16L}, {"Dv", 24L}};
  std::vector<std::string> given = {"attention_mask"};
  std::map<std::string, spec::Value> attributes;

  Problem with(const Dims& changed) const {
    auto problem = *this;
    for (const auto& [name, value] : changed) problem.dims[name] = value;
    return problem;
  }
  reference::Call make(const Arrangement& arrangement = {}, const char* kernel = "flash_attention_bwd") const {
    spec::Case c;
    c.name = "nasty";
    c.dims = dims;
    c.types = {{"E", "f32"}, {"Eb", "f32"}, {"Es", "f32"}};
    c.given = given;
    c.attributes = attributes;
    return reference::make_call(reference::spec_of(kernel), c, 7, arrangement);
  }
};

// With a mask, or packed with dropout: options, so that one image of each variant serves every test.
Problem packed() {
  Problem problem;
  problem.dims = {{"N", 3L}, {"Tq", 9L}, {"Tk", 11L}, {"Hq", 4L}, {"Hkv", 2L}, {"D", 16L}, {"Dv", 24L}};
  problem.given = {"cum_seqlens_q", "cum_seqlens_k"};
  problem.attributes["dropout_prob"] = 0.25;
  return problem;
}

Problem with_bias() {
  auto problem = Problem().with({{"Bb", 1L}, {"Hb", 4L}, {"A", 3L}});
  problem.given = {"attention_mask", "bias", "softmax_aux", "dbias", "dsoftmax_aux"};
  return problem;
}

class AttentionGradient : public StoreTest {
 protected:
  void SetUp() override { use_project_store(); }

  static void right(const reference::Call& call, const Place& place = {}, std::int64_t misalign = 0) {
    expect_right(call, plain, place, misalign);
    expect_right(call, tiled, place, misalign);
  }

  // The bytes of all outputs.
  static std::vector<std::byte> bytes(reference::Call call, const Config& config) {
    const auto views = views_of(call);
    EXPECT_EQ(message_of(ejk::call(call.spec->kernel, views, call.attributes, {}, &config)), "");
    std::vector<std::byte> all;
    for (const auto& output : call.outputs) {
      const auto some = output.row_major_bytes();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  static std::map<std::string, TensorView> views_of(const reference::Call& call) {
    std::map<std::string, TensorView> views;
    for (const auto* list : {&call.inputs, &call.outputs})
      for (const auto& tensor : *list) views[tensor.name()] = tensor.view();
    return views;
  }
};

TEST_F(AttentionGradient, OverZeroSizes) {
  for (const Dims& dims : {Dims{{"B", 0L}}, {{"Sq", 0L}}, {{"Sk", 0L}}, {{"Hq", 0L}}, {{"Hq", 0L}, {"Hkv", 0L}}, {{"Sq", 0L}, {"Sk", 0L}}})
    right(Problem().with(dims).make());
  for (const Dims& dims : {Dims{{"D", 0L}}, Dims{{"Dv", 0L}}}) expect_right(Problem().with(dims).make(), plain);
}

TEST_F(AttentionGradient, PackedOverZeroSizes) {
  for (const Dims& dims :
       {Dims{}, {{"N", 0L}}, {{"Tq", 0L}}, {{"Tk", 0L}}, {{"N", 0L}, {"Tq", 0L}, {"Tk", 0L}}, {{"N", 40L}}, {{"Hq", 0L}}})
    right(packed().with(dims).make());
}

TEST_F(AttentionGradient, OfBiasAndSinksOverZeroSizes) {
  right(with_bias().make());
  for (const Dims& dims : {Dims{{"Sq", 0L}}, {{"Sk", 0L}}, {{"A", 0L}}, {{"B", 0L}}, {{"Hb", 1L}}, {{"B", 1L}}})
    right(with_bias().with(dims).make());
}

TEST_F(AttentionGradient, OnStrangeViews) {
  for (const auto& call : {Problem().make(), with_bias().make()}) {
    right(call, far_apart);
    right(call, far_rows);
    right(call, far_apart, 4);
    right(call, transposed);
    right(call, backwards);
  }
  right(Problem().make({Layout{.broadcast = true}, true}));
  right(with_bias().make({Layout{.padded = true, .permuted = true, .unaligned = true, .outputs = true}, true}));
}

TEST_F(AttentionGradient, OfRowsThatSeeNoKeyIsZero) {
  auto hidden = with_bias().make();
  auto& mask = hidden.input("attention_mask");
  for (std::int64_t i = 0; i < mask.elements(); ++i) mask.set(i, 0);
  reference::find_reference("flash_attention_bwd")->complete(hidden);
  right(hidden);
  auto causal = Problem().with({{"Sq", 20L}, {"Sk", 3L}});
  causal.attributes["causal"] = true;
  right(causal.make());
}

// As model code masks: finfo.min for all keys of a row, whose log-sum-exp then does not tell how many there are.
TEST_F(AttentionGradient, OfRowsOfTheLowestFiniteBias) {
  for (const double lowest : {-static_cast<double>(std::numeric_limits<float>::max()), -0x1.fep127, -1e30, -0x1p40}) {
    auto problem = Problem().with({{"Bb", 2L}, {"Hb", 4L}});
    problem.given = {"attention_mask", "bias", "dbias"};
    auto call = problem.make();
    auto& bias = call.input("bias");
    for (std::int64_t i = 0; i < bias.elements(); ++i)  // rows of 7 keys
      if (i / 7 % 3 == 0 || (i / 7 % 3 == 1 && i % 2 == 0)) bias.set(i, lowest);
    for (std::int64_t i = 0; i < 7; i += 2) bias.set(i, -std::numeric_limits<double>::infinity());  // and these hide keys of such a row
    reference::find_reference("flash_attention_bwd")->complete(call);
    right(call);
  }
}

// Rows of -1e9, another such number, whose scores f32 and f64 alike hold if queries are 0.
TEST_F(AttentionGradient, OfRowsOfALowBias) {
  auto problem = Problem().with({{"Bb", 1L}, {"Hb", 1L}});
  problem.given = {"attention_mask", "bias", "dbias"};
  auto call = problem.make();
  auto& q = call.input("q");
  for (std::int64_t i = 0; i < q.elements(); ++i) q.set(i, 0);
  auto& bias = call.input("bias");
  for (std::int64_t i = 0; i < bias.elements(); ++i) bias.set(i, i % 5 == 0 ? -std::numeric_limits<double>::infinity() : -1e9);
  reference::find_reference("flash_attention_bwd")->complete(call);
  right(call);
}

TEST_F(AttentionGradient, AtExtremeOffsetsAndWindows) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (const auto offset : {most, least})
    for (const auto window : {std::int64_t{2}, most}) {
      Problem problem;
      problem.attributes = {{"causal", true}, {"causal_offset", offset}, {"window_left", window}, {"window_right", window}};
      right(problem.make());
    }
}

// Enough keys that several items share a head, each with a part of dq.
TEST_F(AttentionGradient, OfManyKeysIsGatheredInParts) {
  auto batched = with_bias().with({{"Sq", 70L}, {"Sk", 1300L}, {"Hb", 1L}});
  batched.attributes = {{"causal", true}, {"causal_offset", std::int64_t{1000}}};
  right(batched.make());
  right(packed().with({{"Tq", 90L}, {"Tk", 1500L}}).make());
}

TEST_F(AttentionGradient, HasTheSameBitsOnAnyNumberOfThreads) {
  auto problem = with_bias().with({{"Sq", 150L}, {"Sk", 700L}, {"Hb", 1L}});
  problem.attributes = {{"causal", true}, {"deterministic", true}};
  for (const auto* config : {&plain, &tiled}) {
    ASSERT_TRUE(set_threads(1));
    const auto alone = bytes(problem.make(), *config);
    for (const int threads : {2, 3, 5}) {
      ASSERT_TRUE(set_threads(threads));
      EXPECT_EQ(bytes(problem.make(), *config), alone) << config->variant << " on " << threads << " threads";
    }
  }
}

// The forward kernel's own out and lse, and its dropout pattern, give the gradients that the float64 forward pass would have given.
TEST_F(AttentionGradient, FollowsTheForwardKernel) {
  auto problem = Problem().with({{"Sq", 60L}, {"Sk", 90L}, {"A", 3L}});
  problem.attributes = {{"dropout_prob", 0.3}, {"dropout_seed", std::int64_t{99}}, {"causal", true}};
  problem.given = {"attention_mask", "softmax_aux", "lse"};
  const auto forward = problem.make({}, "flash_attention");
  problem.given = {"attention_mask", "softmax_aux", "dsoftmax_aux"};
  auto backward = problem.make();  // the same seed: the same inputs
  for (const auto* config : {&plain, &tiled}) {
    ASSERT_EQ(message_of(ejk::call("flash_attention", views_of(forward), forward.attributes, {}, config)), "");
    auto call = backward;
    for (const char* name : {"out", "lse"}) call.input(name).assign(forward.find(name)->values());
    const auto truth = reference::compute(backward);
    ASSERT_EQ(message_of(ejk::call("flash_attention_bwd", views_of(call), call.attributes, {}, config)), "");
    for (const auto& output : call.outputs)
      EXPECT_EQ(reference::compare(output, truth.at(output.name()), 1e-5).message, "") << config->variant;
  }
}

TEST_F(AttentionGradient, IsTheCallThatBelongsToAForwardCall) {
  const auto forward = with_bias();
  auto problem = forward;
  problem.given = {"attention_mask", "bias", "softmax_aux"};
  problem.attributes["causal"] = true;
  const auto call = problem.make({}, "flash_attention");
  const auto kernel = spec_kernel("flash_attention");
  ASSERT_EQ(message_of(kernel), "");
  Invocation invocation;
  invocation.kernel = "flash_attention";
  invocation.tensors = views_of(call);
  invocation.attributes = call.attributes;
  const auto gradient = (*kernel)->gradient((*kernel)->canonical(invocation));
  ASSERT_EQ(message_of(gradient), "");
  ASSERT_EQ(gradient->calls.size(), 1U);
  const auto& backward = gradient->calls.front();
  EXPECT_EQ(backward.kernel->name(), "flash_attention_bwd");
  EXPECT_TRUE(std::get<bool>(backward.invocation.attributes.at("causal")));
  for (const char* name : {"q", "lse", "dout", "dq", "dk", "dv", "dbias", "dsoftmax_aux"})
    EXPECT_TRUE(backward.invocation.tensors.contains(name)) << name;
}

TEST_F(AttentionGradient, NamesWhatIsWrongWithABiasOrItsGradient) {
  const auto message = [](const reference::Call& call, const std::function<void(std::map<std::string, TensorView>&)>& spoil) {
    auto views = views_of(call);
    spoil(views);
    return message_of(ejk::call("flash_attention_bwd", views, call.attributes, {}, &plain));
  };
  const auto call = with_bias().make();
  EXPECT_EQ(message(call, [](auto& views) { views.erase("bias"); }),
            "flash_attention_bwd: dbias is the gradient of bias, which is not given");
  EXPECT_EQ(message(call, [](auto& views) { views.erase("softmax_aux"); }),
            "flash_attention_bwd: dsoftmax_aux is the gradient of softmax_aux, which is not given");
  EXPECT_EQ(message(call, [](auto& views) { views.at("bias").shape[1] = views.at("dbias").shape[1] = 3; }),
            "flash_attention_bwd: bias's second dimension must be 1 or Hq = 4; found 3");
}

}  // namespace
}  // namespace ejk::attention_gradient_test
