// Configs that fault, hang, spoil memory or are wrong: each is rejected with its reason, and the caller lives.
#include <cstdlib>

#include "emulator/simt.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"
#include "tune/fixture.hpp"

namespace ejk {
namespace {

std::string worker_path() { return test::binary_dir() + "/bin/ejk"; }

class Traps : public StoreTest {
 protected:
  void SetUp() override {
    ::setenv("ASAN_OPTIONS", "symbolize=0:intercept_tls_get_addr=0", 1);  // workers': to name the lines of a fault takes a second or two
    ASSERT_TRUE(add_store(test::source_dir() + "/tests/tune/data"));
  }
};

TEST_F(Traps, OnTheCpu) {
  const auto outcome = tune_trap(trap_call("cpu"), worker_path(), 120, 2);
  expect_traps_told(outcome, "its process ended: ", "2 s");
  EXPECT_LT(outcome.ratio, 0.7);
  const auto& record = outcome.record;
  EXPECT_EQ(record.checked_against, "the default config's result");
  EXPECT_FALSE(record.samples_us.empty());
  EXPECT_FALSE(record.source.empty());
  EXPECT_EQ(record.alternatives.at(0).first, record.baseline);
}

TEST_F(Traps, InALargeOutputThatIsComparedInWindows) {
  const auto outcome = tune_trap(trap_call("cpu", 5'000'000), worker_path(), 240, 10);
  EXPECT_EQ(outcome.record.checked_against, "the default config's result, 33 windows of each large output");
  EXPECT_EQ(trial_of(outcome, 4).reason, "out: memory beside it was written");
  EXPECT_NE(trial_of(outcome, 5).reason.find("out["), std::string::npos) << trial_of(outcome, 5).reason;
  EXPECT_EQ(trial_of(outcome, 7).reason, "it changed an input");
  EXPECT_EQ(deed_of(outcome.record.config), 1);
}

TEST_F(Traps, OnAGpuAsTheEmulatorHasIt) {
  add_backend(simt_backend());
  // The limit is from 2 to 5 s, by how long the default config takes on this machine.
  expect_traps_told(tune_trap(trap_call("simt"), worker_path(), 60, 5), "its process ended: ", "");
}

TEST_F(Traps, ATrapThatIsTheDefaultIsAnErrorAndNoRecord) {
  Tensor x(DType::f32, {10}), out(DType::f32, {10});
  std::fill_n(x.data<float>(), 10, 1.0f);
  std::fill_n(out.data<float>(), 10, 7.0f);
  AutotuneOptions options;
  options.budget_seconds = 10;
  options.worker = worker_path();
  const auto kernel = spec_kernel("trap");
  ASSERT_TRUE(kernel);
  struct Fatal : Kernel {  // the spec's kernel with a heuristic that faults
    const Kernel& of;
    explicit Fatal(const Kernel& of_) : of(of_) {}
    std::string name() const override { return of.name(); }
    std::vector<Config> config_space(const Invocation& call) const override { return of.config_space(call); }
    Result<Config> heuristic_cfg(const Invocation& call) const override {
      auto config = of.heuristic_cfg(call);
      config->values["deed"] = std::int64_t{2};
      return config;
    }
    Status run(const Invocation& call, const Config& config) const override { return of.run(call, config); }
  };
  const RecordedCall call(trap_call("cpu"));
  const auto images = images_of(call.kernel(), call.invocation());
  WorkerLab lab(worker_path(), {call.invocation().key(), {}});
  try {
    search(Fatal(**kernel), call.invocation(), lab, *images, {10, 1, 2});
    FAIL() << "a default that faults was accepted";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("the default config"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("its process ended"), std::string::npos) << e.what();
  }
}

class Autotune : public Traps {
 protected:
  AutotuneOptions options() const {
    AutotuneOptions options;
    options.budget_seconds = 20;
    options.step_seconds = 1;
    options.worker = worker_path();
    return options;
  }
};

TEST_F(Autotune, LeavesTheCallersTensorsAlone) {
  Tensor x(DType::f32, {1000}), out(DType::f32, {1000});
  std::fill_n(x.data<float>(), 1000, 1.0f);
  std::fill_n(out.data<float>(), 1000, 7.0f);
  const auto record = autotune("trap", {{"x", x}, {"out", out}}, {{"by", 3.0}}, options());
  ASSERT_EQ(message_of(record), "");
  EXPECT_EQ(deed_of(record->config), 1);
  EXPECT_TRUE(std::all_of(out.data<float>(), out.data<float>() + 1000, [](float v) { return v == 7; }));
  EXPECT_TRUE(std::all_of(x.data<float>(), x.data<float>() + 1000, [](float v) { return v == 1; }));
}

TEST_F(Autotune, SaysWhereItLookedForTheWorker) {
  Tensor x(DType::f32, {10}), out(DType::f32, {10});
  auto none = options();
  none.worker = (folder / "nowhere/ejk").string();
  const auto record = autotune("trap", {{"x", x}, {"out", out}}, {}, none);
  EXPECT_EQ(message_of(record), "no worker program: looked for " + none.worker);
  EXPECT_EQ(make_tuner(none)->unavailable(**spec_kernel("trap"), {}), message_of(record));
}

TEST_F(Autotune, RefusesACallThatIsNotLegal) {
  Tensor x(DType::f32, {10}), out(DType::f32, {11});
  const auto record = autotune("trap", {{"x", x}, {"out", out}}, {}, options());
  ASSERT_FALSE(record);
  EXPECT_NE(message_of(record).find("out"), std::string::npos) << message_of(record);
}

TEST_F(Autotune, OfARecordingTunesEachCallOnceAndPassesOverOtherDevices) {
  const auto path = (folder / "calls.jsonl").string();
  auto call = trap_call("cpu"), elsewhere = call;
  elsewhere["device"] = "cuda-sm_99-1sms";
  call["label"] = "ignored";
  std::ofstream(path) << call.dump() << "\n" << elsewhere.dump() << "\n\n" << call.dump() << "\n";
  const auto records = autotune_recorded(path, options());
  ASSERT_EQ(message_of(records), "");
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ(deed_of(records->front().config), 1);
  std::ofstream(path, std::ios::app) << "{\"kernel\": \"trap\", \"device\": \"" << call["device"].get<std::string>() << "\"}\n";
  EXPECT_EQ(message_of(autotune_recorded(path, options())),
            path + ":5: recorded call: 'tensors' is missing; expected an object of [type, shape, strides?]");
}

TEST_F(Autotune, KnownConfigsOfAnEarlierRunAreNotTriedAgain) {
  int asked = 0;
  SearchHooks hooks;
  hooks.known = [&](Trial& trial) {
    if (deed_of(trial.config) != 3) return false;
    trial.state = Trial::State::rejected;
    trial.reason = "it hung before";
    return ++asked == 1;
  };
  const auto outcome = tune_trap(trap_call("cpu"), worker_path(), 30, 5, hooks);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(trial_of(outcome, 3).reason, "it hung before");
  EXPECT_LT(outcome.seconds, 25);
}

TEST_F(Autotune, ThePolicyTunesCallsOfCppProgramsByItself) {
  set_tuner(make_tuner(options()));
  const policy_override scope({.allow_autotune = true, .cache_miss_fallback = CacheMissFallback::autotune});
  Tensor x(DType::f32, {1000}), out(DType::f32, {1000});
  std::fill_n(x.data<float>(), 1000, 2.0f);
  ASSERT_EQ(message_of(call("trap", {{"x", x}, {"out", out}}, {})), "");
  EXPECT_EQ(out.data<float>()[0], 5.0f);
  Invocation again;
  again.kernel = "trap";
  again.tensors = {{"x", x}, {"out", out}};
  const auto selection = Executor().choose(**spec_kernel("trap"), again);
  ASSERT_EQ(message_of(selection), "");
  EXPECT_EQ(deed_of(selection->config), 1);
  EXPECT_EQ(selection->tier, Tier::memory);
}

}  // namespace
}  // namespace ejk
