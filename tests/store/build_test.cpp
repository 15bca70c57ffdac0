// Building a store: counts, events, failures, and being killed at any moment.
#include <signal.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "backends/process/owner.hpp"
#include "fixtures.hpp"

namespace ejk::store {
namespace {

const spec::Arch& test_arch() {
  static const spec::Arch arch = generic_arch();
  return arch;
}

std::vector<BuildItem> items_of(int count) {
  std::vector<BuildItem> items;
  for (int i = 0; i < count; ++i) items.push_back({answer_image("n" + std::to_string(i), i), &test_arch()});
  return items;
}

TEST(Build, MakesEveryImageAndThenFindsThemPresent) {
  Folder folder;
  const Store store(folder.path / "store", true);
  const auto items = items_of(5);
  std::multiset<BuildEvent::Kind> kinds;
  std::size_t last_done = 0;
  const auto report = build(store, items, 2, [&](const BuildEvent& event) {
    kinds.insert(event.kind);
    EXPECT_EQ(event.total, 5u);
    EXPECT_GE(event.done, last_done) << "events come in order";
    last_done = event.done;
  });
  EXPECT_EQ(report.built, 5u);
  EXPECT_EQ(last_done, 5u);
  EXPECT_EQ(kinds.count(BuildEvent::Kind::started), 5u);
  EXPECT_EQ(kinds.count(BuildEvent::Kind::built), 5u);
  const auto again = build(store, items, 2, {});
  EXPECT_EQ(again.present, 5u);
  EXPECT_EQ(again.built, 0u);
}

TEST(Build, RebuildsWhatIsDamagedAndNothingElse) {
  Folder folder;
  const Store store(folder.path, true);
  const auto items = items_of(3);
  build(store, items, 1, {});
  spill(store.entry_path(items[1].image) / "binary.so", "broken");
  spill(store.entry_path(items[2].image) / "source.cpp", "// another text");
  const auto report = build(store, items, 1, {});
  EXPECT_EQ(report.present, 1u);
  EXPECT_EQ(report.built, 2u);
  EXPECT_EQ(slurp(store.entry_path(items[2].image) / "source.cpp"), items[2].image.source);
}

TEST(Build, ReportsFailuresWithTheCompilersWordsAndGoesOn) {
  Folder folder;
  auto items = items_of(2);
  items.insert(items.begin() + 1, {make_test_image("broken", "#error this cannot be\n"), &test_arch()});
  const auto report = build(Store(folder.path, true), items, 1, {});
  EXPECT_EQ(report.built, 2u);
  EXPECT_EQ(report.failed, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(report.failures[0].starts_with("toy.plain.cpu_generic.broken:\n")) << report.failures[0];
  EXPECT_NE(report.failures[0].find("this cannot be"), std::string::npos);
}

TEST(Build, RefusesWhatIsAboveALimit) {
  Folder folder;
  const Store store(folder.path, true);
  auto items = items_of(2);
  items[0].image.limits = {{"registers", 1}, {"code_bytes", 1 << 20}};  // the CPU's compiler reports no registers
  items[1].image.limits = {{"code_bytes", 1}};
  const auto report = build(store, items, 1, {});
  EXPECT_EQ(report.built, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(report.failures[0].starts_with("toy.plain.cpu_generic.n1:\nit needs more than its variant's limits allow: code_bytes is "))
      << report.failures[0];
  EXPECT_NE(report.failures[0].find(", the limit is 1 (compiled by "), std::string::npos) << report.failures[0];
  EXPECT_FALSE(fs::exists(store.entry_path(items[1].image)));
}

TEST(Build, RefusesWhatIsThereAndAboveALimit) {
  Folder folder;
  const Store store(folder.path, true);
  auto items = items_of(1);
  build(store, items, 1, {});
  items[0].image.limits = {{"code_bytes", 1}};
  const auto report = build(store, items, 1, {});
  EXPECT_EQ(report.failed, 1u);
  EXPECT_EQ(report.present, 0u);
}

TEST(Build, CopiesWhatAnEarlierBuildMadeOfTheSameSourceByTheSameCompiler) {
  Folder folder;
  write_compiler(folder.path / "cc", folder.path / "log");
  const Variable chosen("CXX", (folder.path / "cc").string());
  const Store earlier(folder.path / "earlier", true), first(folder.path / "first", true), second(folder.path / "second", true);
  auto items = items_of(3);
  const auto made = build(first, items, 1, {}, &earlier);
  EXPECT_EQ(made.built, 3u);
  items.push_back({answer_image("n3", 3), &test_arch()});
  items[2].image.limits = {{"code_bytes", 1}};
  spill(earlier.entry_path(items[1].image) / "binary.so", "broken");
  const auto report = build(second, items, 1, {}, &earlier);
  EXPECT_EQ(report.copied, 1u) << "one is whole and within its limits";
  EXPECT_EQ(report.built, 2u) << "one is new, one was damaged";
  EXPECT_EQ(report.failed, 1u) << "a limit counts for what is copied, too";
  EXPECT_EQ(lines_in(folder.path / "log"), 5);
  for (const auto* name : {"binary.so", "source.cpp", "image.json"})
    EXPECT_EQ(slurp(second.entry_path(items[0].image) / name), slurp(first.entry_path(items[0].image) / name)) << name;
  EXPECT_EQ(build(Store(folder.path / "third", true), items_of(4), 1, {}, &earlier).copied, 4u) << "the damaged one was made anew";
}

TEST(Build, CopiesNothingOfAnotherCompiler) {
  Folder folder;
  const Store earlier(folder.path / "earlier", true);
  const auto items = items_of(1);
  build(Store(folder.path / "first", true), items, 1, {}, &earlier);
  const auto entry = earlier.entry_path(items[0].image) / "image.json";
  auto info = parse_image_info(slurp(entry));
  info.compiler = "another 1.0";
  spill(entry, to_json(info));
  const auto report = build(Store(folder.path / "second", true), items, 1, {}, &earlier);
  EXPECT_EQ(report.built, 1u);
  EXPECT_EQ(parse_image_info(slurp(entry)).compiler, cpu_backend().compiler(test_arch()));
}

TEST(Build, SkipsArchsThatNothingHereCompiles) {
  Folder folder;
  auto foreign = generic_arch(), gpu = generic_arch();
  foreign.machine = "pdp11";
  gpu.platform = "quantum";
  const std::vector<BuildItem> items = {{answer_image("a", 1), &foreign}, {answer_image("b", 1), &gpu}};
  std::vector<std::string> words;
  const auto report = build(Store(folder.path, true), items, 1, [&](const BuildEvent& event) { words.push_back(event.text); });
  EXPECT_EQ(report.skipped, 2u);
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0], "no C++ compiler for pdp11: looked for pdp11-linux-gnu-g++, clang++ --target=pdp11-linux-gnu on PATH" +
                          words[0].substr(words[0].find(" on PATH") + 8));
  EXPECT_EQ(words[1], "this build has no quantum backend");
}

TEST(Build, IntoAPlaceThatCannotBeWrittenIsRefusedAtOnce) {
  Folder folder;
  spill(folder.path / "file", "x");
  const auto items = items_of(1);
  EXPECT_THROW(build(Store(folder.path / "file" / "store", true), items, 1, {}), std::runtime_error);
  EXPECT_THROW(build(Store(folder.path, false), items, 1, {}), std::runtime_error);
}

TEST(Build, StopsWithTheCallersException) {
  Folder folder;
  const auto items = items_of(3);
  EXPECT_THROW(build(Store(folder.path, true), items, 2, [](const BuildEvent&) { throw std::logic_error("enough"); }), std::logic_error);
}

TEST(Build, OfTwoProcessesAtOnceCompilesEachImageOnce) {
  Folder folder;
  const auto log = folder.path / "log";
  write_compiler(folder.path / "cc", log);
  const Variable chosen("CXX", (folder.path / "cc").string());
  (void)cpu_backend().compiler(test_arch());
  const Store store(folder.path / "store", true);
  const auto items = items_of(6);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) children.push_back(start_child([&] { return build(store, items, 2, {}).failed == 0 ? 0 : 1; }));
  for (const auto child : children) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(lines_in(log), 6);
}

TEST(Build, RemovesWhatKilledProcessesLeft) {
  Folder folder;
  const Store store(folder.path, true);
  const auto items = items_of(1);
  fs::create_directories(folder.path / "toy");
  auto dead = Owner::self();
  dead.start += 1;
  fs::create_directory(folder.path / "toy" / (".tmp-" + dead.text() + "-1234"));
  const auto alive = folder.path / "toy" / (".tmp-" + Owner::self().text() + "-1234");
  fs::create_directory(alive);
  spill(folder.path / "toy" / "old.lock", dead.text() + "\n");
  build(store, items, 1, {});
  EXPECT_TRUE(fs::exists(alive)) << "its process lives";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path / "toy"), {}), 2);
}

TEST(Build, KilledAtAnyMomentAndStartedAgainMakesTheSameBytes) {
  Folder folder;
  const Variable work("TMPDIR", (folder.path / "work").string());
  fs::create_directory(folder.path / "work");
  const auto items = items_of(6);
  const Store undisturbed(folder.path / "undisturbed", true);
  const auto whole = build(undisturbed, items, 2, {}).seconds;
  const auto expected = tree_of(undisturbed.root());
  std::mt19937 random(20);
  for (int round = 0; round < 6; ++round) {
    const Store store(folder.path / ("store" + std::to_string(round)), true);
    for (int kills = 0; kills < 3; ++kills) {
      const auto child = start_child([&] { return build(store, items, 2, {}).failed == 0 ? 0 : 1; });
      const auto moment = std::uniform_real_distribution<double>(0, whole * 0.7)(random);
      std::this_thread::sleep_for(std::chrono::duration<double>(moment));
      kill(child, SIGKILL);
      wait_for(child);
    }
    EXPECT_EQ(build(store, items, 2, {}).failed, 0u);
    EXPECT_EQ(tree_of(store.root()), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace ejk::store
