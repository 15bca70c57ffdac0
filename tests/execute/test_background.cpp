// EJKERNEL_JIT=background: stand-ins serve while the call's own image is compiled on another thread; what waits, what is told, how
// processes end.
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>

#include "execute/background.hpp"
#include "execute/library_state.hpp"
#include "store_fixture.hpp"

namespace {

std::atomic<time_t> set_ahead{0};  // seconds

}  // namespace

// This program's clock of the day, which may be ahead of the system's: for what waits, it is then as if the clock was set back meanwhile.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += set_ahead.load(std::memory_order_relaxed);
  return static_cast<int>(result);
}

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto a_minute = std::chrono::seconds(60);
const Config any{"any", "", {}};

// The kernel shift, whose `wide` takes even sizes and `any` all. The compiler can be held up, and can be made to refuse.
class Behind : public StoreTest {
 protected:
  void SetUp() override {
    write_compiler();
    setenv("CXX", (folder / "cc").c_str(), 1);
    use_store();
  }
  virtual void use_store() { use_test_store(); }

  // Waits while there is a file `wait`, with sources that have the words in it; refuses those with the word in `refuse`, and notes each
  // source.
  void write_compiler() const {
    std::ofstream script(folder / "cc");
    script
        << "#!/bin/sh\nd=" << folder.string() << "\n"
        << "for a in \"$@\"; do case $a in source.cpp) echo x >> $d/compiles\n"
        << "  while [ -e $d/wait ] && grep -q \"$(cat $d/wait)\" source.cpp; do sleep 0.02; done\n"
        << "  if [ -e $d/refuse ] && grep -q \"$(cat $d/refuse)\" source.cpp; then echo refused on purpose >&2; exit 1; fi;; esac; done\n"
        << "exec c++ \"$@\"\n";
    script.close();
    std::filesystem::permissions(folder / "cc", std::filesystem::perms::owner_all);
  }
  void hold(const std::string& words = "block = ") const { std::ofstream(folder / "wait") << words; }
  void let_go() const { std::filesystem::remove(folder / "wait"); }
  // Until the compiler has been called so often, the first time with a small kernel of ejk's own.
  void wait_for_compiler(int calls) const {
    const auto deadline = Clock::now() + a_minute;
    for (int lines = 0; lines < calls && Clock::now() < deadline; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      std::ifstream file(folder / "compiles");
      lines = static_cast<int>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
    }
  }
  void refuse(const std::string& word) const { std::ofstream(folder / "refuse") << word; }

  static std::string shift(std::int64_t size = 4, const Config* config = nullptr) {
    Tensor x(DType::f32, {size}), out(DType::f32, {size});  // aligned: one plan a size
    std::fill_n(x.data<float>(), size, 1.0f);
    const auto status = call("shift", {{"x", x}, {"out", out}}, {}, {}, config);
    if (!status) return status.error().message;
    const float last = out.data<float>()[size - 1];
    return last == 2.5f ? "" : "wrong: " + std::to_string(last);
  }

  // The image that an explanation names, and what it stands in for.
  static std::string explained(const std::string& part) {
    auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
    const auto text = explain("shift", {{"x", x}, {"out", out}}, {});
    if (!text) return text.error().message;
    const auto at = text->find("\"" + part + "\": ", text->find("\"image\": {"));
    return text->substr(at, text->find('\n', at) - at);
  }

  static void ready_any() {
    ASSERT_EQ(shift(4, &any), "");
    ASSERT_TRUE(set_jit(Jit::background));
  }
};

TEST_F(Behind, AStandInServesAtOnceAndLaterCallsTakeTheirOwnImage) {
  ready_any();
  hold();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().stand_ins, 1u) << "one plan, three calls";
  EXPECT_EQ(counters().compiles, 1u) << "the compiler is held up";
  EXPECT_NE(explained("id").find("shift.any.cpu_generic"), std::string::npos) << explained("id");
  EXPECT_NE(explained("stands_in_for").find("shift.wide.cpu_generic.f32.block2"), std::string::npos) << explained("stands_in_for");
  EXPECT_FALSE(wait_for_images(std::chrono::milliseconds(50)));
  let_go();
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(counters().compiles, 2u);
  EXPECT_EQ(shift(), "");
  EXPECT_NE(explained("id").find("shift.wide.cpu_generic"), std::string::npos) << explained("id");
  EXPECT_EQ(explained("stands_in_for"), "\"stands_in_for\": null,");
  const auto plans = counters().plans, stand_ins = counters().stand_ins;
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().plans, plans) << "the new plan stays";
  EXPECT_EQ(counters().stand_ins, stand_ins);
  EXPECT_EQ(counters().compiles, 2u);
  EXPECT_EQ(counters().fallbacks, 0u);
}

TEST_F(Behind, TheEnvironmentSaysSoAtFirst) {
  ASSERT_EQ(shift(4, &any), "");  // in a process of another mind, below
  const pid_t child = fork();
  if (child == 0) {
    setenv("EJKERNEL_JIT", "background", 1);
    execl("/proc/self/exe", "test_execute", "--gtest_also_run_disabled_tests", "--gtest_filter=BehindChild.DISABLED_CallsOnce", nullptr);
    _exit(9);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Behind, CallsThatNameAConfigWait) {
  ready_any();
  const Config wide{"wide", "", {}};
  EXPECT_EQ(shift(4, &wide), "");
  EXPECT_EQ(counters().stand_ins, 0u);
  EXPECT_EQ(counters().compiles, 2u);
}

TEST_F(Behind, WhereNothingIsThereAndNothingIsSoonerTheCallWaits) {
  ASSERT_TRUE(set_jit(Jit::background));
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().stand_ins, 0u) << "the other variant's source is as long";
  EXPECT_EQ(counters().compiles, 1u);
}

// The same with a long source for `wide`.
class BehindLong : public Behind {
 protected:
  void use_store() override {
    const auto store = folder / "store";
    std::filesystem::copy(test::source_dir() + "/tests/execute/data", store, std::filesystem::copy_options::recursive);
    const auto text_of = [](const std::filesystem::path& path) {
      std::ifstream file(path);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    auto spec = text_of(store / "specs/shift.json");
    spec.replace(spec.find("shift/shift.cpu.cpp"), 19, "shift/long.cpu.cpp");
    std::ofstream(store / "specs/shift.json") << spec;
    const auto source = text_of(store / "templates/shift/shift.cpu.cpp");
    std::ofstream(store / "templates/shift/long.cpu.cpp")
        << source << std::string(100'000, '\n') << "static constexpr int end_of_it = 0;\n";
    ASSERT_TRUE(add_store(store.string()));
    ASSERT_TRUE(set_jit(Jit::background));
  }
};

TEST_F(BehindLong, AShorterSourceServesIfItIsCompiledFirst) {
  hold("block = 2;");
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().stand_ins, 1u);
  EXPECT_NE(explained("id").find("shift.any.cpu_generic"), std::string::npos) << explained("id");
  let_go();
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(shift(), "");
  EXPECT_NE(explained("id").find("shift.wide.cpu_generic"), std::string::npos) << explained("id");
  EXPECT_EQ(counters().compiles, 2u);
}

TEST_F(BehindLong, ItDoesNotIfTheOtherIsThereFirst) {
  hold("block = 1;");
  EXPECT_EQ(shift(), "") << "it would wait for ever";
  EXPECT_EQ(counters().stand_ins, 0u);
  EXPECT_NE(explained("id").find("shift.wide.cpu_generic"), std::string::npos) << explained("id");
  let_go();
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(counters().fallbacks, 0u);
}

TEST_F(Behind, EventsTellOfTheStandInAndOfTheBuild) {
  ready_any();
  std::mutex mutex;
  std::vector<std::string> kinds;
  set_event_callback([&](const Event& event) {
    const std::lock_guard lock(mutex);
    if (event.kind != Event::Kind::heuristics) kinds.push_back(std::string(name_of(event.kind)) + " " + event.config->variant);
  });
  hold();
  EXPECT_EQ(shift(), "");
  let_go();
  ASSERT_TRUE(wait_for_images(a_minute));
  set_event_callback({});
  EXPECT_EQ(kinds, (std::vector<std::string>{"build_start wide", "stand_in any", "build_finish wide"}));
}

TEST_F(Behind, WhoIsToldMayCallTheKernelThatIsBuilt) {
  ready_any();
  std::atomic<bool> began{false}, ended{false};
  std::string inner = "no call";
  set_event_callback([&](const Event& event) {
    if (event.kind != Event::Kind::build_start || began.exchange(true)) return;
    std::thread limit([&] {  // a lock that this thread held would never be given back
      for (int i = 0; i < 1000 && !ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!ended) _exit(fprintf(stderr, "the call from the callback does not end\n") > 0);
    });
    inner = shift();
    ended = true;
    limit.join();
  });
  hold();
  EXPECT_EQ(shift(), "");
  set_event_callback({});
  let_go();
  EXPECT_EQ(inner, "");
  ASSERT_TRUE(wait_for_images(a_minute));
}

TEST_F(Behind, AClockThatIsSetBackMakesNoWaitLonger) {
  ready_any();
  hold();
  EXPECT_EQ(shift(), "");
  set_ahead = 3600;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    set_ahead = 0;
    let_go();
  });
  const auto begin = Clock::now();
  EXPECT_FALSE(wait_for_images(std::chrono::milliseconds(50)));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
  later.join();
  ASSERT_TRUE(wait_for_images(a_minute));
}

TEST_F(Behind, ABuildThatFailsIsToldAndTheNextCallFallsBack) {
  ready_any();
  refuse("block = 2");
  std::mutex mutex;
  std::string told;
  set_event_callback([&](const Event& event) {
    const std::lock_guard lock(mutex);
    if (event.kind == Event::Kind::error) told += event.detail;
  });
  hold();
  EXPECT_EQ(shift(), "");
  let_go();
  ASSERT_TRUE(wait_for_images(a_minute));
  set_event_callback({});
  EXPECT_NE(told.find("shift.wide.cpu_generic.f32.block2 could not be built behind the calls"), std::string::npos) << told;
  EXPECT_NE(told.find("refused on purpose"), std::string::npos) << told;
  EXPECT_EQ(counters().fallbacks, 0u);
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().fallbacks, 1u) << "as with `on`: the call after it knows";
  EXPECT_EQ(counters().stand_ins, 1u);
}

TEST_F(Behind, WithoutACompilerTheNearestImageServes) {
  ready_any();
  setenv("PATH", "/nowhere", 1);
  unsetenv("CXX");
  EXPECT_EQ(shift(), "");
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().fallbacks, 1u);
}

// What a store has stands in, so that nothing does here: the call waits, for the one compile.
TEST_F(Behind, WhereNoFolderKeepsImagesTheyStayInMemory) {
  setenv("EJKERNEL_CACHE_DIR", "/dev/null/cache", 1);
  ready_any();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(shift(), "");
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(counters().compiles, 2u);
  EXPECT_EQ(counters().stand_ins, 0u);
  EXPECT_EQ(counters().fallbacks, 0u);
}

TEST_F(Behind, ManyThreadsAndShapesGetTheirOwnResults) {
  ready_any();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 300; ++i) wrong += !shift(2 + 2 * ((i + t) % 20)).empty();
    });
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(counters().compiles, 3u) << "any, and wide of 2 and of 8 elements";
  const auto stand_ins = counters().stand_ins;
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(shift(2 + 2 * i), "");
  EXPECT_EQ(counters().stand_ins, stand_ins);
}

int threads_of_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_F(Behind, ThreadsEndWhenThereIsNothingToDo) {
  ready_any();
  const int before = threads_of_process();
  hold();
  EXPECT_EQ(shift(), "");
  EXPECT_GT(threads_of_process(), before);
  let_go();
  ASSERT_TRUE(wait_for_images(a_minute));
  const auto deadline = Clock::now() + a_minute;
  while (threads_of_process() > before && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(threads_of_process(), before);
}

std::size_t entries(const std::filesystem::path& kernel) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kernel)) count += std::filesystem::exists(entry.path() / "image.json");
  return count;
}

int status_of(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child ? status : -1;
}

TEST_F(Behind, TheProcessEndsWhenWhatItCompilesIsKept) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (shift(4, &any) != "" || !set_jit(Jit::background)) _exit(1);
    hold();
    if (shift() != "" || counters().stand_ins != 1) _exit(2);
    wait_for_compiler(3);
    let_go();
    std::exit(0);
  }
  EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(entries(folder / "cache" / "shift"), 2u);
}

TEST_F(Behind, TwoProcessesCompileAnImageOnce) {
  ASSERT_EQ(message_of(info()), "");
  std::vector<pid_t> children;
  hold();
  for (int i = 0; i < 2; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(60);
    if (!set_jit(Jit::background)) _exit(1);
    if (shift() != "") _exit(2);
    if (!wait_for_images(a_minute) || shift() != "" || counters().stand_ins != 0) _exit(3);
    std::exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  let_go();
  for (const pid_t child : children) EXPECT_EQ(status_of(child), 0);
  EXPECT_EQ(entries(folder / "cache" / "shift"), 1u);
}

TEST_F(Behind, AForkedChildBuildsForItself) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer's own allocator may be locked for ever in a child of a process of many threads (GCC 12)";
#endif
  ready_any();
  hold();
  EXPECT_EQ(shift(), "");
  wait_for_compiler(3);
  const auto begin = Clock::now();
  const pid_t child = fork();  // while the compiler is held up
  if (child == 0) {
    alarm(60);
    if (shift() != "") _exit(2);  // by a stand-in
    if (!wait_for_images(a_minute)) _exit(3);
    const auto stand_ins = counters().stand_ins;
    _exit(shift() == "" && counters().stand_ins == stand_ins && counters().fallbacks == 0 ? 0 : 4);
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  let_go();
  EXPECT_EQ(status_of(child), 0);
  ASSERT_TRUE(wait_for_images(a_minute));
  EXPECT_EQ(shift(), "");
  EXPECT_EQ(entries(folder / "cache" / "shift"), 2u);
}

// A kernel with the attribute that says so.
class BehindDeterministic : public Behind {
 protected:
  void SetUp() override {
    write_compiler();
    setenv("CXX", (folder / "cc").c_str(), 1);
    const auto data = std::filesystem::path(test::source_dir()) / "tests/execute/data", store = folder / "deterministic";
    std::filesystem::copy(data, store, std::filesystem::copy_options::recursive);
    std::ifstream file(data / "specs/shift.json");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::string before = "{\"name\": \"limit\"";
    text.insert(text.find(before),
                R"({"name": "deterministic", "type": "bool", "default": false, "matters": false, "doc": "Runs agree."}, )");
    std::ofstream(store / "specs/shift.json") << text;
    ASSERT_TRUE(add_store(store.string()));
  }
};

TEST_F(BehindDeterministic, DeterministicCallsWait) {
  ready_any();
  for (const bool deterministic : {true, false}) {
    auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
    hold();
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      let_go();
    });
    ASSERT_EQ(message_of(call("shift", {{"x", x}, {"out", out}}, {{"deterministic", deterministic}})), "");
    EXPECT_EQ(counters().stand_ins, 0u);
    EXPECT_EQ(counters().compiles, 2u);
    later.join();
  }
}

TEST(BehindChild, DISABLED_CallsOnce) {
  ASSERT_TRUE(add_store(test::source_dir() + "/tests/execute/data"));
  auto x = floats({1, 2, 3, 4}), out = floats({0, 0, 0, 0});
  ASSERT_EQ(message_of(call("shift", {{"x", x}, {"out", out}}, {})), "");
  EXPECT_EQ(counters().stand_ins, 1u);
}

}  // namespace
}  // namespace ejk
