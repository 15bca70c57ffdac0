// Records of a spec's kernel: keys, sources, nearest sizes, gradients, and plans under a policy. Each test is a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "backends/backend.h"
#include "emulator/simt.hpp"
#include "execute/recorder_kernel.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

// Elements of a call of "shift": memory is not looked at by the chain.
struct Shift {
  explicit Shift(std::int64_t elements, DType type = DType::f32) : x(type, {elements}), out(type, {elements}) {
    call.kernel = "shift";
    call.tensors = {{"x", x}, {"out", out}};
  }
  Tensor x, out;
  Invocation call;
};

class SpecRecords : public StoreTest {
 protected:
  std::string cache_file() const { return (folder / "cache/tuned" / device() / "shift.jsonl").string(); }
  std::string device() const { return (*spec_kernel("shift"))->canonical(Shift(4).call).device; }
  void record(const Invocation& call, Config config, const std::string& source = {}) const {
    const auto kernel = *spec_kernel("shift");
    const auto canonical = kernel->canonical(call);
    auto row = measured(canonical.key(), std::move(config));
    const auto hash = kernel->source_hash(canonical, row.config);
    ASSERT_EQ(message_of(hash), "");
    row.source = source.empty() ? *hash : source;
    ASSERT_EQ(message_of(append_record((folder / "cache/tuned").string(), row)), "");
  }
  static Selection choose(const Invocation& call) {
    auto selection = Executor().choose(**spec_kernel("shift"), call);
    EXPECT_EQ(message_of(selection), "");
    return *selection;
  }
  static Config wide(std::int64_t block) { return {"wide", "cpu:generic", {{"block", block}}}; }
};

TEST_F(SpecRecords, ServeEqualCallsHoweverTheyAreWritten) {
  use_test_store();
  Shift shift(6);
  record(shift.call, wide(4));
  auto same = shift.call;
  same.attributes = {{"limit", std::int64_t{100}}, {"by", 7.5}};  // the default, and a varying one
  const auto selection = choose(same);
  EXPECT_EQ(selection.tier, Tier::persistent);
  EXPECT_EQ(selection.config, wide(4));
  ASSERT_TRUE(selection.record);
  EXPECT_EQ(selection.record->checked_against, "float64 reference");
  auto other = shift.call;
  other.attributes = {{"limit", std::int64_t{50}}};
  EXPECT_EQ(choose(other).tier, Tier::heuristic);
}

TEST_F(SpecRecords, WhoseSourceIsAnotherArePassedOver) {
  use_test_store();
  Shift shift(6);
  record(shift.call, wide(4), "0123456789abcdef");
  const auto selection = choose(shift.call);
  EXPECT_EQ(selection.tier, Tier::heuristic);
  EXPECT_NE(selection.trail[3].detail.find("row 1 of " + cache_file() + ": the source has changed since it was measured"),
            std::string::npos)
      << selection.trail[3].detail;
}

// What an edit of a source leaves of a record: its machine code, where a binary of today's source is here to tell.
TEST_F(SpecRecords, WhoseMachineCodeIsTheSameServeWhateverTheirSource) {
  use_test_store();
  Shift shift(6);
  const auto kernel = *spec_kernel("shift");
  const auto canonical = kernel->canonical(shift.call);
  auto row = measured(canonical.key(), wide(4));
  row.source = "0123456789abcdef";
  row.code = "fedcba9876543210";
  const auto records = (folder / "cache/tuned").string();
  ASSERT_EQ(message_of(append_record(records, row)), "");
  const auto detail = [&] { return choose(shift.call).trail[3].detail; };
  const auto changed = "row 1 of " + cache_file() + ": the source has changed since it was measured, and ";
  EXPECT_EQ(message_of(kernel->code_hash(canonical, wide(4))), "");
  EXPECT_EQ(*kernel->code_hash(canonical, wide(4)), "") << "nothing is compiled for an answer";
  EXPECT_NE(detail().find(changed + "no binary of it is here whose machine code could be compared"), std::string::npos) << detail();

  const auto config = wide(4);
  ASSERT_EQ(message_of(call("shift", shift.call.tensors, {}, {}, &config)), "");
  EXPECT_NE(detail().find(changed + "the machine code with it"), std::string::npos) << detail();
  const auto code = *kernel->code_hash(canonical, wide(4));
  EXPECT_EQ(code.size(), 16U);

  row.code = code;
  ASSERT_EQ(message_of(append_record(records, row)), "");
  const auto selection = choose(shift.call);
  EXPECT_EQ(selection.tier, Tier::persistent) << selection.detail;
  EXPECT_EQ(selection.config, wide(4));
}

// An entry that an older ejk made does not say its hash: the binary tells it.
TEST_F(SpecRecords, OfOldEntriesAreComparedByTheBinary) {
  use_test_store();
  Shift shift(6);
  const auto kernel = *spec_kernel("shift");
  const auto canonical = kernel->canonical(shift.call);
  const auto config = wide(4);
  ASSERT_EQ(message_of(call("shift", shift.call.tensors, {}, {}, &config)), "");
  const auto code = *kernel->code_hash(canonical, wide(4));
  ASSERT_EQ(code.size(), 16U);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "cache"))
    if (entry.path().filename() == "image.json") {
      std::ifstream in(entry.path());
      std::string info{std::istreambuf_iterator<char>(in), {}};
      const auto at = info.find("  \"code\": ");
      ASSERT_NE(at, std::string::npos) << info;
      std::ofstream(entry.path()) << info.erase(at, info.find('\n', at) + 1 - at);
    }
  EXPECT_EQ(*kernel->code_hash(canonical, wide(4)), code);
}

TEST_F(SpecRecords, OfAnUnknownVariantOrArchArePassedOverWithTheReason) {
  use_test_store();
  Shift shift(6);
  record(shift.call, wide(4));
  std::ifstream stream(cache_file());
  std::string line;
  std::getline(stream, line);
  auto with = [&](const std::string& from, const std::string& to) {
    auto text = line;
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
    std::ofstream(cache_file()) << text << '\n';
    return choose(shift.call).trail[3].detail;
  };
  EXPECT_NE(with("\"wide\"", "\"vast\"").find("no variant 'vast'"), std::string::npos);
  EXPECT_NE(with("cpu:generic", "cpu:avx9000").find("arch 'cpu:avx9000' does not run here"), std::string::npos);
}

// The test store with a template of its own for each variant.
std::filesystem::path two_templates(const std::filesystem::path& folder) {
  const auto store = folder / "store";
  std::filesystem::copy(test::source_dir() + "/tests/execute/data", store, std::filesystem::copy_options::recursive);
  std::filesystem::copy(store / "templates/shift/shift.cpu.cpp", store / "templates/shift/any.cpu.cpp");
  std::ifstream in(store / "specs/shift.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto last = text.rfind("shift/shift.cpu.cpp");
  text.replace(last, 19, "shift/any.cpu.cpp");
  std::ofstream(store / "specs/shift.json") << text;
  return store;
}

TEST_F(SpecRecords, ATemplateEditInvalidatesOnlyItsRows) {
  const auto store = two_templates(folder);
  const auto child = fork();  // the library reads a store once a process
  if (child == 0) {
    if (!add_store(store.string())) _exit(1);
    record(Shift(6).call, wide(4));
    record(Shift(7).call, {"any", "cpu:generic", {{"block", std::int64_t{1}}}});
    _exit(choose(Shift(6).call).tier == Tier::persistent && choose(Shift(7).call).tier == Tier::persistent ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  std::ofstream(store / "templates/shift/shift.cpu.cpp", std::ios::app) << "static_assert(true);\n";
  ASSERT_EQ(message_of(add_store(store.string())), "");
  const auto stale = choose(Shift(6).call);
  EXPECT_EQ(stale.config.variant, "any") << "the nearest row that is not stale: " << stale.detail;
  EXPECT_NE(stale.detail.find("row 1 of " + cache_file() + ": the source has changed"), std::string::npos) << stale.detail;
  EXPECT_EQ(choose(Shift(7).call).tier, Tier::persistent);
}

TEST_F(SpecRecords, TheNearestMeasuredSizeServesIfItIsValid) {
  use_test_store();
  record(Shift(16).call, wide(8));
  record(Shift(4).call, wide(4));
  const auto near = choose(Shift(32).call);
  EXPECT_EQ(near.tier, Tier::persistent);
  EXPECT_EQ(near.config, wide(8));
  EXPECT_EQ(near.detail, "nearest: " + cache_file() + ":1 measured at N=16 (here 32)");
  const auto small = choose(Shift(6).call);  // 4 is nearer than 16
  EXPECT_EQ(small.config, wide(4));
  EXPECT_EQ(choose(Shift(12).call).config, wide(8)) << "in log2, 12 is nearer to 16 than to 4";
  const auto odd = choose(Shift(7).call);
  EXPECT_EQ(odd.tier, Tier::heuristic) << "no measured config takes an odd size";
  EXPECT_NE(odd.trail[3].detail.find("variant 'wide' refuses this call: supports: N % 2 == 0"), std::string::npos) << odd.trail[3].detail;
}

TEST_F(SpecRecords, ARowSixteenTimesAwayIsTheFarthestThatServes) {
  use_test_store();
  record(Shift(2).call, wide(4));
  EXPECT_EQ(choose(Shift(32).call).tier, Tier::persistent);
  EXPECT_EQ(choose(Shift(34).call).tier, Tier::heuristic);
}

TEST_F(SpecRecords, ANearRowThatIsInvalidHereGivesWayToTheNextOne) {
  use_test_store();
  record(Shift(8).call, wide(8));
  record(Shift(2).call, wide(4));
  EXPECT_EQ(choose(Shift(6).call).config, wide(4)) << "blocks of 8 need 8 elements, and sizes are never rounded";
}

TEST_F(SpecRecords, NearMeansEqualInEverythingElse) {
  use_test_store();
  record(Shift(16).call, wide(4));
  EXPECT_EQ(choose(Shift(32, DType::f64).call).tier, Tier::heuristic) << "another type";
  Shift biased(32);
  biased.call.tensors["bias"] = biased.x;
  EXPECT_EQ(choose(biased.call).tier, Tier::heuristic) << "another set of tensors";
  Shift limited(32);
  limited.call.attributes["limit"] = std::int64_t{64};
  EXPECT_EQ(choose(limited.call).tier, Tier::heuristic) << "an attribute that the spec does not list";
  Shift measured_limited(16);
  measured_limited.call.attributes["limit"] = std::int64_t{50};
  record(measured_limited.call, wide(4));
  EXPECT_EQ(choose(limited.call).tier, Tier::heuristic) << "another value of it";
  limited.call.attributes["limit"] = std::int64_t{50};
  EXPECT_EQ(choose(limited.call).tier, Tier::persistent);
  EXPECT_EQ(choose(Shift(32).call).tier, Tier::persistent);
}

TEST_F(SpecRecords, NearnessIsToldByTheDimsOfTheSpec) {
  use_project_store();
  const auto kernel = *spec_kernel("mean_pooling");
  const auto key = [&](std::initializer_list<std::int64_t> shape, const std::map<std::string, Value>& attributes = {},
                       std::int64_t token_stride = 0) {
    Invocation call;
    call.kernel = "mean_pooling";
    call.device = "cpu-test";
    call.attributes = attributes;
    TensorView x(nullptr, DType::f32, shape);
    if (token_stride) x.strides[0] = x.shape[1] * token_stride, x.strides[1] = token_stride;
    call.tensors = {{"x", x}};
    return call.key();
  };
  const auto near = kernel->nearness(key({4, 100, 64}), key({1, 100, 128}));
  ASSERT_TRUE(near);
  EXPECT_DOUBLE_EQ(near->distance, 3);
  EXPECT_EQ(near->measured, "B=1 (here 4) C=128 (here 64)");
  EXPECT_FALSE(kernel->nearness(key({4, 100, 64}), key({400, 64}))) << "another rank";
  EXPECT_FALSE(kernel->nearness(key({4, 100, 64}), key({0, 100, 64}))) << "an empty one";
  EXPECT_FALSE(kernel->nearness(key({4, 100, 64}), key({4, 100, 64}, {{"chunk_size", std::int64_t{8}}}))) << "another form";
  EXPECT_FALSE(kernel->nearness(key({4, 100, 64}), key({4, 100, 64}, {}, 256))) << "strided, and this one is not";
  EXPECT_TRUE(kernel->nearness(key({4, 100, 64}, {}, 128), key({4, 200, 64}, {}, 256)));
  EXPECT_FALSE(kernel->nearness(key({4, 100, 64}), "{\"kernel\":\"mean_pooling\",\"device\":\"cpu-test\"}")) << "no such key";
}

TEST_F(SpecRecords, TheExactRowComesBeforeNearOnes) {
  use_test_store();
  record(Shift(16).call, wide(4));
  record(Shift(32).call, wide(2));
  EXPECT_EQ(choose(Shift(32).call).config, wide(2));
}

TEST_F(SpecRecords, PlansUnderAPolicyStayUnderIt) {
  use_test_store();
  Shift shift(6);
  const auto run = [&] { return message_of(call("shift", shift.call.tensors, {})); };
  ASSERT_EQ(run(), "");
  {
    const policy_override scope({.cache_miss_fallback = CacheMissFallback::error});
    EXPECT_NE(run().find("no tier has a config for this call"), std::string::npos) << "the heuristic's plan is not this policy's";
  }
  EXPECT_EQ(run(), "");
  const auto fake = std::make_shared<FakeTuner>();
  const TunerScope tuner(fake);
  fake->config = wide(4);
  ASSERT_EQ(run(), "");
  EXPECT_EQ(fake->asked, 0);
  {
    const policy_override scope(tuning);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(run(), "");
  }
  EXPECT_EQ(fake->asked, 1);
  EXPECT_EQ(choose(shift.call).tier, Tier::memory) << "what was measured serves every policy";
  EXPECT_TRUE(std::filesystem::exists(cache_file()));
}

TEST_F(SpecRecords, EnvironmentChoosesThePolicy) {
  setenv("EJKERNEL_AUTOTUNE_POLICY", "autotune", 1);
  use_test_store();
  const auto fake = std::make_shared<FakeTuner>();
  const TunerScope tuner(fake);
  fake->config = wide(4);
  EXPECT_EQ(choose(Shift(6).call).tier, Tier::autotune);
}

TEST_F(SpecRecords, BackwardIsTunedWithTheForwardIfThePolicySaysSo) {
  use_project_without_records();
  const auto kernel = spec_kernel("mean_pooling");
  ASSERT_EQ(message_of(kernel), "");
  const Tensor x(DType::f32, {2, 64, 32}), out(DType::f32, {2, 32});
  Invocation call;
  call.kernel = "mean_pooling";
  call.tensors = {{"x", x}, {"out", out}};
  const auto gradient = (*kernel)->gradient((*kernel)->canonical(call));
  ASSERT_EQ(message_of(gradient), "");
  ASSERT_EQ(gradient->calls.size(), 1U);
  const auto& backward = gradient->calls[0];
  EXPECT_EQ(backward.kernel->name(), "mean_pooling_bwd");
  EXPECT_EQ(backward.tensors, (std::map<std::string, std::string>{{"dout", "dout"}, {"dx", "dx"}}));
  EXPECT_NE(backward.invocation.key().find(R"("tensors":{"dout":["f32",[2,32]],"dx":["f32",[2,64,32]]})"), std::string::npos)
      << backward.invocation.key();
  const auto fake = std::make_shared<FakeTuner>();
  const TunerScope tuner(fake);
  auto policy = tuning;
  policy.validate_backward = true;
  const policy_override scope(policy);
  const auto selection = Executor().choose(**kernel, call);
  ASSERT_EQ(message_of(selection), "");
  EXPECT_EQ(selection->tier, Tier::autotune);
  EXPECT_NE(selection->detail.find("its gradient mean_pooling_bwd: autotune, measured in"), std::string::npos) << selection->detail;
  EXPECT_EQ(fake->asked, 2);
  EXPECT_EQ(Executor().choose(*backward.kernel, backward.invocation)->tier, Tier::memory);
}

// What an attribute says of a type that a tensor has is no second call: the same key, and the same record.
TEST_F(SpecRecords, ATypeThatIsChosenTwiceIsOneKey) {
  use_project_without_records();
  const auto kernel = spec_kernel("grouped_matmul");
  ASSERT_EQ(message_of(kernel), "");
  const Tensor lhs(DType::bf16, {2, 2, 7, 6}), rhs(DType::bf16, {2, 2, 6, 5}), out(DType::f32, {2, 2, 7, 5});
  Invocation call;
  call.kernel = "grouped_matmul";
  call.tensors = {{"lhs", lhs}, {"rhs", rhs}, {"out", out}};
  const auto plain = (*kernel)->canonical(call).key();
  call.attributes = {{"preferred_element_type", std::string("f32")}};
  EXPECT_EQ((*kernel)->canonical(call).key(), plain);
  call.tensors.erase("out");
  EXPECT_NE((*kernel)->canonical(call).key().find("preferred_element_type"), std::string::npos) << "nothing else says it here";
}

// grouped_matmul's gradient is two calls and a tensor that is there already.
TEST_F(SpecRecords, AGradientOfSeveralCalls) {
  use_project_without_records();
  const auto kernel = spec_kernel("grouped_matmul");
  ASSERT_EQ(message_of(kernel), "");
  const Tensor lhs(DType::bf16, {7, 6}), rhs(DType::f16, {2, 6, 5}), out(DType::f32, {7, 5}), existing(DType::f32, {7, 5});
  const Tensor sizes(DType::i32, {3});
  std::fill_n(sizes.data<std::int32_t>(), 3, 2);
  Invocation call;
  call.kernel = "grouped_matmul";
  call.tensors = {{"lhs", lhs}, {"rhs", rhs}, {"group_sizes", sizes}, {"out", out}};
  call.attributes = {{"group_offset", std::int64_t{1}}};
  const auto plain = (*kernel)->gradient((*kernel)->canonical(call));
  ASSERT_EQ(message_of(plain), "");
  EXPECT_TRUE(plain->equal.empty()) << "existing_out was not given";
  call.tensors.emplace("existing_out", existing);
  const auto gradient = (*kernel)->gradient((*kernel)->canonical(call));
  ASSERT_EQ(message_of(gradient), "");
  EXPECT_EQ(gradient->equal, (std::map<std::string, std::string>{{"dexisting_out", "dout"}}));
  ASSERT_EQ(gradient->calls.size(), 2U);
  const auto &dlhs = gradient->calls[0], &drhs = gradient->calls[1];
  EXPECT_EQ(dlhs.kernel->name(), "grouped_matmul");
  EXPECT_EQ(dlhs.tensors, (std::map<std::string, std::string>{{"lhs", "dout"}, {"out", "dlhs"}}));
  EXPECT_EQ(dlhs.invocation.tensors.at("lhs").type, DType::f32);
  EXPECT_EQ(dlhs.invocation.tensors.at("out").type, DType::bf16);
  EXPECT_EQ(dlhs.invocation.tensors.count("existing_out"), 0U);
  EXPECT_EQ(dlhs.invocation.attributes.at("transpose_rhs"), Value(true));
  EXPECT_EQ(dlhs.invocation.attributes.at("group_offset"), Value(std::int64_t{1}));
  EXPECT_EQ(drhs.kernel->name(), "tgmm");
  EXPECT_EQ(drhs.tensors, (std::map<std::string, std::string>{{"dout", "dout"}, {"out", "drhs"}}));
  EXPECT_EQ(drhs.invocation.attributes.at("groups"), Value(std::int64_t{2}));
  EXPECT_NE(drhs.invocation.key().find(R"("out":["f16",[2,6,5]])"), std::string::npos) << drhs.invocation.key();
  for (const auto& each : gradient->calls) EXPECT_EQ(message_of(each.kernel->heuristic_cfg(each.invocation)), "");
}

class Limits : public StoreTest {};

TEST_F(Limits, OfSharedMemoryMakeLargerConfigsInvalidAndTheHeuristicTakesTheNextValidOne) {
  setenv("EJKERNEL_SMEM_LIMIT", "60000", 1);
  add_backend(simt_backend());
  use_project_store();
  const auto kernel = spec_kernel("flash_attention");
  ASSERT_EQ(message_of(kernel), "");
  TensorView q(nullptr, DType::bf16, {1, 256, 4, 128});
  q.device = {DeviceType::extension, 0};
  Invocation call;
  call.kernel = "flash_attention";
  call.tensors = {{"q", q}, {"k", q}, {"v", q}, {"out", q}};
  const auto chosen = Executor().choose(**kernel, call);
  ASSERT_EQ(message_of(chosen), "");
  EXPECT_EQ((*kernel)->invalid_reason(call, chosen->config), "");
  EXPECT_EQ(chosen->config.variant, "mma");
  EXPECT_EQ(chosen->config.values.at("m_tiles"), Value(std::int64_t{1})) << "the heuristic's 2 take 70656 bytes";
  auto large = chosen->config;
  large.values["m_tiles"] = std::int64_t{2};
  EXPECT_NE((*kernel)->invalid_reason(call, large).find("shared <= arch.shared_memory"), std::string::npos)
      << (*kernel)->invalid_reason(call, large);
}

class Check : public StoreTest {};

TEST_F(Check, NaNOutOfFiniteInputsIsAnError) {
  setenv("EJKERNEL_CHECK", "on", 1);
  const auto store = two_templates(folder);
  std::string text;
  {
    std::ifstream in(store / "templates/shift/any.cpu.cpp");
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto at = text.find("out[");
  ASSERT_NE(at, std::string::npos) << text;
  const auto equals = text.find('=', at), end = text.find(';', equals);
  ASSERT_NE(end, std::string::npos);
  text.replace(equals, end - equals, "= x[i] == 3 ? __builtin_nanf(\"\") : x[i]");  // a kernel with a fault
  std::ofstream(store / "templates/shift/any.cpu.cpp") << text;
  ASSERT_EQ(message_of(add_store(store.string())), "");
  const auto run = [](Tensor x) {
    auto out = floats({0, 0, 0});
    return message_of(call("shift", {{"x", x}, {"out", out}}, {}));
  };
  EXPECT_EQ(run(floats({1, 2, 4})), "");
  EXPECT_EQ(run(floats({1, 2, 3})),
            R"(shift: out is NaN at [2], though every input is finite (EJKERNEL_CHECK=on); image shift.any.cpu_generic.f32.block1, )"
            R"(config {"arch":"cpu:generic","block":1,"variant":"any"})");
  EXPECT_EQ(run(floats({1, NAN, 3})), "") << "the caller's own NaN";
}

class EnvironmentErrors : public StoreTest, public ::testing::WithParamInterface<std::array<const char*, 3>> {};

TEST_P(EnvironmentErrors, NameTheVariableTheValueAndWhatIsLegal) {
  const auto& [name, value, legal] = GetParam();
  setenv(name, value, 1);
  use_test_store();
  EXPECT_EQ(message_of(call("shift", {}, {})),
            std::string("environment variable ") + name + " is '" + value + "'; expected " + legal + ", or unset it");
}

INSTANTIATE_TEST_SUITE_P(All, EnvironmentErrors,
                         ::testing::Values(std::array{"EJKERNEL_AUTOTUNE_POLICY", "sometimes", "autotune or heuristics"},
                                           std::array{"EJKERNEL_LOG_AUTOTUNE", "1", "on or off"},
                                           std::array{"EJKERNEL_CHECK", "yes", "on or off"},
                                           std::array{"EJKERNEL_OPS_STAMP", "text", "none, hash or json"},
                                           std::array{"EJKERNEL_SMEM_LIMIT", "48k", "a number of bytes from 0 (no limit) to 1073741824"},
                                           std::array{"EJKERNEL_SMEM_LIMIT", "-1", "a number of bytes from 0 (no limit) to 1073741824"},
                                           std::array{"EJKERNEL_AGREEMENT_TIMEOUT", "0", "a number of seconds from 1 to 86400"},
                                           std::array{"EJKERNEL_THREADS", "two", "a number from 0 (all) to 4096"}));

}  // namespace
}  // namespace ejk
