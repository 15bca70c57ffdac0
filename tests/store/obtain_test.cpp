// Obtaining modules: user cache, packs, compiler, memory; one compile an image a machine.
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "backends/process/owner.hpp"
#include "fixtures.hpp"
#include "store/lock_file.hpp"

namespace ejk::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ObtainTest : public ::testing::Test {
 protected:
  void SetUp() override { places.user.emplace(folder.path / "user", true); }
  std::optional<Obtained> get(const spec::Image& image, const JitPolicy& jit = {}) {
    tried.clear();
    return obtain(places, image, generic_arch(), cpu_backend(), jit, tried);
  }
  bool said(const std::string& words) const {
    return std::ranges::any_of(tried, [&](const auto& line) { return line.find(words) != std::string::npos; });
  }
  static JitPolicy no_jit() { return {false, "EJKERNEL_JIT=off", {}}; }
  Folder folder;
  Places places;
  Tried tried;
};

TEST_F(ObtainTest, CompilesOnceThenFindsItInTheUserCache) {
  const auto image = answer_image("cached", 11);
  const auto built = get(image);
  ASSERT_TRUE(built);
  EXPECT_EQ(built->origin, Origin::jit);
  EXPECT_EQ(answer_of(*built->module), 11);
  EXPECT_TRUE(said("user cache: no entry")) << tried.front();
  const auto shared = get(image);
  EXPECT_EQ(shared->module, built->module) << "loaded once a process";
  const auto child = start_child([&] {
    Tried again;
    places.user.emplace(folder.path / "user", false);
    const_cast<std::shared_ptr<Module>&>(built->module).reset();
    const_cast<std::shared_ptr<Module>&>(shared->module).reset();
    const auto found = obtain(places, image, generic_arch(), cpu_backend(), no_jit(), again);
    return found && found->origin == Origin::user_cache && answer_of(*found->module) == 11 ? 0 : 1;
  });
  EXPECT_EQ(wait_for(child), 0);
}

std::vector<std::string> names_of(const Stages& stages) {
  std::vector<std::string> names;
  for (const auto& [name, seconds] : stages) names.push_back(name);
  return names;
}

TEST_F(ObtainTest, TellsWhatTheStagesOfACompileTook) {
  const auto image = answer_image("timed", 16);
  const auto built = get(image);
  ASSERT_TRUE(built);
  EXPECT_EQ(names_of(built->stages), (std::vector<std::string>{"look", "compiler", "lock", "compile", "store", "load"}));
  double sum = 0, compile = 0;
  for (const auto& [name, seconds] : built->stages) {
    EXPECT_GE(seconds, 0) << name;
    sum += seconds;
    if (name == "compile") compile = seconds;
  }
  EXPECT_LE(sum, built->seconds);
  EXPECT_GT(compile, 0.001) << "a compiler is a process of its own";
  const auto shared = get(image);
  ASSERT_TRUE(shared);
  EXPECT_TRUE(shared->stages.empty()) << "nothing was compiled";
}

TEST_F(ObtainTest, AnImageThatIsNotKeptHasNoStoreStage) {
  places.user.reset();
  const auto built = get(answer_image("unkept", 17));
  ASSERT_TRUE(built);
  EXPECT_EQ(names_of(built->stages), (std::vector<std::string>{"look", "compiler", "lock", "compile", "load"}));
}

TEST_F(ObtainTest, ALimitDoesNotRefuseACallButIsTold) {
  auto image = answer_image("greedy", 15);
  image.limits = {{"code_bytes", 1}};
  const auto built = get(image);
  ASSERT_TRUE(built);
  EXPECT_EQ(answer_of(*built->module), 15);
  EXPECT_TRUE(built->above_limits.starts_with("code_bytes is ") && built->above_limits.ends_with(", the limit is 1"))
      << built->above_limits;
}

TEST_F(ObtainTest, TakesTheFirstPackThatHasIt) {
  const auto image = answer_image("packed", 12);
  places.packs = {Store(folder.path / "empty", false), Store(folder.path / "pack", false)};
  publish(Store(folder.path / "pack", true), image);
  const auto found = get(image, no_jit());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->origin, Origin::pack);
  EXPECT_EQ(found->from, places.packs[1].entry_path(image).string());
  EXPECT_EQ(answer_of(*found->module), 12);
  EXPECT_EQ(tried.size(), 2u) << "the user cache and the empty pack";
}

TEST_F(ObtainTest, SaysEveryPlaceItTried) {
  places.user.reset();
  places.why_no_user = "HOME is not set";
  places.packs = {Store(folder.path / "empty", false)};
  EXPECT_FALSE(get(answer_image("nowhere", 1), no_jit()));
  ASSERT_EQ(tried.size(), 3u);
  EXPECT_EQ(tried[0], "user cache: HOME is not set");
  EXPECT_TRUE(tried[1].starts_with("pack: no entry " + (folder.path / "empty").string())) << tried[1];
  EXPECT_EQ(tried[2], "jit: EJKERNEL_JIT=off");
}

TEST_F(ObtainTest, ReplacesABadEntryOfTheUserCache) {
  const auto image = answer_image("damaged", 13);
  publish(*places.user, image);
  spill(places.user->entry_path(image) / "binary.so", "broken");
  const auto found = get(image);
  ASSERT_TRUE(found);
  EXPECT_EQ(answer_of(*found->module), 13);
  EXPECT_TRUE(said("user cache: ") && said("6 bytes, expected"));
  EXPECT_EQ(find(*places.user, image).verdict, Verdict::hit);
  EXPECT_TRUE(fs::exists(places.user->entry_path(image).string() + ".bad-1"));
}

TEST_F(ObtainTest, PassesOverABadEntryOfAReadOnlyPack) {
  const auto image = answer_image("badpack", 14);
  publish(Store(folder.path / "pack", true), image);
  places.packs = {Store(folder.path / "pack", false)};
  spill(places.packs[0].entry_path(image) / "image.json", "{}");
  const auto before = tree_of(folder.path / "pack");
  const auto found = get(image);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->origin, Origin::jit);
  EXPECT_EQ(tree_of(folder.path / "pack"), before);
}

TEST_F(ObtainTest, AWholeEntryThatDoesNotLoadIsReplaced) {
  const auto image = answer_image("foreign", 15);
  auto result = compile(image);
  result.binary = "whole, but no shared object";
  (void)places.user->publish(image, result, "cpp", "so");
  const auto found = get(image);
  ASSERT_TRUE(found);
  EXPECT_EQ(answer_of(*found->module), 15);
  EXPECT_TRUE(said("cannot load"));
}

TEST_F(ObtainTest, WorksInMemoryWithNowhereToWrite) {
  spill(folder.path / "file", "x");
  places.user.emplace(folder.path / "file" / "cache", true);
  const auto found = get(answer_image("memory", 16));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->from, "in memory");
  EXPECT_EQ(answer_of(*found->module), 16);
}

TEST_F(ObtainTest, AFailedCompileIsRememberedForItsSourceAndCompiler) {
  const auto log = folder.path / "log";
  write_compiler(folder.path / "cc", log);
  const Variable chosen("CXX", (folder.path / "cc").string());
  const auto broken = make_test_image("broken", "int f() { return undeclared_thing; }\n");
  EXPECT_FALSE(get(broken));
  EXPECT_TRUE(said("undeclared_thing"));
  EXPECT_EQ(lines_in(log), 1);
  EXPECT_FALSE(get(broken));
  EXPECT_TRUE(said("refused this source before") && said("undeclared_thing"));
  EXPECT_EQ(lines_in(log), 1) << "not compiled again";
  EXPECT_TRUE(places.user->failed_log(broken, cpu_backend().compiler(generic_arch())));
}

TEST_F(ObtainTest, AFailureOfTheMomentIsNotRemembered) {
  const auto log = folder.path / "log";
  write_compiler(
      folder.path / "cc", log,
      "test -e '" + (folder.path / "crashed").string() + "' || { touch '" + (folder.path / "crashed").string() + "'; kill -9 $$; }");
  const Variable chosen("CXX", (folder.path / "cc").string());
  const auto image = answer_image("shaky", 17);
  EXPECT_FALSE(get(image));
  EXPECT_TRUE(said("signal 9"));
  const auto found = get(image);
  ASSERT_TRUE(found);
  EXPECT_EQ(answer_of(*found->module), 17);
}

TEST_F(ObtainTest, ThreadsOfOneProcessCompileOnce) {
  const auto log = folder.path / "log";
  write_compiler(folder.path / "cc", log, "sleep 0.1");
  const Variable chosen("CXX", (folder.path / "cc").string());
  const auto image = answer_image("threads", 18);
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        Tried mine;
        const auto found = obtain(places, image, generic_arch(), cpu_backend(), {}, mine);
        if (found && answer_of(*found->module) == 18) ++good;
      });
  }
  EXPECT_EQ(good, 8);
  EXPECT_EQ(lines_in(log), 1);
}

TEST_F(ObtainTest, ThirtyTwoProcessesCompileOnce) {
  const auto log = folder.path / "log";
  write_compiler(folder.path / "cc", log, "sleep 0.3");
  const Variable chosen("CXX", (folder.path / "cc").string());
  const auto image = answer_image("processes", 19);
  (void)cpu_backend().compiler(generic_arch());  // asked once, before the fork
  std::vector<pid_t> children;
  for (int i = 0; i < 32; ++i)
    children.push_back(start_child([&] {
      const auto found = get(image);
      return found && answer_of(*found->module) == 19 ? 0 : 1;
    }));
  for (const auto child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(lines_in(log), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path / "user" / "toy"), {}), 1) << "no locks or temporary folders are left";
}

TEST_F(ObtainTest, AKilledHolderIsTakenOver) {
  const auto log = folder.path / "log";
  write_compiler(folder.path / "cc", log, "test -e '" + (folder.path / "slow").string() + "' && sleep 30");
  const Variable chosen("CXX", (folder.path / "cc").string());
  (void)cpu_backend().compiler(generic_arch());
  spill(folder.path / "slow", "");
  const auto image = answer_image("killed", 20);
  const auto holder = start_child([&] { return get(image) ? 0 : 1; });
  while (lines_in(log) < 1) std::this_thread::sleep_for(milliseconds(5));
  fs::remove(folder.path / "slow");
  kill(holder, SIGKILL);
  wait_for(holder);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(BuildLock::acquire(*places.user, image));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(1));
  const auto found = get(image);
  ASSERT_TRUE(found);
  EXPECT_EQ(answer_of(*found->module), 20);
  EXPECT_EQ(lines_in(log), 2);
}

TEST_F(ObtainTest, AHolderThatHangsBlocksNobodyForEver) {
  const auto image = answer_image("hanging", 22);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const auto holder = start_child([&] {
    const auto lock = BuildLock::try_acquire(*places.user, image);
    (void)!write(ready[1], lock ? "y" : "n", 1);
    pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  kill(holder, SIGSTOP);
  std::vector<std::string> lines;
  const auto start = std::chrono::steady_clock::now();
  const auto found = get(image, {true, {}, [&](const std::string& line) { lines.push_back(line); }, milliseconds(1300)});
  const auto waited = std::chrono::steady_clock::now() - start;
  kill(holder, SIGKILL);
  wait_for(holder);
  ASSERT_TRUE(found) << "compiled without the lock";
  EXPECT_EQ(answer_of(*found->module), 22);
  EXPECT_GE(waited, milliseconds(1300));
  EXPECT_EQ(BuildLock::patience, std::chrono::minutes(10)) << "the documented limit";
  ASSERT_EQ(lines.size(), 1u) << "a line a second";
  EXPECT_NE(lines[0].find("waiting for process " + std::to_string(holder)), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("which compiles " + image.id), std::string::npos);
  for (int end : ready) close(end);
}

TEST_F(ObtainTest, APidThatWasReusedIsNotTheHolder) {
  const auto image = answer_image("reused", 23);
  const auto path = places.user->entry_path(image).string() + ".lock";
  fs::create_directories(fs::path(path).parent_path());
  const int held = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);  // as a child of the dead process would
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  auto record = Owner::self();
  record.start -= 1;  // this pid, of an earlier process
  spill(path, record.text() + "\n");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(BuildLock::acquire(*places.user, image));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(1));
  close(held);
}

TEST_F(ObtainTest, ALockThatADeadHoldersChildKeepsIsTakenOver) {
  const auto image = answer_image("orphan", 21);
  int ready[2], quit[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(quit), 0);
  const auto holder = start_child([&] {
    const auto lock = BuildLock::try_acquire(*places.user, image);
    if (fork() == 0) {  // inherits the lock, and outlives its holder
      close(quit[1]);
      char byte;
      (void)!write(ready[1], "x", 1);
      (void)!read(quit[0], &byte, 1);
      _exit(0);
    }
    _exit(0);  // as if killed: no destructor releases the lock
    return 0;
  });
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  wait_for(holder);
  EXPECT_FALSE(BuildLock::try_acquire(*places.user, image)) << "the child still holds it";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(BuildLock::acquire(*places.user, image));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(1));
  for (int end : {ready[0], ready[1], quit[0], quit[1]}) close(end);
}

TEST(BuildLockTest, IsExclusiveAndLeavesNoFile) {
  Folder folder;
  const Store store(folder.path, true);
  const auto image = answer_image("lock", 1);
  {
    auto first = BuildLock::try_acquire(store, image);
    ASSERT_TRUE(first);
    EXPECT_FALSE(BuildLock::try_acquire(store, image));
    const BuildLock moved = std::move(*first);
    first.reset();
    EXPECT_FALSE(BuildLock::try_acquire(store, image)) << "moved, not released";
  }
  EXPECT_TRUE(BuildLock::try_acquire(store, image));
  EXPECT_TRUE(fs::is_empty(folder.path / "toy"));
}

TEST(UserCache, IsMadeForItsUserAlone) {
  Folder folder;
  const Variable place("EJKERNEL_CACHE_DIR", (folder.path / "a" / "b").string());
  std::string why;
  const auto path = user_cache_dir(why);
  ASSERT_TRUE(path) << why;
  EXPECT_EQ(fs::status(*path).permissions(), fs::perms::owner_all);
}

TEST(UserCache, ThatOthersCanWriteIsRefused) {
  Folder folder;
  const Variable place("EJKERNEL_CACHE_DIR", folder.path.string());
  std::string why;
  fs::permissions(folder.path, fs::perms::owner_all | fs::perms::group_write);
  EXPECT_FALSE(user_cache_dir(why));
  EXPECT_NE(why.find("is writable by others (mode 720): run chmod go-w"), std::string::npos) << why;
  fs::permissions(folder.path, fs::perms::owner_all);
  EXPECT_TRUE(user_cache_dir(why));
}

TEST(UserCache, OfAnotherUserIsRefused) {
  Folder folder;
  if (chown(folder.path.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give folders away";
  const Variable place("EJKERNEL_CACHE_DIR", folder.path.string());
  std::string why;
  EXPECT_FALSE(user_cache_dir(why));
  EXPECT_NE(why.find("belongs to user 12345"), std::string::npos) << why;
}

TEST(UserCache, FollowsXdgThenHome) {
  Folder folder;
  const Variable none("EJKERNEL_CACHE_DIR", ""), home("HOME", (folder.path / "home").string());
  std::string why;
  {
    const Variable cache("XDG_CACHE_HOME", (folder.path / "xdg").string());
    EXPECT_EQ(user_cache_dir(why), folder.path / "xdg" / "ejk");
  }
  const Variable no_cache("XDG_CACHE_HOME", "");
  EXPECT_EQ(user_cache_dir(why), folder.path / "home" / ".cache" / "ejk");
  const Variable no_home("HOME", "");
  EXPECT_FALSE(user_cache_dir(why));
  EXPECT_EQ(why, "none of EJKERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set: name a folder in one, to keep what is compiled");
  const Variable relative("HOME", "home");  // it would be another cache in each working folder
  EXPECT_FALSE(user_cache_dir(why));
  EXPECT_NE(why.find("HOME is 'home', which is no absolute path"), std::string::npos) << why;
}

}  // namespace
}  // namespace ejk::store
