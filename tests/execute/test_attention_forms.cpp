// attention and scaled_dot_product_attention as a caller meets them: calls of another kernel, their gradients, and what they refuse.
#include "execute/strange_views.hpp"

namespace ejk::attention_forms_test {
namespace {

class AttentionForms : public StoreTest {
 protected:
  void SetUp() override { use_project_store(); }

  static reference::Call make(const char* kernel, std::vector<std::string> given, std::map<std::string, spec::Value> attributes = {}) {
    spec::Case c;
    c.name = "small";
    c.dims = {{"B", 3L}, {"Sq", 9L}, {"Sk", 14L}, {"Hq", 4L}, {"Hkv", 2L}, {"D", 16L}, {"Dv", 24L}};
    c.types = {{"E", "f32"}, {"Eb", "f32"}};
    c.given = std::move(given);
    c.attributes = std::move(attributes);
    return reference::make_call(reference::spec_of(kernel), c, 11);
  }

  static std::map<std::string, TensorView> views_of(const reference::Call& call) {
    std::map<std::string, TensorView> views;
    for (const auto* list : {&call.inputs, &call.outputs})
      for (const auto& tensor : *list) views[tensor.name()] = tensor.view();
    return views;
  }

  static const GradientCall& gradient_of(const reference::Call& call, Result<Gradient>& gradient) {
    Invocation invocation;
    invocation.kernel = call.spec->kernel;
    invocation.tensors = views_of(call);
    invocation.attributes = call.attributes;
    const auto kernel = spec_kernel(call.spec->kernel);
    gradient = (*kernel)->gradient((*kernel)->canonical(invocation));
    if (!gradient || gradient->calls.size() != 1) throw std::runtime_error("no gradient of one call: " + message_of(gradient));
    return gradient->calls.front();
  }
};

const Config plain{"plain", "generic", {}}, tiled{"tiled", "generic", {}};

TEST_F(AttentionForms, RunOnTheImagesOfFlashAttention) {
  expect_right(make("attention", {"attention_mask", "lse"}, {{"causal", true}}), plain);
  for (const auto* config : {&plain, &tiled})
    expect_right(make("scaled_dot_product_attention", {"query_seq_lengths", "key_value_seq_lengths", "lse"}, {{"causal", true}}), *config);
  const auto call = make("scaled_dot_product_attention", {});
  const auto text = explain("scaled_dot_product_attention", views_of(call), call.attributes, &plain);
  ASSERT_EQ(message_of(text), "");
  EXPECT_NE(text->find("\"id\": \"flash_attention.plain.cpu_generic.f32"), std::string::npos) << *text;
}

TEST_F(AttentionForms, TheGradientStartsWhereTheCallDoes) {
  const auto call = make("scaled_dot_product_attention", {"key_value_seq_lengths", "bias"}, {{"causal", true}, {"window_left", 3L}});
  Result<Gradient> gradient = Error{};
  const auto& backward = gradient_of(call, gradient);
  EXPECT_EQ(backward.kernel->name(), "flash_attention_bwd");
  EXPECT_EQ(std::get<std::int64_t>(backward.invocation.attributes.at("causal_offset")), 0);
  EXPECT_EQ(std::get<std::int64_t>(backward.invocation.attributes.at("window_left")), 3);
  for (const char* name : {"key_value_seq_lengths", "lse", "dout", "dq", "dk", "dv", "dbias"})
    EXPECT_TRUE(backward.invocation.tensors.contains(name)) << name;
  for (const char* name : {"query_seq_lengths", "attention_mask", "weights", "dweights"})
    EXPECT_FALSE(backward.invocation.tensors.contains(name)) << name;
}

TEST_F(AttentionForms, TheWeightsHaveAGradient) {
  Result<Gradient> gradient = Error{};
  const auto& backward = gradient_of(make("attention", {"attention_mask"}), gradient);
  for (const char* name : {"weights", "dweights", "attention_mask"}) EXPECT_TRUE(backward.invocation.tensors.contains(name)) << name;
  // A caller of flash_attention who does not ask for them gives none back: the fast variants take the call.
  const auto& without = gradient_of(make("flash_attention", {"attention_mask"}), gradient);
  for (const char* name : {"weights", "dweights"}) EXPECT_FALSE(without.invocation.tensors.contains(name)) << name;
}

TEST_F(AttentionForms, NameThemselvesInErrors) {
  const auto call = make("attention", {"attention_mask"});
  auto views = views_of(call);
  views.erase("weights");
  EXPECT_EQ(message_of(ejk::call("attention", views, {}, {}, &plain)),
            "attention: output weights is missing, expected one of shape [3, 4, 9, 14]");
  views = views_of(call);
  views["query_seq_lengths"] = views.at("q");
  EXPECT_NE(message_of(ejk::call("attention", views, {}, {}, &plain)).find("attention: no tensor 'query_seq_lengths'"), std::string::npos);
  const auto other = make("scaled_dot_product_attention", {});
  EXPECT_NE(message_of(ejk::call("scaled_dot_product_attention", views_of(other), {{"causal_offset", 1L}}, {}, &plain))
                .find("scaled_dot_product_attention: no attribute 'causal_offset'"),
            std::string::npos);
}

}  // namespace
}  // namespace ejk::attention_forms_test
