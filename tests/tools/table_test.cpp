// Tables and numbers as people read them.
#include "command_line/table.hpp"

#include <gtest/gtest.h>

namespace ejk::tools {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({{"name"}, {"n", Align::right}});
  table.row({"a", "100"});
  table.row({"longer", "7"});
  EXPECT_EQ(table.text(), "name      n\na       100\nlonger    7\n");
}

TEST(Table, MissingCellsAreEmptyAndLinesHaveNoTrailingBlanks) {
  Table table({{"a"}, {"b"}});
  table.row({"x"});
  EXPECT_EQ(table.text("  "), "  a  b\n  x\n");
}

TEST(Table, CharactersOfUtf8CountOnce) {
  Table table({{"a"}, {"b"}});
  table.row({"×", "1"});
  EXPECT_EQ(table.text(), "a  b\n×  1\n");
}

TEST(Table, MarkdownMarksRightAlignedColumns) {
  Table table({{"a"}, {"b", Align::right}});
  table.row({"x", "1"});
  EXPECT_EQ(table.markdown(), "| a | b |\n|---|---:|\n| x | 1 |\n");
}

TEST(Numbers, HaveThreeDigitsAndNoExponentWhereReadable) {
  EXPECT_EQ(digits(0), "0");
  EXPECT_EQ(digits(312.4), "312");
  EXPECT_EQ(digits(31.24), "31.2");
  EXPECT_EQ(digits(3.124), "3.12");
  EXPECT_EQ(digits(0.3124), "0.312");
  EXPECT_EQ(digits(3.124e-5), "3.12e-05");
}

TEST(Numbers, BytesAndSecondsHaveUnits) {
  EXPECT_EQ(bytes_text(12), "12 bytes");
  EXPECT_EQ(bytes_text(1.5e6), "1.5 MB");
  EXPECT_EQ(bytes_text(2.25e9), "2.25 GB");
  EXPECT_EQ(seconds_text(2e-6), "2.00 us");
  EXPECT_EQ(seconds_text(0.25), "250.00 ms");
  EXPECT_EQ(seconds_text(2.5), "2.50 s");
}

}  // namespace
}  // namespace ejk::tools
