// Calls through the public C++ API on a small kernel: results, plans, fall-backs, counters.
#include <thread>

#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

class Call : public StoreTest {
 protected:
  void SetUp() override { use_test_store(); }

  Status shift(const TensorView& x, const TensorView& out, std::map<std::string, Value> attributes = {}, const Config* config = nullptr) {
    return call("shift", {{"x", x}, {"out", out}}, attributes, {}, config);
  }
};

TEST_F(Call, ComputesWithDefaultsAndWithAttributes) {
  auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
  ASSERT_EQ(message_of(shift(x, out)), "");
  EXPECT_EQ(out.data<float>()[3], 5.5f);
  ASSERT_EQ(message_of(shift(x, out, {{"by", 10.0}})), "");
  EXPECT_EQ(out.data<float>()[3], 14.0f);
  ASSERT_EQ(message_of(shift(x, out, {{"by", std::int64_t{2}}})), "") << "an integer widens to a float attribute";
  EXPECT_EQ(out.data<float>()[0], 3.0f);
}

TEST_F(Call, AVaryingAttributeNeedsNoNewPlan) {
  auto x = floats({1, 2}), out = floats({0, 0});
  ASSERT_TRUE(shift(x, out, {{"by", 1.0}}));
  const auto before = counters();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(shift(x, out, {{"by", static_cast<double>(i)}}));
  EXPECT_EQ(counters().plans, before.plans);
  EXPECT_EQ(counters().compiles, before.compiles);
  EXPECT_EQ(out.data<float>()[0], 10.0f);
}

TEST_F(Call, AVaryingAttributeIsJudgedOnEveryCall) {
  auto x = floats({1, 2}), out = floats({7, 7});
  ASSERT_TRUE(shift(x, out, {{"by", 1.0}}));
  EXPECT_EQ(message_of(shift(x, out, {{"by", 2000.0}})), "shift: by must be below 1000; found 2000.0");
  EXPECT_NE(message_of(shift(x, out, {{"by", std::numeric_limits<double>::quiet_NaN()}})).find("by is nan"), std::string::npos);
  EXPECT_EQ(out.data<float>()[0], 2.0f) << "nothing is written before an error";
}

TEST_F(Call, DataRulesAreJudgedOnEveryCall) {
  auto x = floats({1, 2}), out = floats({0, 0});
  Tensor offsets(DType::i32, {2});
  offsets.data<std::int32_t>()[0] = 0;
  offsets.data<std::int32_t>()[1] = 2;
  const std::map<std::string, TensorView> tensors{{"x", x}, {"out", out}, {"offsets", offsets}};
  ASSERT_EQ(message_of(call("shift", tensors, {})), "");
  offsets.data<std::int32_t>()[0] = 1;
  EXPECT_EQ(message_of(call("shift", tensors, {})), "shift: offsets must start at 0; found 1");
}

TEST_F(Call, AnOptionalBroadcastTensorIsUsed) {
  auto x = floats({1, 2, 3}), bias = floats({10}), out = floats({0, 0, 0});
  ASSERT_EQ(message_of(call("shift", {{"x", x}, {"bias", bias}, {"out", out}}, {})), "");
  EXPECT_EQ(out.data<float>()[2], 14.5f);
}

TEST_F(Call, AZeroSizedCallWritesNothing) {
  Tensor x(DType::f32, {0}), out(DType::f32, {0});
  EXPECT_EQ(message_of(shift(x, out)), "");
}

TEST_F(Call, AllocatesOutputs) {
  auto x = floats({1, 2, 3});
  const auto* kernel = find_kernel("shift");
  ASSERT_NE(kernel, nullptr);
  const TensorView* tensors[] = {&x.view(), nullptr, nullptr, nullptr};
  const AttributeValue attributes[] = {AttributeValue::of(2.0), {}};
  auto outputs = call_allocating(kernel, tensors, 0, attributes);
  ASSERT_EQ(message_of(outputs), "");
  EXPECT_EQ((*outputs)[0].view().shape[0], 3);
  EXPECT_EQ((*outputs)[0].data<float>()[2], 5.0f);
}

TEST_F(Call, RefusesABadCallBeforeWriting) {
  auto x = floats({1, 2}), out = floats({7, 7}), longer = floats({0, 0, 0});
  Tensor integers(DType::i32, {2});
  EXPECT_EQ(message_of(shift(x, longer)), "shift: out has shape [3], expected [N] with N = 2 (from x): dimension 0 is 3");
  EXPECT_EQ(message_of(shift(integers, out)), "shift: x has type i32, expected one of f32, f64");
  EXPECT_EQ(message_of(shift(x, {})), "shift: output out is missing, expected one of shape [2]");
  EXPECT_EQ(message_of(shift({}, out)), "shift: input x is missing, expected [N]");
  EXPECT_EQ(message_of(shift(TensorView(nullptr, DType::f32, {2}), out)),
            "shift: x has no memory: its data pointer is null, but it has 2 elements");
  EXPECT_EQ(message_of(call("shift", {{"x", x}, {"y", x}, {"out", out}}, {})), "shift: no tensor 'y'; it has x, bias, offsets, out");
  EXPECT_EQ(message_of(shift(x, out, {{"size", 1.0}})), "shift: no attribute 'size'; it has by, limit");
  EXPECT_EQ(message_of(call("shaft", {}, {})), "no kernel 'shaft'; the stores have shift");
  EXPECT_EQ(message_of(shift(x, out, {{"limit", std::int64_t{1}}})), "shift: x has 2 elements, more than limit = 1");
  EXPECT_EQ(out.data<float>()[0], 7.0f);
}

TEST_F(Call, RefusesOverlappingOutputsOnEveryCall) {
  auto buffer = floats({1, 2, 3, 4, 5, 6, 7, 8});
  const TensorView x(buffer.data<float>(), DType::f32, {4}), apart(buffer.data<float>() + 4, DType::f32, {4});
  const TensorView overlapping(buffer.data<float>() + 2, DType::f32, {4});
  ASSERT_EQ(message_of(shift(x, apart)), "");
  EXPECT_EQ(message_of(shift(x, overlapping)), "shift: output out overlaps input x in memory, expected memory of its own");
}

TEST_F(Call, RefusesTensorsOnADeviceWithoutABackend) {
  auto x = floats({1, 2}), out = floats({0, 0});
  auto there = x.view();
  there.device = {DeviceType::rocm, 1};
  EXPECT_EQ(message_of(shift(there, out)), "shift: out is on cpu, but x is on hip:1; all tensors of a call must be on one device");
}

TEST_F(Call, AnOverrideIsObeyedOrRefused) {
  auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
  const Config four{"wide", "", {{"block", std::int64_t{4}}}}, eight{"wide", "", {{"block", std::int64_t{8}}}};
  const Config unknown{"narrow", "", {}}, parameter{"", "", {{"tile", std::int64_t{8}}}};
  EXPECT_EQ(message_of(shift(x, out, {}, &four)), "");
  EXPECT_EQ(out.data<float>()[3], 5.5f);
  EXPECT_NE(message_of(shift(x, out, {}, &eight)).find("block <= 4 or N >= 8"), std::string::npos) << message_of(shift(x, out, {}, &eight));
  EXPECT_NE(message_of(shift(x, out, {}, &unknown)).find("no variant 'narrow'"), std::string::npos);
  EXPECT_NE(message_of(shift(x, out, {}, &parameter)).find("unknown parameter; the variants' are any: block; wide: block"),
            std::string::npos);
}

TEST_F(Call, ManyThreadsShareOnePlanAndGetTheirOwnResults) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
      for (int i = 0; i < 200; ++i) {
        wrong[t] += !shift(x, out, {{"by", static_cast<double>(t * 1.0)}});
        wrong[t] += out.data<float>()[3] != 4.0f + static_cast<float>(t);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8));
  EXPECT_EQ(counters().compiles, 1u) << "one image, compiled once";
}

TEST_F(Call, ExplainTellsVariantsTiersAndImage) {
  auto x = floats({1, 2, 3}), out = floats({0, 0, 0});
  const auto text = explain("shift", {{"x", x}, {"out", out}}, {});
  ASSERT_EQ(message_of(text), "");
  for (const auto* part : {"\"refused\"", "supports: N % 2 == 0", "\"heuristic\"", "shift.any.cpu_generic.f32.block1",
                           "compiled just in time", "\"compile\"", "not asked: the policy takes the heuristic (cache_miss_fallback)"})
    EXPECT_NE(text->find(part), std::string::npos) << part << " in " << *text;
}

class WithoutCompiler : public StoreTest {
 protected:
  // Compiles what the given calls need into the cache, then looks at it as a read-only pack with JIT off.
  void SetUp() override { use_test_store(); }
};

TEST_F(WithoutCompiler, JitOffIsAClearErrorThatNamesEveryPlace) {
  setenv("EJKERNEL_JIT", "off", 1);
  auto x = floats({1, 2, 3}), out = floats({0, 0, 0});
  const auto status = call("shift", {{"x", x}, {"out", out}}, {});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::missing_image);
  EXPECT_NE(status.error().message.find("EJKERNEL_JIT=off"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("shift.any.cpu_generic.f32.block1"), std::string::npos);
}

TEST_F(WithoutCompiler, ABadEnvironmentValueIsAnError) {
  setenv("EJKERNEL_JIT", "maybe", 1);
  EXPECT_EQ(message_of(call("shift", {}, {})), "environment variable EJKERNEL_JIT is 'maybe'; expected on, off or background, or unset it");
}

}  // namespace
}  // namespace ejk
