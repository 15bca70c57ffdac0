// Owners, modes and links of caches and packs: what is refused, what is read from the descriptor that was judged.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "store/fixtures.hpp"

namespace {
std::atomic<bool> without_locks{false};  // as an NFS mount whose server has no lock daemon
}

// In the place of libc's.
extern "C" int flock(int descriptor, int operation) {
  if (!without_locks) return static_cast<int>(syscall(SYS_flock, descriptor, operation));
  errno = ENOLCK;
  return -1;
}

namespace ejk::store {
namespace {

constexpr auto open_to_all = fs::perms::all;
constexpr uid_t another = 12345;

class Trusted : public ::testing::Test {
 protected:
  Trusted() {
    fs::create_directories(folder.path / "above" / "store");
    publish(store, image);
  }
  std::string cache_fault() {
    const Variable place("EJKERNEL_CACHE_DIR", store.root().string());
    std::string why;
    return user_cache_dir(why) ? "" : why;
  }
  HeldFolder open() {
    std::string why;
    return std::move(*HeldFolder::open(store.root(), Trust::pack(), why));
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  Folder folder;
  Store store{folder.path / "above" / "store", true};
  spec::Image image = answer_image("trusted", 1);
};

TEST_F(Trusted, ACacheBelowAFolderThatOthersCanWriteIsRefused) {
  EXPECT_EQ(cache_fault(), "");
  fs::permissions(folder.path / "above", open_to_all);
  EXPECT_TRUE(has(cache_fault(), (folder.path / "above").string() + ", above the cache folder, is writable by others (mode 777)"))
      << cache_fault();
  fs::permissions(folder.path / "above", open_to_all | fs::perms::sticky_bit);
  EXPECT_EQ(cache_fault(), "") << "as /tmp is: nobody else can rename what is ours there";
  fs::permissions(folder.path / "above", open_to_all);
  const Variable allowed("EJKERNEL_TRUST", "/nonexistent:" + folder.path.string());
  EXPECT_EQ(cache_fault(), "");
}

TEST_F(Trusted, ACacheBelowAnotherUsersFolderIsRefused) {
  if (chown((folder.path / "above").c_str(), another, another) != 0) GTEST_SKIP() << "only root can give folders away";
  EXPECT_TRUE(has(cache_fault(), "above the cache folder, belongs to user 12345")) << cache_fault();
}

TEST_F(Trusted, APackOfAnotherUserOrModeIsRefusedUnlessNamed) {
  EXPECT_EQ(pack_fault(store.root()), "");
  fs::permissions(store.root(), open_to_all);
  EXPECT_TRUE(has(pack_fault(store.root()), "is writable by others (mode 777): run chmod go-w on it, or name the store in EJKERNEL_TRUST"));
  EXPECT_EQ(find(store, image).verdict, Verdict::miss);
  {
    const Variable allowed("EJKERNEL_TRUST", store.root().string() + "/");
    EXPECT_EQ(pack_fault(store.root()), "");
    EXPECT_EQ(find(store, image).verdict, Verdict::hit);
    const Variable other("EJKERNEL_TRUST", store.root().string() + "-2");
    EXPECT_NE(pack_fault(store.root()), "") << "another folder, of a longer name";
    fs::create_symlink("circle", folder.path / "circle");
    const Variable second("EJKERNEL_TRUST", (folder.path / "circle").string() + ":" + store.root().string());
    EXPECT_EQ(pack_fault(store.root()), "") << "behind one that leads nowhere";
  }
  fs::permissions(store.root(), fs::perms(0755));
  EXPECT_EQ(pack_fault(store.root()), "");
  if (chown(store.root().c_str(), another, another) != 0) GTEST_SKIP() << "only root can give folders away";
  EXPECT_TRUE(has(pack_fault(store.root()), "belongs to user 12345, expected")) << pack_fault(store.root());
}

TEST_F(Trusted, ATemplateThatOthersCanWriteMakesAPackRefused) {
  for (const char* name : {"specs/arch/x.json", "templates/toy/x.h"}) {
    const auto file = store.root() / name;
    fs::create_directories(file.parent_path());
    spill(file, "");
    EXPECT_EQ(pack_fault(store.root()), "");
    fs::permissions(file, fs::perms(0666));
    EXPECT_TRUE(has(pack_fault(store.root()), file.string() + ", in the store, is writable by others (mode 666)"))
        << pack_fault(store.root());
    fs::permissions(file, fs::perms(0644));
    fs::permissions(file.parent_path(), open_to_all | fs::perms::sticky_bit);
    EXPECT_TRUE(has(pack_fault(store.root()), "is writable by others (mode 1777)")) << "others could add a file";
    fs::permissions(file.parent_path(), fs::perms(0755));
  }
  spill(folder.path / "elsewhere", "");
  fs::create_symlink(folder.path / "elsewhere", store.root() / "specs/linked.json");
  fs::create_symlink("nowhere", store.root() / "specs/.#editing.json");
  EXPECT_EQ(pack_fault(store.root()), "");
  fs::permissions(folder.path / "elsewhere", fs::perms(0666));
  EXPECT_TRUE(has(pack_fault(store.root()), "elsewhere, in the store, is writable by others (mode 666)")) << pack_fault(store.root());
}

TEST_F(Trusted, AFileOfAnEntryThatOthersCanWriteIsNotLoaded) {
  for (const char* name : {"image.json", "binary.so"}) {
    fs::permissions(store.entry_path(image) / name, fs::perms(0666));
    EXPECT_TRUE(has(find(store, image).why, std::string(name) + ", in the store, is writable by others")) << find(store, image).why;
    fs::permissions(store.entry_path(image) / name, fs::perms(0644));
    EXPECT_EQ(find(store, image).verdict, Verdict::hit);
  }
}

TEST_F(Trusted, LinksInACacheAreNotFollowedAndInAPackJudged) {
  const auto entry = store.entry_path(image);
  fs::rename(entry, folder.path / "moved");
  fs::create_directory_symlink(folder.path / "moved", entry);
  EXPECT_EQ(find(store, image).verdict, Verdict::hit) << "a tree of links, as build systems make";
  const Store cache(store.root(), true, Trust::cache());
  EXPECT_TRUE(has(find(cache, image).why, "a symbolic link, which is not followed here")) << find(cache, image).why;
  fs::permissions(folder.path / "moved", open_to_all);
  EXPECT_TRUE(has(find(store, image).why, "is writable by others (mode 777)")) << find(store, image).why;
}

TEST_F(Trusted, WhatIsHeldStaysThoughItsNameComesToMeanAnother) {
  const auto held = open();
  fs::rename(store.root(), folder.path / "away");
  fs::create_directories(store.root());
  spill(store.root() / "planted", "");
  std::string why;
  EXPECT_FALSE(held.has("planted"));
  ASSERT_TRUE(held.folder("toy", why)) << why;
  held.write("mine", "text");
  EXPECT_EQ(slurp(folder.path / "away" / "mine"), "text");
  EXPECT_EQ(held.read("mine", 10, why), "text");
  EXPECT_TRUE(held.remove("toy")) << "with all in it";
  EXPECT_FALSE(fs::exists(folder.path / "away" / "toy"));
}

TEST_F(Trusted, WhatIsSharedWithAGroupIsTheFolderThatIsHeld) {
  const auto mode = [](const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); };
  const auto held = open();
  fs::create_directory(folder.path / "private");
  fs::permissions(folder.path / "private", fs::perms::owner_all);
  fs::rename(store.root(), folder.path / "away");
  fs::create_directory_symlink(folder.path / "private", store.root());
  held.share(getegid(), 02770);
  EXPECT_EQ(mode(folder.path / "private"), 0700u);
  EXPECT_EQ(mode(folder.path / "away"), 02770u);
}

TEST_F(Trusted, LocksAreOfTheirUserAlone) {
  const auto held = BuildLock::try_acquire(store, image);
  ASSERT_TRUE(held);
  EXPECT_EQ(static_cast<unsigned>(fs::status(store.entry_path(image).string() + ".lock").permissions()), 0600u)
      << "who can open it can lock it, and make everybody wait";
}

TEST_F(Trusted, LocksAndFailuresFollowNoLink) {
  spill(folder.path / "private", "one\ntwo");
  const auto stem = store.entry_path(image).string();
  for (const char* target : {"private", "nothing"}) {
    fs::create_symlink(folder.path / target, stem + ".lock");
    fs::create_symlink(folder.path / target, stem + ".failed");
    EXPECT_FALSE(BuildLock::try_acquire(store, image));
    store.remember_failure(image, "a compiler", "its words");
    EXPECT_EQ(slurp(folder.path / "private"), "one\ntwo");
    EXPECT_FALSE(fs::exists(folder.path / "nothing"));
    EXPECT_EQ(store.failed_log(image, "a compiler"), "its words") << "the link was replaced";
    fs::remove(stem + ".lock");
    fs::remove(stem + ".failed");
  }
}

TEST(LoadedBytes, AreThoseThatWereHashedWhateverBecomesOfTheFile) {
  Folder folder;
  const Store store(folder.path, true);
  const auto good = answer_image("raced", 1), planted = answer_image("raced", 666);
  const auto bad = compile(planted).binary;
  publish(store, good);
  const auto file = store.entry_path(good) / "binary.so";
  std::atomic<bool> stop{false};
  std::thread attacker([&] {
    const auto sound = slurp(file);
    while (!stop) {
      spill(folder.path / "new", bad);
      fs::rename(folder.path / "new", file);
      spill(folder.path / "new", sound);
      fs::rename(folder.path / "new", file);
    }
  });
  int hits = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    const auto found = find(store, good);
    if (found.verdict != Verdict::hit) continue;
    ++hits;
    EXPECT_EQ(answer_of(*cpu_backend().load_bytes(found.bytes, good)), 1);
  }
  stop = true;
  attacker.join();
  EXPECT_GT(hits, 0);
}

TEST(LoadedBytes, OfManyLoadsAreEachTheirOwnAlsoWhenDescriptorsAreReused) {
  std::vector<std::unique_ptr<Module>> modules;
  const auto one = answer_image("one", 1), two = answer_image("two", 2);
  const auto first = compile(one).binary, second = compile(two).binary;
  for (int i = 0; i < 20; ++i) {
    modules.push_back(cpu_backend().load_bytes(i % 2 ? first : second, i % 2 ? one : two));
    EXPECT_EQ(answer_of(*modules.back()), i % 2 ? 1 : 2) << i;
  }
  const int before = open("/", O_RDONLY), kept = before - 3;
  close(before);
  EXPECT_LT(kept, 20) << "a descriptor a module would be too many";
}

// Two containers on one cache, as over NFS: the other's processes cannot be seen, so its locks are waited for, but not for ever.
TEST(OtherContainer, WhoseLockDoesNotMoveIsWaitedForAndThenEachBuildsForItself) {
  Folder folder;
  Places places;
  places.user.emplace(folder.path, true);
  const auto image = answer_image("contained", 3);
  auto held = BuildLock::try_acquire(*places.user, image);
  ASSERT_TRUE(held);
  const auto lock = places.user->entry_path(image).string() + ".lock";
  spill(lock, "elsewhere-0123456789ab-pid4026531836-17-4711\n");  // no process of this machine
  Tried tried;
  std::vector<std::string> told;
  const JitPolicy impatient{true, {}, [&](const std::string& line) { told.push_back(line); }, std::chrono::milliseconds(1500)};
  const auto start = std::chrono::steady_clock::now();
  const auto found = obtain(places, image, generic_arch(), cpu_backend(), impatient, tried);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1500)) << "it may be at work";
  ASSERT_TRUE(found);
  EXPECT_EQ(answer_of(*found->module), 3);
  ASSERT_FALSE(told.empty());
  EXPECT_NE(told[0].find("waiting for process 17 on elsewhere, which compiles " + image.id), std::string::npos) << told[0];
  EXPECT_TRUE(fs::exists(lock)) << "a live one's lock is not taken away";
  EXPECT_EQ(find(*places.user, image).verdict, Verdict::hit) << "who is first publishes; the other takes that";
  held.reset();
}

TEST(OtherContainer, WithoutLocksEachBuildsForItselfAndTheFirstToRenameWins) {
  Folder folder;
  Places places;
  places.user.emplace(folder.path, true);
  const auto image = answer_image("unlocked", 5);
  const auto child = [&] {
    without_locks = true;
    Tried tried;
    const auto found = obtain(places, image, generic_arch(), cpu_backend(), {}, tried);
    return found && answer_of(*found->module) == 5 ? 0 : 1;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) children.push_back(start_child(child));
  for (const auto each : children) EXPECT_EQ(wait_for(each), 0);
  EXPECT_EQ(find(places.user.value(), image).verdict, Verdict::hit);
  for (const auto& entry : fs::directory_iterator(folder.path / image.kernel))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
  EXPECT_TRUE(BuildLock::try_acquire(*places.user, image)) << "the lock file that was left blocks nobody";
}

TEST(OtherContainer, ThatIsGoneWithItsLocksLeavesThemFree) {
  Folder folder;
  const Store store(folder.path, true);
  const auto image = answer_image("contained", 4);
  fs::create_directories(store.root() / image.kernel);
  spill(store.entry_path(image).string() + ".lock", "elsewhere-0123456789ab-pid4026531836-17-4711\n");  // the server let it go
  EXPECT_TRUE(BuildLock::try_acquire(store, image));
}

}  // namespace
}  // namespace ejk::store
