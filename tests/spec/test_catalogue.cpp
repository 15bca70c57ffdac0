// A folder of specs: read at once, or kernel by kernel.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "spec/read/catalogue.hpp"
#include "spec/read/files.hpp"
#include "tests/paths.hpp"

namespace {

using namespace ejk::spec;
namespace fs = std::filesystem;

const fs::path bad_specs = fs::path(ejk::test::source_dir()) / "tests/generator/bad_specs";

// A folder with one good kernel and its arch files, removed afterwards.
class CatalogueFolder : public testing::Test {
 protected:
  void SetUp() override {
    root = fs::temp_directory_path() / ("ejk_catalogue_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root);
    fs::create_directories(root / "arch");
    for (const char* arch : {"generic", "avx2"}) write("arch/" + std::string(arch) + ".json", read_text(repository_arch(arch)));
    write("scale_rows.json", read_text(bad_specs / "good.json"));
  }
  void TearDown() override { fs::remove_all(root); }

  static fs::path repository_arch(const std::string& name) { return fs::path(ejk::test::source_dir()) / "specs/arch" / (name + ".json"); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(root / name) << text; }
  Catalogue load() const { return Catalogue::load(root, bad_specs / "templates"); }
  std::string error() const {
    try {
      load();
    } catch (const SpecError& faults) {
      return faults.what();
    }
    return "no fault";
  }

  fs::path root;
};

TEST_F(CatalogueFolder, IsReadAtOnce) {
  const Catalogue catalogue = load();
  EXPECT_EQ(catalogue.kernel_names(), std::vector<std::string>{"scale_rows"});
  const auto spec = catalogue.kernel("scale_rows");
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(spec, catalogue.kernel("scale_rows"));
  ASSERT_NE(catalogue.arch("cpu:avx2"), nullptr);
  EXPECT_EQ(catalogue.arch("cpu:avx9"), nullptr);
  const auto archs = catalogue.archs_of(spec->variants[0]);
  ASSERT_EQ(archs.size(), 2u);
  EXPECT_EQ(archs[0]->name, "avx2");
}

TEST_F(CatalogueFolder, KernelsThatServeEachOtherAreAFaultAndNoCircle) {
  for (const auto& [name, other] : {std::pair("one", "two"), std::pair("two", "one"), std::pair("self", "self")})
    write(std::string(name) + ".json", R"({"kernel": ")" + std::string(name) +
                                           R"(", "doc": "d", "dims": {"N": "n"}, "types": {"E": ["f32"]},
      "inputs": [{"name": "x", "type": "E", "shape": ["N"], "doc": "d"}], "outputs": [{"name": "out", "type": "E", "shape": ["N"], "doc": "d"}],
      "cost": {"flops": "N", "bytes": "N"}, "same_as": {"kernel": ")" +
                                           other + R"("}, "cases": [], "tolerance": {"f32": 1e-5}})");
  const Catalogue catalogue = Catalogue::open(root, bad_specs / "templates");
  const auto told = [&](const char* name) -> std::string {
    try {
      catalogue.kernel(name);
    } catch (const SpecError& error) {
      return error.what();
    }
    return "no fault";
  };
  EXPECT_NE(told("one").find("/same_as/kernel: two has no variants of its own; name one"), std::string::npos) << told("one");
  EXPECT_NE(told("self").find("/same_as/kernel: unknown kernel 'self'"), std::string::npos) << told("self");
}

TEST_F(CatalogueFolder, OpensOnlyTheKernelAskedFor) {
  write("broken.json", "{");
  const Catalogue catalogue = Catalogue::open(root, bad_specs / "templates");
  EXPECT_NE(catalogue.kernel("scale_rows"), nullptr);
  EXPECT_EQ(catalogue.kernel("absent"), nullptr);
  EXPECT_EQ(catalogue.kernel("../arch/generic"), nullptr);
  EXPECT_THROW(catalogue.kernel("broken"), SpecError);
  EXPECT_THROW(catalogue.kernel("broken"), SpecError);
}

TEST_F(CatalogueFolder, OpensAKernelOnceForManyThreads) {
  const Catalogue catalogue = Catalogue::open(root, bad_specs / "templates");
  std::vector<std::shared_ptr<const Spec>> specs(8);
  std::vector<std::thread> threads;
  for (auto& spec : specs) threads.emplace_back([&] { spec = catalogue.kernel("scale_rows"); });
  for (auto& thread : threads) thread.join();
  for (const auto& spec : specs) EXPECT_EQ(spec, specs[0]);
}

// A folder of one's own, without archs, before the shipped one: each thing is taken from the first that has it.
TEST_F(CatalogueFolder, SeveralAreSearchedInOrder) {
  const auto own = root / "own";
  fs::create_directories(own / "specs");
  fs::create_directories(own / "templates");
  const auto good = read_text(bad_specs / "good.json");
  auto mine = good;
  mine.replace(mine.find("scale_rows"), std::string("scale_rows").size(), "my_rows");
  std::ofstream(own / "specs/my_rows.json") << mine;
  std::ofstream(own / "templates/mine.cpu.cpp") << "// mine";
  const Catalogue catalogue =
      Catalogue::open(std::vector<Catalogue::Folders>{{own / "specs", own / "templates"}, {root, bad_specs / "templates"}});
  EXPECT_EQ(catalogue.kernel_names(), (std::vector<std::string>{"my_rows", "scale_rows"}));
  ASSERT_NE(catalogue.kernel("my_rows"), nullptr);
  EXPECT_NE(catalogue.kernel("scale_rows"), nullptr);
  EXPECT_NE(catalogue.arch("cpu:avx2"), nullptr);
  EXPECT_EQ(catalogue.templates().path_of("mine.cpu.cpp"), own / "templates/mine.cpu.cpp");
  const auto shipped = catalogue.kernel("scale_rows")->variants[0].template_file;
  EXPECT_EQ(catalogue.templates().path_of(shipped), bad_specs / "templates" / shipped);

  std::ofstream(own / "specs/scale_rows.json") << "{";
  const Catalogue again =
      Catalogue::open(std::vector<Catalogue::Folders>{{own / "specs", own / "templates"}, {root, bad_specs / "templates"}});
  EXPECT_THROW(again.kernel("scale_rows"), SpecError) << "the first folder's file counts, whatever is in it";
}

TEST_F(CatalogueFolder, ReportsTheFaultsOfEveryFile) {
  write("other.json", read_text(bad_specs / "good.json"));
  write("arch/zen.json", R"({"arch": "zen4", "platform": "cpu", "doc": "x", "extends": "avx3", "flags": [], "properties": {}})");
  write("broken.json", "{");
  const std::string text = error(), at = root.generic_string() + "/";
  EXPECT_NE(text.find(at + "arch/zen.json:/arch: the arch 'zen4' is in a file of another name; name the file zen4.json"), std::string::npos)
      << text;
  EXPECT_NE(text.find(at + "arch/zen.json:/extends: unknown arch 'cpu:avx3'; did you mean 'avx2'?"), std::string::npos) << text;
  EXPECT_NE(text.find(at + "broken.json:1:2: not JSON"), std::string::npos) << text;
  EXPECT_NE(text.find(at + "other.json:/kernel: the kernel 'scale_rows' is in a file of another name; name the file scale_rows.json"),
            std::string::npos)
      << text;
}

// ejk-gen tells at once of files that the runtime passes over; neither waits at a pipe or reads a device for ever.
TEST_F(CatalogueFolder, FilesThatAreNobodysSpecsAreTold) {
  write("._scale_rows.json", "an archive's");
  write("x-y.json", "{}");
  ASSERT_EQ(mkfifo((root / "pipe.json").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", root / "arch" / "zero.json");
  const std::string text = error(), at = root.generic_string() + "/";
  EXPECT_NE(text.find(at + "x-y.json: 'x-y' is not a name"), std::string::npos) << text;
  EXPECT_NE(text.find(at + "pipe.json: not a regular file"), std::string::npos) << text;
  EXPECT_NE(text.find(at + "arch/zero.json: not a regular file"), std::string::npos) << text;
  EXPECT_EQ(text.find("._scale_rows"), std::string::npos) << text;

  const Catalogue catalogue = Catalogue::open(root, bad_specs / "templates");
  EXPECT_EQ(catalogue.kernel_names(), std::vector<std::string>{"scale_rows"});
  EXPECT_EQ(catalogue.passed_over().size(), 3u);
}

TEST_F(CatalogueFolder, ASpecHasALimitOfSize) {
  write("large.json", std::string((8u << 20) + 1, ' '));
  EXPECT_NE(error().find("large.json: the file has 8388609 bytes; the limit is 8388608"), std::string::npos) << error();
}

TEST_F(CatalogueFolder, ThatIsMissingIsAnError) { EXPECT_THROW(Catalogue::load(root / "absent", bad_specs), std::runtime_error); }

}  // namespace
