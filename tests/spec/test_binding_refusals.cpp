// Binding: the exact message of every rule that bad input breaks.
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "tests/spec/binding_fixture.hpp"

namespace ejk::spec::binding_test {
namespace {

TEST(BadInput, UnknownNames) {
  CallFacts call = batched();
  call.tensors["biass"] = tensor(DType::f32, {1});
  EXPECT_EQ(error_of(attend(), call), "attend: there is no tensor 'biass'; did you mean 'bias'?");
  call = batched();
  call.attributes["casual"] = true;
  EXPECT_EQ(error_of(attend(), call), "attend: there is no attribute 'casual'; did you mean 'causal'?");
}

TEST(BadInput, MissingInput) {
  CallFacts call = batched();
  call.tensors.erase("k");
  EXPECT_EQ(error_of(attend(), call), "attend: input k is missing in the batched form, expected [B, Sk, Hkv, D]");
}

TEST(BadInput, TensorThatTheFormDoesNotTake) {
  const std::vector<std::int32_t> cum = {0, 10};
  CallFacts call = packed(cum);
  call.tensors["mask"] = tensor(DType::boolean, {2, 8});
  EXPECT_EQ(error_of(attend(), call), "attend: mask is given, but it is not accepted in the packed form");
}

TEST(BadInput, Attributes) {
  const auto with = [](const char* name, Value value) {
    CallFacts call = batched();
    call.attributes[name] = std::move(value);
    return error_of(attend(), call);
  };
  EXPECT_EQ(with("window", std::string("wide")), "attend: attribute window is 'wide' (string), expected an integer");
  EXPECT_EQ(with("causal", std::int64_t{1}), "attend: attribute causal is 1 (integer), expected a boolean");
  EXPECT_EQ(with("window", 2.5), "attend: attribute window is 2.5 (float), expected an integer");
  EXPECT_EQ(with("scale", std::nan("")), "attend: attribute scale is nan, expected a finite number");
  EXPECT_EQ(with("scale", std::numeric_limits<double>::infinity()), "attend: attribute scale is inf, expected a finite number");
  EXPECT_EQ(with("scale", -2.0), "attend: scale must not be negative; found -2.0");
  EXPECT_EQ(with("layout", std::string("XYZ")), "attend: attribute layout is 'XYZ', expected one of HND, NHD");
}

TEST(BadInput, Types) {
  CallFacts call = batched();
  call.tensors["q"].type = DType::i32;
  EXPECT_EQ(error_of(attend(), call), "attend: q has type i32, expected one of f32, bf16");
  call = batched();
  call.tensors["k"].type = DType::bf16;
  EXPECT_EQ(error_of(attend(), call), "attend: k has type bf16, expected f32 (the type of q)");
  call = batched();
  call.tensors["mask"] = tensor(DType::u8, {2, 8});
  EXPECT_EQ(error_of(attend(), call), "attend: mask has type u8, expected bool");
}

TEST(BadInput, RankAndSizes) {
  CallFacts call = batched();
  call.tensors["q"].shape = {2, 4, 384};
  EXPECT_EQ(error_of(attend(), call), "attend: q has shape [2, 4, 384], expected [B, Sq, Hq, D]: it has 3 dimensions");
  call = batched();
  call.tensors["sinks"] = tensor(DType::f32, {1, 1, 1});
  EXPECT_EQ(error_of(attend(), call), "attend: sinks has shape [1, 1, 1], expected [Hq, C] or [C]: it has 3 dimensions");
  call = batched();
  call.tensors["q"].shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(error_of(attend(), call), "attend: q has 9 dimensions, expected at most 8");
  call = batched();
  call.tensors["q"].shape = {2, -4, 6, 64};
  EXPECT_EQ(error_of(attend(), call), "attend: q has shape [2, -4, 6, 64]: dimension 1 is -4, expected 0 or more");
  call = batched();
  call.tensors["k"].shape = {2, 8, 2, 32};
  EXPECT_EQ(error_of(attend(), call),
            "attend: k has shape [2, 8, 2, 32], expected [B, Sk, Hkv, D] with D = 64 (from q): dimension 3 is 32");
}

TEST(BadInput, SizesThatFollowFromOthers) {
  const std::vector<std::int32_t> none;
  CallFacts call = packed(none);
  EXPECT_EQ(error_of(attend(), call), "attend: cum has shape [0], expected [N + 1]: dimension 0 is 0, expected at least 1");
  call = batched();
  call.tensors["pairs"] = tensor(DType::f32, {2, 3});
  EXPECT_EQ(error_of(attend(), call),
            "attend: pairs has shape [2, 3], expected [B, ceil_div(Sq, 2)] with ceil_div(Sq, 2) = 2: dimension 1 is 3");
}

TEST(BadInput, OutputOfAnotherShape) {
  CallFacts call = batched();
  call.tensors["out"].shape = {2, 4, 6, 32};
  EXPECT_EQ(error_of(attend(), call),
            "attend: out has shape [2, 4, 6, 32], expected [B, Sq, Hq, D] with D = 64 (from q): dimension 3 is 32");
}

TEST(BadInput, Strides) {
  CallFacts call = batched();
  call.tensors["q"].strides = {1536, 1, 256, 4};
  EXPECT_EQ(error_of(attend(), call),
            "attend: q has strides [1536, 1, 256, 4]: the innermost is 4, expected 1 (copy it into a contiguous tensor)");
  call = batched();
  call.tensors["q"].strides = {64, 1};
  EXPECT_EQ(error_of(attend(), call), "attend: q has 2 strides, expected 4, one a dimension of its shape [2, 4, 6, 64]");
  call = batched();
  call.tensors["q"].strides = {std::int64_t{1} << 62, 384, 64, 1};
  EXPECT_EQ(error_of(attend(), call),
            "attend: q has shape [2, 4, 6, 64] and strides [4611686018427387904, 384, 64, 1], which span more than 2^63 bytes");
}

TEST(BadInput, OutputThatOverlapsItself) {
  CallFacts call = batched();
  call.tensors["out"].strides = {0, 384, 64, 1};
  EXPECT_EQ(
      error_of(attend(), call),
      "attend: output out has shape [2, 4, 6, 64] and strides [0, 384, 64, 1]: its elements overlap, expected memory of its own for each");
  call.tensors["out"].strides = {1536, 384, 63, 1};
  EXPECT_NE(error_of(attend(), call), "no error");
  call.tensors["out"].strides = {1536, 384, 64, 1};
  EXPECT_EQ(error_of(attend(), call), "no error");
}

TEST(BadInput, OutputThatOverlapsAnInput) {
  CallFacts call = batched();
  const std::uintptr_t bytes = 2 * 4 * 6 * 64 * 4;
  call.tensors["q"].address = 4096;
  call.tensors["out"].address = 4096 + bytes - 4;
  EXPECT_EQ(error_of(attend(), call), "attend: output out overlaps input q in memory, expected memory of its own");
  call.tensors["out"].address = 4096 + bytes;
  EXPECT_EQ(error_of(attend(), call), "no error");
}

TEST(BadInput, RulesOfTheSpec) {
  CallFacts call = batched();
  call.tensors["k"].shape = {2, 8, 4, 64};
  EXPECT_EQ(error_of(attend(), call), "attend: Hq must be a multiple of Hkv; found Hq = 6, Hkv = 4");
}

TEST(BadInput, RulesThatReadData) {
  const std::vector<std::int32_t> late = {1, 3, 10}, down = {0, 5, 3}, long_ = {0, 3, 11};
  EXPECT_EQ(error_of(attend(), packed(late)), "attend: cum must start at 0; found 1");
  EXPECT_EQ(error_of(attend(), packed(down)), "attend: cum must not decrease");
  EXPECT_EQ(error_of(attend(), packed(long_)), "attend: cum must end within q's 10 tokens; found 11");
  CallFacts on_device = packed(late);
  on_device.tensors["cum"].host_data = nullptr;
  EXPECT_EQ(error_of(attend(), on_device), "no error");  // trusted where it cannot be read
}

}  // namespace
}  // namespace ejk::spec::binding_test
