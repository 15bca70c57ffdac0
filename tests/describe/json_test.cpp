// stable_json, and configs, invocations and values as JSON and back.
#include <gtest/gtest.h>

#include <limits>

#include "ejk/ejk.hpp"

namespace ejk {
namespace {

template <class T>
std::string words_of_error(const T& result) {
  return result ? "" : result.error().message;
}

TEST(StableJson, SortsKeysAndLeavesNoSpaces) {
  const auto text = stable_json(R"( { "b" : [1, 2.5, true , null], "a": {"z": "x y", "y": -0.0}, "c": 1.0 } )");
  ASSERT_TRUE(text) << words_of_error(text);
  EXPECT_EQ(*text, R"({"a":{"y":-0.0,"z":"x y"},"b":[1,2.5,true,null],"c":1.0})");
  EXPECT_EQ(*stable_json(*text), *text) << "what is stable stays as it is";
}

TEST(StableJson, RefusesWhatIsNoJson) {
  EXPECT_TRUE(words_of_error(stable_json("{\"a\": NaN}")).starts_with("stable_json:1:7: not JSON: "));
  EXPECT_TRUE(words_of_error(stable_json("[Infinity]")).starts_with("stable_json:1:2: not JSON: "));
  EXPECT_NE(words_of_error(stable_json(R"({"a": 1, "a": 2})")).find("the field 'a' occurs twice"), std::string::npos);
  EXPECT_NE(words_of_error(stable_json("[99999999999999999999]")), "") << "no integer of 64 bits";
  EXPECT_NE(words_of_error(stable_json("[1e999]")), "");
  EXPECT_NE(words_of_error(stable_json("\"\xff\"")), "") << "not UTF-8";
  EXPECT_NE(words_of_error(stable_json("")), "");
  EXPECT_NE(words_of_error(stable_json(std::string(100, '['))), "");
}

TEST(ValuesJson, GoThereAndBack) {
  const Values values{{"b", true}, {"i", std::int64_t{-7}}, {"f", 1.0}, {"s", std::string("a\"b")}};
  const auto text = to_json(values);
  ASSERT_TRUE(text) << words_of_error(text);
  EXPECT_EQ(*text, R"({"b":true,"f":1.0,"i":-7,"s":"a\"b"})");
  EXPECT_EQ(*from_json<Values>(*text), values) << "1.0 stays a float";
}

TEST(ValuesJson, RefusesWhatJsonCannotHold) {
  EXPECT_EQ(words_of_error(to_json(Values{{"scale", std::numeric_limits<double>::quiet_NaN()}})),
            "value 'scale' is nan, which JSON has no number for; expected a finite one");
  EXPECT_EQ(words_of_error(to_json(Values{{"cap", -std::numeric_limits<double>::infinity()}})),
            "value 'cap' is -inf, which JSON has no number for; expected a finite one");
  EXPECT_EQ(words_of_error(to_json(Values{{"s", std::string("\xc3")}})), "values: text that is not UTF-8; JSON holds no other");
  EXPECT_EQ(words_of_error(values_from_json("[1]")), "values is of type array; expected an object");
  EXPECT_EQ(words_of_error(values_from_json(R"({"a": [1]})")), "values: 'a' is of type array; expected a number, a boolean or a string");
}

TEST(ConfigJson, GoesThereAndBack) {
  const Config config{"tiled", "cpu:avx2", {{"block_m", std::int64_t{64}}, {"early", false}}};
  EXPECT_EQ(*from_json<Config>(to_json(config)), config);
}

class InvocationJson : public ::testing::Test {
 protected:
  InvocationJson() {
    const std::int64_t shape[] = {2, 3}, strides[] = {1, 2};
    invocation.kernel = "k";
    invocation.device = "cuda-nvidia-h200-132sm";
    invocation.tensors = {{"x", TensorView(memory, DType::bf16, {2, 3})},
                          {"y", TensorView(memory, DType::f32, shape, strides)},
                          {"one", TensorView(memory, DType::i32, std::span<const std::int64_t>())}};
    invocation.attributes = {{"causal", true}, {"scale", 0.5}, {"name", std::string("n")}};
    invocation.varying = {"scale"};
  }
  float memory[8] = {};
  Invocation invocation;
};

TEST_F(InvocationJson, IsItsKeyAndComesBackWithoutData) {
  const auto text = to_json(invocation);
  ASSERT_TRUE(text) << words_of_error(text);
  EXPECT_EQ(*text, invocation.key());
  EXPECT_EQ(*stable_json(*text), *text);
  const auto back = from_json<Invocation>(*text);
  ASSERT_TRUE(back) << words_of_error(back);
  EXPECT_EQ(back->key(), invocation.key());
  EXPECT_EQ(back->tensors.at("x").data, nullptr);
  EXPECT_EQ(back->tensors.at("x").device, (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(back->tensors.at("y").strides[1], 2);
  EXPECT_FALSE(back->attributes.contains("scale")) << "it varies";
}

TEST_F(InvocationJson, AnAttributeThatJsonCannotHoldIsRefusedUnlessItVaries) {
  invocation.attributes["scale"] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(to_json(invocation));
  invocation.attributes["cap"] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(words_of_error(to_json(invocation)), "k: attribute 'cap' is nan, which JSON has no number for; expected a finite one");
  invocation.attributes["cap"] = std::string("\xff");
  EXPECT_EQ(words_of_error(to_json(invocation)), "a call: text that is not UTF-8; JSON holds no other");
}

TEST_F(InvocationJson, FaultsAreNamed) {
  const auto fault = [](const std::string& text) { return words_of_error(invocation_from_json(text)); };
  EXPECT_EQ(fault(R"({"kernel":"k","device":"cpu","tensors":{}})"), "invocation: no 'attributes'");
  EXPECT_EQ(fault(R"({"kernel":"","device":"cpu","tensors":{},"attributes":{}})"),
            "invocation: 'kernel' must be a string that is not empty; found \"\"");
  EXPECT_EQ(fault(R"({"kernel":"k","device":"cpu","tensors":{"x":["f33",[1]]},"attributes":{}})"),
            "invocation: tensor 'x': no element type 'f33'");
  EXPECT_EQ(fault(R"({"kernel":"k","device":"cpu","tensors":{"x":["f32",[-1]]},"attributes":{}})"),
            "invocation: tensor 'x': the shape must be a list of integers of 0 or more; found [-1]");
  EXPECT_EQ(fault(R"({"kernel":"k","device":"cpu","tensors":{"x":["f32",[1,2],[1]]},"attributes":{}})"),
            "invocation: tensor 'x' has 1 strides, expected 2, one a dimension");
  EXPECT_EQ(fault(R"({"kernel":"k","device":"cpu","tensors":{"x":["f32",[1,1,1,1,1,1,1,1,1]]},"attributes":{}})"),
            "invocation: tensor 'x': the shape has 9 entries; a tensor has at most 8 dimensions");
  EXPECT_EQ(fault(R"({"kernel":"k","device":"cpu","tensors":{},"attributes":{},"seed":1})"),
            "invocation: no field 'seed'; expected kernel, device, tensors, attributes");
  EXPECT_EQ(fault("[]"), "invocation: expected an object, found array");
}

}  // namespace
}  // namespace ejk
