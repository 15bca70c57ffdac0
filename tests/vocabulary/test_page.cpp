// docs/vocabulary.md: every header of its table is there, with every word that the table gives it.
#include <gtest/gtest.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.hpp"

namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A header with all that it includes.
std::string with_included(const fs::path& templates, const std::string& header, std::set<std::string>& seen) {
  if (!seen.insert(header).second) return "";
  const std::string text = text_of(templates / header), opening = "#include \"";
  std::string all = text;
  for (std::size_t at = text.find(opening); at != std::string::npos; at = text.find(opening, at + 1)) {
    const std::size_t first = at + opening.size();
    all += with_included(templates, text.substr(first, text.find('"', first) - first), seen);
  }
  return all;
}

// What stands between backquotes.
std::vector<std::string> in_backquotes(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
    const std::size_t end = line.find('`', at + 1);
    words.push_back(line.substr(at + 1, end - at - 1));
    at = end;
  }
  return words;
}

TEST(VocabularyPage, NamesWordsThatTheHeadersHave) {
  const fs::path source = ejk::test::source_dir();
  std::istringstream page(text_of(source / "docs/vocabulary.md"));
  int words = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const auto row = in_backquotes(line);
    std::set<std::string> seen;
    const auto header = with_included(source / "templates", row.at(0), seen);
    ASSERT_FALSE(header.empty()) << row[0];
    for (std::size_t i = 1; i < row.size(); ++i, ++words)
      EXPECT_NE(header.find(row[i]), std::string::npos) << row[0] << " lacks " << row[i];
  }
  EXPECT_GT(words, 30);
}

}  // namespace
