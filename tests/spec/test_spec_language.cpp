// docs/spec-language.md: its examples are evaluated, rendered and refused as the page says.
#include <gtest/gtest.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "spec/check/check_names.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/files.hpp"
#include "spec/read/json.hpp"
#include "spec/read/loader.hpp"
#include "spec/render/image.hpp"
#include "tests/paths.hpp"

namespace spec_language_test {
namespace {

using namespace ejk::spec;

// The fenced blocks of a kind, in the page's order.
std::vector<std::string> blocks(const std::string& kind) {
  const std::string page = read_text(std::filesystem::path(ejk::test::source_dir()) / "docs/spec-language.md"),
                    opening = "\n```" + kind + "\n";
  std::vector<std::string> found;
  for (std::size_t at = page.find(opening); at != std::string::npos; at = page.find(opening, at + 1)) {
    const std::size_t first = at + opening.size();
    found.push_back(page.substr(first, page.find("```", first) - first));
  }
  return found;
}

std::vector<std::string> lines_of(const std::string& kind) {
  std::vector<std::string> lines;
  for (const std::string& block : blocks(kind)) {
    std::istringstream text(block);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> texts(const std::vector<Fault>& faults) {
  std::vector<std::string> lines;
  for (const Fault& fault : faults) lines.push_back(fault.text());
  return lines;
}

const std::map<std::string, Arch>& archs() {
  static const auto all = [] {
    std::vector<Fault> faults, passed_over;
    return load_archs(std::filesystem::path(ejk::test::source_dir()) / "specs/arch", faults, passed_over);
  }();
  return all;
}

// The faults of the page's spec, form and names.
std::vector<Fault> faults_of(const std::string& text, Spec* spec = nullptr) {
  std::vector<Fault> faults;
  const auto read = load_spec("page.json", text, faults);
  if (read) check_names(*read, archs(), faults);
  if (read && spec) *spec = *read;
  return faults;
}

const Spec& page_spec() {
  static const Spec spec = [] {
    Spec read;
    EXPECT_EQ(texts(faults_of(blocks("json").at(0), &read)), std::vector<std::string>{});
    return read;
  }();
  return spec;
}

Binding page_call() { return bind(page_spec(), facts_of(page_spec(), page_spec().cases.at(0))); }

std::string outcome(const std::string& expression, const Scope& scope) {
  try {
    return to_text(Expression::parse(expression).evaluate(scope));
  } catch (const ExpressionError& error) {
    return std::string("error: ") + error.what();
  }
}

TEST(SpecLanguage, ExpressionsHaveTheValuesThatThePageSays) {
  const Binding call = page_call();
  int values = 0, errors = 0;
  for (const std::string& line : lines_of("expressions")) {
    if (const auto arrow = line.find(" => "); arrow != std::string::npos) {
      EXPECT_EQ(outcome(line.substr(0, arrow), call), line.substr(arrow + 4)) << line;
      ++values;
    } else if (const auto refused = line.find(" !> "); refused != std::string::npos) {
      const std::string found = outcome(line.substr(0, refused), call);
      EXPECT_TRUE(found.starts_with("error: ") && found.find(line.substr(refused + 4)) != std::string::npos) << line << "\n" << found;
      ++errors;
    } else {
      ADD_FAILURE() << "neither => nor !> in: " << line;
    }
  }
  EXPECT_GE(values, 25);
  EXPECT_GE(errors, 8);
}

TEST(SpecLanguage, NamesAreRefusedWhereThePageSaysThatTheyAreNotKnown) {
  int lines = 0;
  for (const std::string& line : lines_of("refused")) {
    const auto first = line.find(" | "), second = line.rfind(" | ");
    ASSERT_LT(first, second) << line;
    const std::string pointer = line.substr(0, first), message = line.substr(second + 3);
    Json spec = Json::parse(blocks("json").at(0));
    spec.at(Json::json_pointer(pointer)) = line.substr(first + 3, second - first - 3);
    const std::vector<std::string> found = texts(faults_of(spec.dump()));
    ASSERT_FALSE(found.empty()) << line;
    EXPECT_TRUE(found[0].starts_with("page.json:" + pointer + ":")) << found[0];
    EXPECT_NE(found[0].find(message), std::string::npos) << line << "\n" << found[0];
    ++lines;
  }
  EXPECT_GE(lines, 8);
}

TEST(SpecLanguage, TheTemplateRendersAsThePageSays) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("ejk_spec_language_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "scaled_rows");
  // CPU templates are refused without the words of device/cpu.h; this stands for them.
  const std::string vocabulary = "struct Group;\n";
  std::ofstream(folder / "scaled_rows/rows.cpu.cpp") << vocabulary << blocks("template").at(0);
  const Binding call = page_call();
  const Variant& variant = page_spec().variants[0];
  const Arch& arch = archs().at("cpu:generic");
  const Config config = heuristic_config(variant, arch, call).value();
  EXPECT_EQ(invalid_clause(variant, arch, call, config), std::nullopt);
  const std::string source = make_image(page_spec(), variant, arch, call, config, TemplateLibrary(folder)).source;
  EXPECT_NE(source.find(vocabulary + blocks("rendered").at(0)), std::string::npos) << source;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace spec_language_test
