// Sizes of a command line.
#include "spec/read/byte_size.hpp"

#include <gtest/gtest.h>

namespace ejk::spec {
namespace {

TEST(ByteSize, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(parse_byte_size("0"), 0);
  EXPECT_EQ(parse_byte_size("12345"), 12345);
  EXPECT_EQ(parse_byte_size("800k"), 800'000);
  EXPECT_EQ(parse_byte_size("50MB"), 50'000'000);
  EXPECT_EQ(parse_byte_size("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(parse_byte_size("64MiB"), 64 << 20);
  EXPECT_EQ(parse_byte_size("2T"), 2'000'000'000'000);
  EXPECT_EQ(parse_byte_size("7B"), 7);
}

TEST(ByteSize, RefusesTheRest) {
  for (const char* text : {"", "MB", "-1", "5X", "5 MBs", "5MMB", "1e3", "nan", "inf", "99999999T", "5 i", "5iB"})
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
}

}  // namespace
}  // namespace ejk::spec
