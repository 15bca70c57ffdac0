// Every spec of bad_specs is refused, each with the exact first line of its .expected file; good.json, from which they are made, is not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "spec/check/check.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/files.hpp"
#include "spec/read/loader.hpp"
#include "tests/paths.hpp"

namespace {

using namespace ejk::spec;

const std::filesystem::path folder = std::filesystem::path(ejk::test::source_dir()) / "tests/generator/bad_specs";

// The faults of a spec, as the generator finds them. The file is shown as bad.json.
std::vector<std::string> faults_of(const std::filesystem::path& path) {
  std::vector<Fault> faults;
  const auto archs = load_archs(std::filesystem::path(ejk::test::source_dir()) / "specs/arch", faults, faults);
  if (const auto spec = load_spec("bad.json", read_text(path), faults)) {
    const TemplateLibrary templates(folder / "templates");
    check_spec(*spec, archs, templates, {"scale_rows", "scale_rows_bwd"}, faults);
  }
  std::vector<std::string> lines;
  for (const Fault& fault : faults) lines.push_back(fault.text());
  return lines;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The absolute folder of the templates is the machine's own.
std::string without_folder(std::string line) {
  const std::string text = folder.generic_string() + "/";
  if (const auto at = line.find(text); at != std::string::npos) line.erase(at, text.size());
  return line;
}

std::vector<std::string> bad_specs() {
  std::vector<std::string> names;
  for (const auto& path : json_files(folder).files)
    if (path.stem() != "good") names.push_back(path.stem().string());
  return names;
}

class BadSpec : public testing::TestWithParam<std::string> {};

TEST_P(BadSpec, IsRefusedWithItsExactFirstLine) {
  const auto expected = lines_of(folder / (GetParam() + ".expected"));
  const auto found = faults_of(folder / (GetParam() + ".json"));
  ASSERT_FALSE(expected.empty()) << GetParam() << ".expected is missing or empty";
  ASSERT_FALSE(found.empty()) << "the spec has no fault";
  EXPECT_EQ(without_folder(found.front()), expected.front());
  // Where the file has more lines, they are all the faults.
  if (expected.size() > 1) {
    EXPECT_EQ(found, expected);
  }
}

TEST_P(BadSpec, HasTheSameFaultsEveryTime) {
  const auto path = folder / (GetParam() + ".json");
  EXPECT_EQ(faults_of(path), faults_of(path));
}

INSTANTIATE_TEST_SUITE_P(Every, BadSpec, testing::ValuesIn(bad_specs()), [](const auto& info) { return info.param; });

TEST(GoodSpec, HasNoFault) { EXPECT_EQ(faults_of(folder / "good.json"), std::vector<std::string>{}); }

TEST(BadSpecs, AreManyAndEachHasExpectations) {
  EXPECT_GE(bad_specs().size(), 45u);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".expected") continue;
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(entry.path()).replace_extension(".json"))) << entry.path() << " has no spec";
  }
}

}  // namespace
