// The store under fire: writers killed at random moments, and entries damaged at random places. Each test prints its seed; EJK_SEED repeats
// it.
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <iostream>
#include <random>
#include <set>
#include <thread>

#include "backends/process/owner.hpp"
#include "fixtures.hpp"

namespace ejk::store {
namespace {

using Clock = std::chrono::steady_clock;

class Fire : public ::testing::Test {
 protected:
  void SetUp() override { std::cout << "EJK_SEED=" << seed << std::endl; }
  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random); }
  static unsigned chosen_seed() {
    const char* given = std::getenv("EJK_SEED");
    return given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
  }
  const unsigned seed = chosen_seed();
  std::mt19937 random{seed};
  Folder folder;
};

// ---- writers that are killed ----

constexpr int images = 6, kills = 200;

spec::Image fake_image(int number) { return make_test_image("fake" + std::to_string(number), std::string(3000, char('a' + number))); }

CompileResult fake_result(int number) {
  CompileResult result;
  result.ok = true;
  result.binary = std::string(20000, char('A' + number));
  result.compiler = "c++ 1";
  return result;
}

// One of all that a process writes for an image: the lock, the entry (the one before it is set aside), a failed build.
void write_once(const Store& store, int number) {
  const auto image = fake_image(number);
  const auto lock = BuildLock::acquire(store, image);
  store.set_aside(image);
  store.remember_failure(image, "c++ 1", std::string(5000, 'w'));
  (void)store.publish(image, fake_result(number), "cpp", "so");
  store.restore_source(image, "cpp");
}

double seconds_of_a_write(const Store& store) {
  const auto start = Clock::now();
  for (int i = 0; i < 2 * images; ++i) write_once(store, i % images);
  return std::chrono::duration<double>(Clock::now() - start).count() / (2 * images);
}

std::string name_of(const fs::directory_entry& entry) { return entry.path().filename().string(); }

// What lies beside the entries and should not: temporary folders and locks of killed processes.
int leftovers(const Store& store) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(store.root() / "toy"))
    count += name_of(entry).starts_with(".") || name_of(entry).ends_with(".lock");
  return count;
}

// Every image is there, whole, with its own bytes; or is not there. Nothing is bad.
void expect_clean(const Store& store, int kill) {
  for (int number = 0; number < images; ++number) {
    const auto image = fake_image(number);
    const auto found = find(store, image);
    ASSERT_NE(found.verdict, Verdict::bad) << "kill " << kill << ": " << found.why;
    if (found.verdict == Verdict::hit) {
      EXPECT_EQ(slurp(found.binary), fake_result(number).binary) << "kill " << kill;
      EXPECT_TRUE(store.source_intact(image, "cpp")) << "kill " << kill;
    }
    EXPECT_EQ(store.failed_log(image, "c++ 1").value_or(std::string(5000, 'w')), std::string(5000, 'w')) << "kill " << kill;
  }
}

TEST_F(Fire, WritersKilledAt200RandomMomentsLoseAndCorruptNothing) {
  const Store store(folder.path, true);
  const double one = seconds_of_a_write(store);
  std::set<std::string> seen;  // kinds of leftovers: that the kills hit what they should
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    const auto writer = start_child([&] {
      for (int i = kill_number;; ++i) write_once(store, i % images);
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<double>(0, 3 * one)(random)));
    kill(writer, SIGKILL);
    wait_for(writer);
    expect_clean(store, kill_number);
    for (const auto& entry : fs::directory_iterator(folder.path / "toy"))
      if (name_of(entry).starts_with(".tmp-"))
        seen.insert("a temporary folder");
      else if (name_of(entry).ends_with(".lock"))
        seen.insert("a lock");
    if (kill_number % 10 == 9) {  // the next process: it takes over, completes, and leaves nothing of the dead
      store.remove_leftovers("toy");
      EXPECT_EQ(leftovers(store), 0) << "kill " << kill_number;
      for (int number = 0; number < images; ++number) {
        write_once(store, number);
        EXPECT_EQ(find(store, fake_image(number)).verdict, Verdict::hit) << "kill " << kill_number;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_EQ(seen, (std::set<std::string>{"a lock", "a temporary folder"})) << "no kill fell into a write";
  EXPECT_LE(std::distance(fs::directory_iterator(folder.path / "toy"), {}), images * 11) << "entries, nine set aside, a failed build";
}

TEST_F(Fire, ACallRemovesWhatKilledProcessesLeft) {
  Places places;
  places.user.emplace(folder.path, true);
  for (int i = 0; i < 5; ++i) {
    const auto writer = start_child([&] {
      const auto lock = BuildLock::try_acquire(*places.user, fake_image(i));
      fs::create_directory(folder.path / "toy" / owned_name(".tmp-"));
      _exit(0);
      return 0;
    });
    wait_for(writer);
  }
  EXPECT_EQ(leftovers(*places.user), 10);
  Tried tried;
  EXPECT_TRUE(obtain(places, answer_image("after", 31), generic_arch(), cpu_backend(), {}, tried));
  EXPECT_EQ(leftovers(*places.user), 0);
}

// ---- entries that are damaged ----

struct Damage {
  fs::path file;
  std::string what;
};

class Damaged : public Fire {
 protected:
  void SetUp() override {
    Fire::SetUp();
    places.user.emplace(folder.path / "user", true);
    good = compile(image);
    ASSERT_TRUE(good.ok) << good.log;
  }

  void renew() {
    fs::remove_all(folder.path / "user");
    places.user->publish(image, good, "cpp", "so");
    places.user->remember_failure(image, "another compiler 1", "its words");
    spill(entry().string() + ".lock", "a-b-c-1-2\n");
  }

  fs::path entry() const { return places.user->entry_path(image); }

  Damage damage() {
    const fs::path files[] = {entry() / "source.cpp", entry() / "binary.so", entry() / "image.json", entry().string() + ".failed",
                              entry().string() + ".lock"};
    const auto& file = files[below(std::size(files))];
    auto bytes = slurp(file);
    const auto at = below(bytes.size());
    switch (below(4)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        spill(file, bytes);
        return {file, "bit flipped at " + std::to_string(at)};
      case 1:
        fs::resize_file(file, at);
        return {file, "truncated to " + std::to_string(at)};
      case 2:
        for (std::size_t i = at; i < std::min(bytes.size(), at + 64); ++i) bytes[i] = static_cast<char>(below(256));
        spill(file, bytes);
        return {file, "64 random bytes at " + std::to_string(at)};
      default:
        spill(file, bytes + std::string(1 + below(100), '\0'));
        return {file, "zeros appended"};
    }
  }

  // In a process of its own, as a crash would end it. 0: the right answer; 1: a clear miss; anything else: a fault.
  int call(const JitPolicy& jit) {
    return wait_for(start_child([&] {
      Tried tried;
      const auto found = obtain(places, image, generic_arch(), cpu_backend(), jit, tried);
      if (found) return answer_of(*found->module) == 32 ? 0 : 2;
      for (const auto& line : tried)
        if (line.starts_with("user cache: ") && line.size() > 12) return 1;
      return 3;
    }));
  }

  Places places;
  const spec::Image image = answer_image("damaged", 32);
  CompileResult good;
};

TEST_F(Damaged, AtAnyPlaceIsAMissThatHealsOrAClearMissNeverAWrongBinary) {
  int misses = 0;
  for (int round = 0; round < 100; ++round) {
    renew();
    const auto [file, what] = damage();
    SCOPED_TRACE("round " + std::to_string(round) + ": " + file.filename().string() + " " + what);
    const auto copy = folder.path / "read-only";
    fs::remove_all(copy);
    fs::copy(folder.path / "user", copy, fs::copy_options::recursive);
    places.user.emplace(copy, false);
    const int without = call({false, "EJKERNEL_JIT=off", {}});
    EXPECT_LE(without, 1);
    misses += without == 1;
    places.user.emplace(folder.path / "user", true);
    EXPECT_EQ(call({}), 0);
    EXPECT_EQ(find(*places.user, image).verdict, Verdict::hit) << "healed";
    EXPECT_TRUE(places.user->source_intact(image, "cpp")) << "healed";
    if (HasFailure()) return;
  }
  EXPECT_GT(misses, 20) << "the damage was of no consequence";
}

TEST_F(Damaged, AFailedBuildsWordsAreShownWholeOrNotAtAll) {
  for (int round = 0; round < 200; ++round) {
    const fs::path file = entry().string() + ".failed";
    places.user->remember_failure(image, "another compiler 1", "its words");
    auto bytes = slurp(file);
    const auto at = below(bytes.size());
    if (round % 2) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      spill(file, bytes);
    } else {
      fs::resize_file(file, at);
    }
    EXPECT_FALSE(places.user->failed_log(image, "another compiler 1")) << (round % 2 ? "bit flipped at " : "truncated to ") << at;
  }
}

TEST_F(Damaged, FilesOfAnotherKindInAnEntrysPlacesAreNoCrash) {
  for (const char* name : {"source.cpp", "binary.so", "image.json", ".failed", ".lock"})
    for (const char* kind : {"folder", "pipe", "dangling link", "link to itself"}) {
      renew();
      const fs::path file = name[0] == '.' ? fs::path(entry().string() + name) : entry() / name;
      SCOPED_TRACE(file.filename().string() + ": " + kind);
      fs::remove(file);
      if (kind[0] == 'f') fs::create_directory(file);
      if (kind[0] == 'p') {
        ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
      }
      if (kind[0] == 'd') fs::create_symlink("nowhere", file);
      if (kind[0] == 'l') fs::create_symlink(file.filename(), file);
      EXPECT_LE(call({false, "EJKERNEL_JIT=off", {}}), 1);
      EXPECT_EQ(call({}), 0);
    }
}

}  // namespace
}  // namespace ejk::store
