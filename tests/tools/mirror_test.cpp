// Mirrored folders.
#include "store/mirror.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

class Mirror : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(from() / "sub"); }
  void TearDown() override { fs::remove_all(root_); }
  fs::path from() const { return root_ / "from"; }
  fs::path to() const { return root_ / "to"; }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string read(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  const fs::path root_ =
      fs::path(testing::TempDir()) / ("ejk_mirror_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(Mirror, CopiesFilesOfTheExtensionsAndLeavesOthersOut) {
  write(from() / "a.json", "1");
  write(from() / "sub" / "b.json", "2");
  write(from() / "c.txt", "3");
  const auto report = mirror(from(), to(), {".json"});
  EXPECT_EQ(report.written, 2u);
  EXPECT_EQ(read(to() / "sub" / "b.json"), "2");
  EXPECT_FALSE(fs::exists(to() / "c.txt"));
}

TEST_F(Mirror, EqualFilesAreNotTouchedAndChangedOnesAreReplaced) {
  write(from() / "a.json", "1");
  write(from() / "b.json", "2");
  mirror(from(), to(), {".json"});
  const auto before = fs::last_write_time(to() / "a.json");
  write(from() / "b.json", "3");
  const auto report = mirror(from(), to(), {".json"});
  EXPECT_EQ(report.unchanged, 1u);
  EXPECT_EQ(report.written, 1u);
  EXPECT_EQ(fs::last_write_time(to() / "a.json"), before);
  EXPECT_EQ(read(to() / "b.json"), "3");
}

TEST_F(Mirror, FilesThatAreGoneAreRemoved) {
  write(from() / "a.json", "1");
  write(from() / "b.json", "2");
  mirror(from(), to(), {".json"});
  fs::remove(from() / "b.json");
  EXPECT_EQ(mirror(from(), to(), {".json"}).removed, 1u);
  EXPECT_FALSE(fs::exists(to() / "b.json"));
}

TEST_F(Mirror, AFolderMirroredOntoItselfStaysAsItIs) {
  write(from() / "a.json", "1");
  mirror(from(), from(), {".json"});
  EXPECT_EQ(read(from() / "a.json"), "1");
}

TEST_F(Mirror, AMissingFolderIsAnErrorThatNamesIt) { EXPECT_THROW(mirror(from() / "none", to(), {".json"}), std::runtime_error); }

}  // namespace
}  // namespace ejk::tools
