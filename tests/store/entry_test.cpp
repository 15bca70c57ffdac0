// Entries of a store: published, found, and refused when anything about them is wrong.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>

#include "fixtures.hpp"

namespace ejk::store {
namespace {

class Entry : public ::testing::Test {
 protected:
  void SetUp() override { publish(store, image); }
  void expect_bad(const std::string& words) {
    const auto found = find(store, image);
    EXPECT_EQ(found.verdict, Verdict::bad);
    EXPECT_NE(found.why.find(words), std::string::npos) << found.why;
  }
  void replace_in_info(const std::string& from, const std::string& to) {
    auto text = slurp(entry / "image.json");
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    spill(entry / "image.json", text.replace(at, from.size(), to));
  }
  Folder folder;
  Store store{folder.path / "store", true};
  spec::Image image = answer_image("one", 1);
  fs::path entry = store.entry_path(image);
};

TEST_F(Entry, IsFoundAfterItWasPublished) {
  const auto found = find(store, image);
  ASSERT_EQ(found.verdict, Verdict::hit) << found.why;
  EXPECT_EQ(found.info.id, image.id);
  EXPECT_EQ(found.info.arch, "cpu:generic");
  EXPECT_EQ(slurp(entry / "source.cpp"), image.source);
  EXPECT_EQ(found.binary, entry / "binary.so");
  EXPECT_EQ(entry, folder.path / "store/toy" / (image.id + "-" + image.hash));
}

TEST_F(Entry, HasTheSameBytesWhereverItIsBuilt) {
  const Store other(folder.path / "other", true);
  publish(other, image);
  EXPECT_EQ(tree_of(store.root()), tree_of(other.root()));
  const auto info = slurp(entry / "image.json");
  EXPECT_EQ(info.find(folder.path.string()), std::string::npos);
  EXPECT_EQ(info.find("/tmp"), std::string::npos);
}

TEST_F(Entry, IsAMissForAnotherSource) {
  const auto found = find(store, answer_image("one", 2));
  EXPECT_EQ(found.verdict, Verdict::miss);
  EXPECT_NE(found.why.find("no entry"), std::string::npos) << found.why;
}

TEST_F(Entry, WithATruncatedBinaryIsBad) {
  fs::resize_file(entry / "binary.so", 100);
  expect_bad("100 bytes, expected");
}

TEST_F(Entry, WithAnyFlippedBitIsBad) {
  auto binary = slurp(entry / "binary.so");
  for (std::size_t at = 0; at < binary.size(); at += binary.size() / 40 + 1) {
    binary[at] ^= 4;
    spill(entry / "binary.so", binary);
    expect_bad("sha256 is");
    binary[at] ^= 4;
  }
}

TEST_F(Entry, WithATruncatedInfoIsBad) {
  const auto text = slurp(entry / "image.json");
  for (std::size_t length = 0; length + 2 < text.size(); length += 37) {
    spill(entry / "image.json", text.substr(0, length));
    expect_bad("not JSON");
  }
}

TEST_F(Entry, OfAnotherArchIsBad) {
  replace_in_info("cpu:generic", "cpu:avx512");
  expect_bad("arch is 'cpu:avx512', expected 'cpu:generic'");
}

TEST_F(Entry, OfAnotherIdIsBad) {
  replace_in_info("toy.plain.cpu_generic.one", "toy.plain.cpu_generic.two");
  expect_bad("id is 'toy.plain.cpu_generic.two'");
}

TEST_F(Entry, OfAnotherSourceHashIsBad) {
  replace_in_info(image.hash, "0123456789abcdef");
  expect_bad("source_hash is '0123456789abcdef'");
}

TEST_F(Entry, OfAnUnknownSchemaIsAMissAndIsReplacedByAPublish) {
  replace_in_info("\"schema\": 1", "\"schema\": 77");
  const auto found = find(store, image);
  EXPECT_EQ(found.verdict, Verdict::miss);
  EXPECT_NE(found.why.find("schema 77 is unknown"), std::string::npos) << found.why;
  EXPECT_EQ(publish(store, image).verdict, Verdict::hit);
}

TEST_F(Entry, WithoutABinaryIsBad) {
  fs::remove(entry / "binary.so");
  expect_bad("No such file");
}

TEST_F(Entry, WithoutAnInfoIsBad) {
  fs::remove(entry / "image.json");
  expect_bad("No such file");
}

TEST_F(Entry, WithAPipeInPlaceOfItsInfoDoesNotHang) {
  fs::remove(entry / "image.json");
  ASSERT_EQ(mkfifo((entry / "image.json").c_str(), 0600), 0);
  expect_bad("not a regular file");
}

TEST_F(Entry, ThatIsHugeIsNotRead) {
  fs::resize_file(entry / "image.json", std::uintmax_t{1} << 40);
  expect_bad("expected at most");
}

TEST_F(Entry, ThatIsBadIsSetAsideAndPublishedAnew) {
  for (int i = 0; i < 12; ++i) {
    spill(entry / "binary.so", "broken");
    EXPECT_EQ(publish(store, image).verdict, Verdict::hit);
  }
  int aside = 0;
  for (const auto& at : fs::directory_iterator(entry.parent_path())) aside += at.path().string().find(".bad-") != std::string::npos;
  EXPECT_EQ(aside, 9) << "bad entries are kept, but not without end";
}

TEST_F(Entry, ThatIsGoodIsKeptWhenAnotherPublishes) {
  const auto before = fs::last_write_time(entry / "image.json");
  EXPECT_EQ(publish(store, image).verdict, Verdict::hit);
  EXPECT_EQ(fs::last_write_time(entry / "image.json"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(entry.parent_path()), {}), 1);
}

TEST(ReadOnlyStore, RefusesToPublishAndSetAside) {
  Folder folder;
  const auto image = answer_image("one", 1);
  publish(Store(folder.path, true), image);
  const auto before = tree_of(folder.path);
  const Store store(folder.path, false);
  EXPECT_THROW(publish(store, answer_image("two", 2)), std::runtime_error);
  store.set_aside(image);
  store.remember_failure(image, "g++", "log");
  EXPECT_FALSE(BuildLock::try_acquire(store, image));
  EXPECT_EQ(tree_of(folder.path), before);
}

TEST(Store, BelowARegularFileSaysSo) {
  Folder folder;
  spill(folder.path / "file", "x");
  const Store store(folder.path / "file" / "store", true);
  const auto image = answer_image("one", 1);
  EXPECT_EQ(find(store, image).verdict, Verdict::miss);
  try {
    publish(store, image);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("Not a directory"), std::string::npos) << error.what();
  }
}

TEST(Store, LeavesNothingBehindOnAFullDisk) {
  Folder folder;
  const auto image = answer_image("one", 1);
  const auto result = compile(image);
  ASSERT_TRUE(result.ok) << result.log;
  const auto child = start_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{result.binary.size() / 2, result.binary.size() / 2};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      (void)Store(folder.path, true).publish(image, result, "cpp", "so");
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).find("cannot write") == 0 ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(tree_of(folder.path), (std::map<std::string, std::string>{{"toy", "/"}}));
}

TEST(Store, OnAFullFileSystemReportsItAndWorksInMemory) {
  Folder folder;
  if (mount("none", folder.path.c_str(), "tmpfs", 0, "size=8k,mode=700") != 0) GTEST_SKIP() << "mounting is not permitted here";
  Places places;
  places.user.emplace(folder.path, true);
  Tried tried;
  const auto obtained = obtain(places, answer_image("full", 5), generic_arch(), cpu_backend(), {}, tried);
  umount2(folder.path.c_str(), MNT_DETACH);
  ASSERT_TRUE(obtained);
  EXPECT_EQ(obtained->from, "in memory");
  EXPECT_EQ(answer_of(*obtained->module), 5);
  EXPECT_TRUE(std::ranges::any_of(tried, [](const auto& line) { return line.find("No space left") != std::string::npos; }));
}

TEST(Store, OnAReadOnlyFileSystemReportsItAndWorksInMemory) {
  Folder folder;
  if (mount("none", folder.path.c_str(), "tmpfs", MS_RDONLY, "size=8k,mode=700") != 0) GTEST_SKIP() << "mounting is not permitted here";
  Places places;
  places.user.emplace(folder.path, true);
  Tried tried;
  const auto obtained = obtain(places, answer_image("readonly", 6), generic_arch(), cpu_backend(), {}, tried);
  umount2(folder.path.c_str(), MNT_DETACH);
  ASSERT_TRUE(obtained);
  EXPECT_EQ(obtained->from, "in memory");
  EXPECT_EQ(answer_of(*obtained->module), 6);
}

TEST(Store, ForgetsAFailureWithTheNextPublish) {
  Folder folder;
  const Store store(folder.path, true);
  const auto image = answer_image("one", 1);
  EXPECT_FALSE(store.failed_log(image, "g++ 12"));
  store.remember_failure(image, "g++ 12", "error: no");
  EXPECT_EQ(store.failed_log(image, "g++ 12"), "error: no");
  EXPECT_FALSE(store.failed_log(image, "g++ 13")) << "another compiler may do better";
  EXPECT_FALSE(store.failed_log(answer_image("one", 2), "g++ 12")) << "another source, another chance";
  publish(store, image);
  EXPECT_FALSE(store.failed_log(image, "g++ 12"));
}

}  // namespace
}  // namespace ejk::store
