// Files that do not belong among the specs of a store: hidden ones are passed over, the others told, and none crashes or hangs a program.
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ejk/ejk.h"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class OddFiles : public StoreTest {
 protected:
  // The test store in a folder of its own, to which files may be added.
  OddFiles() {
    const fs::path data = fs::path(test::source_dir()) / "tests/execute/data";
    fs::copy(data, store(), fs::copy_options::recursive);
  }
  fs::path store() const { return folder / "store"; }
  fs::path specs() const { return store() / "specs"; }
  void use_it() const { ASSERT_EQ(ejk_add_store(store().c_str()), EJK_OK) << ejk_last_error(); }
  static json told(ejk_status (*ask)(char**)) {
    char* text = nullptr;
    const auto status = ask(&text);
    EXPECT_EQ(status, EJK_OK) << ejk_last_error();
    auto parsed = text ? json::parse(text) : json();
    ejk_free(text);
    return parsed;
  }
  // Why the file is passed over, as ejk_info tells; "": it does not tell.
  static std::string reason(const json& info, const fs::path& file) {
    for (const auto& each : info.at("passed_over"))
      if (each.at("file") == file.generic_string()) return each.at("reason");
    return "";
  }
};

TEST_F(OddFiles, HiddenOnesAreNobodysSpecs) {
  for (const auto* name : {"._shift.json", ".#x.json", ".json"}) std::ofstream(specs() / name) << "{";
  fs::create_symlink("me@host.1234:5678", specs() / ".#shift.json");  // an editor's lock
  std::ofstream(specs() / "arch" / "._generic.json") << "{";
  use_it();
  const auto names = told(ejk_kernels);
  EXPECT_EQ(std::count(names.begin(), names.end(), "shift"), 1);
  for (const auto& name : names) EXPECT_NE(name.get<std::string>().front(), '.') << name;
  const auto info = told(ejk_info);
  EXPECT_EQ(info.at("passed_over"), json::array());
  EXPECT_EQ(info.at("kernels").size(), names.size());
}

TEST_F(OddFiles, OthersAreToldAndAreNoKernels) {
  const auto before = [] {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(fs::path(test::source_dir()) / "tests/execute/data/specs"))
      if (file.path().extension() == ".json") names.push_back(file.path().stem());
    std::sort(names.begin(), names.end());
    return names;
  }();
  std::ofstream(specs() / "x-y.json") << "{}";
  fs::create_directory(specs() / "folder.json");
  ASSERT_EQ(mkfifo((specs() / "pipe.json").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", specs() / "zero.json");
  fs::create_symlink("nowhere", specs() / "dangling.json");
  ASSERT_EQ(mkfifo((specs() / "arch" / "pipe.json").c_str(), 0600), 0);
  std::ofstream(specs() / "broken.json") << "{";
  use_it();
  auto names = told(ejk_kernels);
  names.erase(std::find(names.begin(), names.end(), "broken"));  // it has the name of a kernel: to ask for it tells what is wrong
  EXPECT_EQ(names, json(before));
  const auto info = told(ejk_info);
  EXPECT_EQ(info.at("kernels").size(), before.size());
  EXPECT_NE(reason(info, specs() / "x-y.json").find("'x-y' is not a name"), std::string::npos) << info.at("passed_over");
  EXPECT_EQ(reason(info, specs() / "folder.json"), "a folder; expected a file");
  EXPECT_EQ(reason(info, specs() / "pipe.json"), "not a regular file");
  EXPECT_EQ(reason(info, specs() / "zero.json"), "not a regular file");
  EXPECT_EQ(reason(info, specs() / "dangling.json"), "a link that leads nowhere");
  EXPECT_EQ(reason(info, specs() / "arch" / "pipe.json"), "not a regular file");
  EXPECT_NE(reason(info, specs() / "broken.json").find("not JSON"), std::string::npos) << info.at("passed_over");
  char* text = nullptr;
  EXPECT_EQ(ejk_describe("pipe", &text), EJK_BAD_INPUT);
  EXPECT_EQ(ejk_describe("broken", &text), EJK_BAD_INPUT);
}

// A link to a spec is one: stores are made of them.
TEST_F(OddFiles, LinksToFilesAreFiles) {
  fs::rename(specs() / "shift.json", folder / "elsewhere.json");
  fs::create_symlink(folder / "elsewhere.json", specs() / "shift.json");
  use_it();
  const auto names = told(ejk_kernels);
  EXPECT_EQ(std::count(names.begin(), names.end(), "shift"), 1);
  EXPECT_EQ(told(ejk_info).at("passed_over"), json::array());
}

// A template that is a device would be read for ever.
TEST_F(OddFiles, ATemplateThatIsNoFileIsAnError) {
  for (const auto& file : fs::recursive_directory_iterator(store() / "templates"))
    if (file.is_regular_file() && file.path().extension() == ".cpp") {
      const auto path = file.path();
      fs::remove(path);
      fs::create_symlink("/dev/zero", path);
    }
  use_it();
  alignas(64) float x[8] = {}, out[8] = {};
  const auto status = call("shift", {{"x", TensorView(x, DType::f32, {6})}, {"out", TensorView(out, DType::f32, {6})}}, {});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("there is no such template"), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace ejk
