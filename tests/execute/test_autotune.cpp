// Policies, the autotune tier and events, on a kernel without a spec and a tuner that measures nothing.
#include "execute/recorder_kernel.hpp"
#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

std::int64_t tile(const Config& config) { return std::get<std::int64_t>(config.values.at("tile")); }

class Autotune : public StoreTest {
 protected:
  ConfigSelectorChain chain(AutotunePolicy policy = {}) {
    return {std::make_shared<ConfigCache>(),
            std::make_shared<PersistentCache>(std::vector<std::string>{records()}, RecordsWriting{records(), ""}), policy};
  }
  std::string records() const { return (folder / "tuned").string(); }
  std::filesystem::path file() const { return folder / "tuned" / "cpu-test" / "recorder.jsonl"; }
  std::shared_ptr<FakeTuner> fake = std::make_shared<FakeTuner>();
  TunerScope tuner{fake};
};

TEST_F(Autotune, HeuristicsAreTheDefaultAndAskNoTuner) {
  const auto selection = chain().select(Recorder(), invocation());
  ASSERT_EQ(message_of(selection), "");
  EXPECT_EQ(selection->tier, Tier::heuristic);
  EXPECT_EQ(fake->asked, 0);
  EXPECT_FALSE(std::filesystem::exists(file())) << "a heuristic's choice is no record";
}

TEST_F(Autotune, MeasuresOnceRemembersAndRecords) {
  const auto tiers = chain(tuning);
  const auto first = tiers.select(Recorder(), invocation());
  ASSERT_EQ(message_of(first), "");
  EXPECT_EQ(first->tier, Tier::autotune);
  EXPECT_EQ(tile(first->config), 3);
  ASSERT_TRUE(first->record);
  EXPECT_EQ(first->record->median_us, 5);
  EXPECT_NE(first->detail.find("measured in "), std::string::npos) << first->detail;
  EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::memory);
  EXPECT_EQ(fake->asked, 1);
  const auto again = chain().select(Recorder(), invocation());  // another process, in effect
  EXPECT_EQ(again->tier, Tier::persistent);
  EXPECT_EQ(tile(again->config), 3);
  EXPECT_EQ(again->detail, file().string() + ":1");
}

TEST_F(Autotune, OverridesAndOverlaysAreNeverWritten) {
  const auto tiers = chain(tuning);
  const auto cfg = Recorder::with(2);
  const auto selection = tiers.select(Recorder(), invocation(), &cfg);
  EXPECT_EQ(selection->tier, Tier::override_);
  {
    const overlay_cache scope("", Recorder::with(2));
    EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::overlay);
  }
  EXPECT_EQ(tiers.memory().size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(fake->asked, 0);
}

TEST_F(Autotune, CfgWinsOverWhatWasMeasured) {
  const auto tiers = chain(tuning);
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  const auto cfg = Recorder::with(2);
  EXPECT_EQ(tile(tiers.select(Recorder(), invocation(), &cfg)->config), 2);
}

TEST_F(Autotune, EveryFieldOfThePolicyCounts) {
  const auto tiers = chain();
  const auto under = [&](AutotunePolicy policy) {
    const policy_override scope(policy);
    tiers.memory().clear();
    std::filesystem::remove_all(records());
    return tiers.select(Recorder(), invocation());
  };
  using enum CacheMissFallback;
  EXPECT_EQ(under({.cache_miss_fallback = autotune})->tier, Tier::autotune);
  EXPECT_EQ(under({.allow_autotune = false, .cache_miss_fallback = autotune})->tier, Tier::heuristic);
  EXPECT_EQ(under({.cache_miss_fallback = heuristics})->tier, Tier::heuristic);
  EXPECT_EQ(under({.allow_heuristics = false, .cache_miss_fallback = autotune})->tier, Tier::autotune);
  const auto none = under({.cache_miss_fallback = error});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
  for (const auto* part : {"recorder: no tier has a config for this call:", "override: the call gives no cfg", "overlay: no scope is open",
                           "memory: no row among 0", "no such file", "autotune: not asked: the policy makes a call",
                           "heuristic: not asked: the policy makes a call"})
    EXPECT_NE(none.error().message.find(part), std::string::npos) << part << " in " << none.error().message;
  EXPECT_NE(message_of(under({.allow_heuristics = false})).find("heuristic: not asked: the policy does not allow it (allow_heuristics)"),
            std::string::npos);
}

TEST_F(Autotune, AFailedTunerFallsToTheHeuristicIfThatIsAllowed) {
  fake->fails = "the device is on fire";
  const auto tiers = chain(tuning);
  const auto selection = tiers.select(Recorder(), invocation());
  ASSERT_EQ(message_of(selection), "");
  EXPECT_EQ(selection->tier, Tier::heuristic);
  EXPECT_EQ(selection->trail[4].detail, "the tuner failed: the device is on fire");
  EXPECT_FALSE(std::filesystem::exists(file()));
  const policy_override scope({.allow_heuristics = false, .cache_miss_fallback = CacheMissFallback::autotune});
  EXPECT_NE(message_of(tiers.select(Recorder(), invocation())).find("autotune: the tuner failed: the device is on fire"),
            std::string::npos);
}

TEST_F(Autotune, ATunerThatThrowsOrChoosesNonsenseIsAFailure) {
  const auto tiers = chain(tuning);
  fake->config = Recorder::with(9);
  EXPECT_NE(tiers.select(Recorder(), invocation())->trail[4].detail.find(R"(the tuner chose {"tile":9}, which cannot serve this call)"),
            std::string::npos);
  fake->inside = [] { throw std::runtime_error("out of luck"); };
  EXPECT_EQ(tiers.select(Recorder(), invocation())->trail[4].detail, "the tuner failed: out of luck");
}

TEST_F(Autotune, AnExplanationMeasuresNothing) {
  const auto tiers = chain(tuning);
  const auto explained = tiers.select(Recorder(), invocation(), nullptr, true);
  ASSERT_EQ(message_of(explained), "");
  EXPECT_EQ(fake->asked, 0);
  EXPECT_EQ(explained->trail[4].detail, "not asked: a call would be measured now, but an explanation measures nothing");
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  const auto after = tiers.select(Recorder(), invocation(), nullptr, true);
  EXPECT_EQ(after->tier, Tier::memory);
  ASSERT_EQ(after->trail.size(), 6u) << "every tier speaks";
  EXPECT_EQ(after->trail[3].config, Recorder::with(3));
  EXPECT_EQ(after->trail[5].config, Recorder::with(1));
}

TEST_F(Autotune, TheLogTellsOfTunings) {  // a process of its own: the variable is read once
  setenv("EJKERNEL_LOG_AUTOTUNE", "on", 1);
  testing::internal::CaptureStderr();
  ASSERT_TRUE(chain(tuning).select(Recorder(), invocation()));
  fake->fails = "no luck";
  ASSERT_TRUE(chain(tuning).select(Recorder(), invocation(2)));
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("ejk: tuning recorder: " + invocation().key() + "\nejk: tuned recorder in "), std::string::npos) << log;
  EXPECT_NE(log.find("ejk: tuning recorder failed after 0.0 s: no luck\n"), std::string::npos) << log;
}

TEST_F(Autotune, AnUnavailableTunerSaysWhy) {
  fake->why_not = "no worker program: looked for ejk";
  EXPECT_EQ(chain(tuning).select(Recorder(), invocation())->trail[4].detail, "no worker program: looked for ejk");
  set_tuner(nullptr);
  EXPECT_EQ(chain(tuning).select(Recorder(), invocation())->trail[4].detail, "no tuner is set");
}

TEST_F(Autotune, OneThreadMeasuresAndTheOthersWait) {
  fake->pause = std::chrono::milliseconds(200);
  const auto tiers = chain(tuning);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const auto selection = tiers.select(Recorder(), invocation());
      right += selection && tile(selection->config) == 3;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(fake->asked, 1);
}

TEST_F(Autotune, AMeasurementMayChooseConfigsItself) {
  const auto tiers = chain(tuning);
  fake->inside = [&] {
    EXPECT_EQ(tiers.select(Recorder(), invocation())->trail[4].detail, "not asked: this thread is measuring another call");
  };
  EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::autotune);
}

TEST_F(Autotune, PolicyScopesNestUnwindAndBelongToTheirThread) {
  const auto tiers = chain();
  EXPECT_EQ(tiers.policy(), AutotunePolicy{});
  try {
    const policy_override outer(tuning);
    EXPECT_EQ(tiers.policy(), tuning);
    {
      const policy_override inner({.cache_miss_fallback = CacheMissFallback::error});
      EXPECT_EQ(tiers.policy().cache_miss_fallback, CacheMissFallback::error);
      std::thread([&] { EXPECT_EQ(tiers.policy(), AutotunePolicy{}); }).join();
    }
    EXPECT_EQ(tiers.policy(), tuning);
    throw std::runtime_error("leaves the scope");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(tiers.policy(), AutotunePolicy{});
}

TEST_F(Autotune, OverlayScopesBelongToTheirThread) {
  const auto tiers = chain();
  const overlay_cache scope("", Recorder::with(2));
  std::thread([&] { EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::heuristic); }).join();
  EXPECT_EQ(tiers.select(Recorder(), invocation())->tier, Tier::overlay);
}

class Events : public Autotune {
 protected:
  std::vector<std::string> told;
  EventCallback listener() {
    return [this](const Event& event) {
      told.push_back(std::string(name_of(event.kind)) + (event.tier ? " " + std::string(name_of(*event.tier)) : ""));
      last = event;
    };
  }
  Event last;
};

TEST_F(Events, AreToldInOrderWithWhatBelongsToThem) {
  const auto tiers = chain();
  const event_scope scope(listener());
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  {
    const policy_override policy(tuning);
    ASSERT_TRUE(tiers.select(Recorder(), invocation()));
    EXPECT_EQ(last.kernel, "recorder");
    EXPECT_EQ(last.key, invocation().key());
    EXPECT_EQ(last.config, Recorder::with(3));
    EXPECT_GT(last.seconds, 0);
  }
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  ASSERT_TRUE(chain().select(Recorder(), invocation()));
  const auto cfg = Recorder::with(2);
  ASSERT_TRUE(tiers.select(Recorder(), invocation(), &cfg));
  {
    const overlay_cache overlay("", cfg);
    ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  }
  {
    const policy_override policy({.cache_miss_fallback = CacheMissFallback::error});
    ASSERT_FALSE(tiers.select(Recorder(), invocation(7)));
  }
  EXPECT_EQ(told,
            (std::vector<std::string>{"heuristics heuristic", "autotune_start autotune", "autotune_finish autotune", "cache_hit memory",
                                      "cache_hit persistent", "override override", "overlay_hit overlay", "error"}));
}

TEST_F(Events, OfAFailedTunerNameItsReason) {
  fake->fails = "no luck";
  const auto tiers = chain(tuning);
  std::vector<std::string> details;
  const event_scope scope([&](const Event& event) {
    if (event.kind == Event::Kind::error) details.push_back(event.detail);
  });
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  EXPECT_EQ(details, std::vector<std::string>{"no luck"});
}

TEST_F(Events, ReachScopesOfTheirThreadInnermostFirstThenTheProcess) {
  std::string order;
  set_event_callback([&](const Event&) { order += 'p'; });
  const auto tiers = chain();
  {
    const event_scope outer([&](const Event&) { order += 'o'; });
    const event_scope inner([&](const Event&) { order += 'i'; });
    ASSERT_TRUE(tiers.select(Recorder(), invocation()));
    std::thread([&] { ASSERT_TRUE(tiers.select(Recorder(), invocation())); }).join();
  }
  set_event_callback({});
  ASSERT_TRUE(tiers.select(Recorder(), invocation()));
  EXPECT_EQ(order, "iopp");
}

TEST_F(Events, CallbacksMayThrowSelectAndReplaceThemselves) {
  const auto tiers = chain(tuning);
  int calls = 0;
  set_event_callback([&](const Event&) {
    if (++calls == 1) {
      EXPECT_TRUE(tiers.select(Recorder(), invocation(1)));  // would deadlock if any lock were held
    }
    set_event_callback({});
    throw std::runtime_error("an observer's trouble");
  });
  EXPECT_EQ(message_of(tiers.select(Recorder(), invocation())), "");
  EXPECT_GE(calls, 1);
}

TEST_F(Autotune, MemoryAnswersAreRecalledAndForgottenWithTheMemory) {
  const auto tiers = chain();
  const Recorder kernel;
  tiers.memory().put(invocation().key(), Recorder::with(2));
  const auto first = tiers.select_shared(kernel, invocation());
  ASSERT_EQ(message_of(first), "");
  EXPECT_EQ(*tiers.select_shared(kernel, invocation()), *first) << "the same object: nothing was asked again";
  EXPECT_EQ((*tiers.select_shared(kernel, invocation(5)))->tier, Tier::heuristic);
  const auto other = chain();
  EXPECT_EQ((*other.select_shared(kernel, invocation()))->tier, Tier::heuristic) << "of another chain";
  tiers.memory().put(invocation().key(), Recorder::with(3));
  EXPECT_EQ(tile((*tiers.select_shared(kernel, invocation()))->config), 3);
  {
    const overlay_cache scope("", Recorder::with(1));
    EXPECT_EQ((*tiers.select_shared(kernel, invocation()))->tier, Tier::overlay);
  }
  tiers.memory().clear();
  EXPECT_EQ((*tiers.select_shared(kernel, invocation()))->tier, Tier::heuristic);
}

}  // namespace
}  // namespace ejk
