// What a source's hash covers: code and compiler flags, not comments.
#include <gtest/gtest.h>

#include "spec/render/source_hash.hpp"

namespace ejk::spec {
namespace {

TEST(SourceHash, CommentsTrailingSpacesAndEmptyLinesAreLeftOut) {
  EXPECT_EQ(without_comments("// banner\n\nint a;  // a\n/* two\nlines */ int b;\t\n"), "int a;\n  int b;\n");
  EXPECT_EQ(without_comments("int a;"), "int a;\n");
  EXPECT_EQ(without_comments(""), "");
  EXPECT_EQ(without_comments("a/**/b\n"), "a b\n") << "a comment separates words";
}

TEST(SourceHash, LiteralsStay) {
  for (const char* text : {"f(\"// no comment /* nor this */\");\n", "f('\"', '/', '\\'');  \n", "f(R\"x(// raw )\" /*)x\");\n",
                           "f(1'000'000); // c\n", "asm(\"a;\\n\\t\"\n    \"// b\");\n"}) {
    const std::string kept = without_comments(text);
    EXPECT_EQ(kept, std::string(text).substr(0, std::string(text).find_last_of(';') + 1) + "\n") << text;
  }
}

TEST(SourceHash, UnfinishedTextEndsWithItsLineOrTheText) {
  EXPECT_EQ(without_comments("a /* open"), "a\n");
  EXPECT_EQ(without_comments("a(\"open\nb // c\n"), "a(\"open\nb\n");
  EXPECT_EQ(without_comments("R\"(open"), "R\"(open\n");
}

TEST(SourceHash, CoversCodeAndFlagsAlone) {
  const std::string banner = "// id\n// flags     -O2\n", code = "int a;\n";
  EXPECT_EQ(source_hash(banner + code), source_hash("// another id\n// flags     -O2\n\n" + code + "// c\n"));
  EXPECT_NE(source_hash(banner + code), source_hash("// id\n// flags     -O3\n" + code));
  EXPECT_NE(source_hash(banner + code), source_hash(banner + "int b;\n"));
  EXPECT_EQ(source_hash(code).size(), 16u);
}

}  // namespace
}  // namespace ejk::spec
