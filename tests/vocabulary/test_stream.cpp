// The CPU vocabulary's stores past the caches: what they write, from every alignment, and that they are instructions of that kind.
#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "device/cpu.h"
#include "device/number/stream.h"
#include "device/number/vector.h"
#include "tests/paths.hpp"

namespace {

// Elements before and behind the row that is written, which must stay what they were.
constexpr int margin = 40;

template <class T>
class Row {
 public:
  explicit Row(int offset) : offset_(offset) { std::memset(bytes_, 0x55, sizeof bytes_); }
  T* start() { return reinterpret_cast<T*>(bytes_) + margin + offset_; }
  // The first element that is not `count` of 0.5, 1.5, ... between what was there; -1: all are.
  int fault(int count) {
    for (int i = -margin; i < count + margin; ++i) {
      T expected;
      std::memset(&expected, 0x55, sizeof expected);
      if (i >= 0 && i < count) expected = from_float<T>(static_cast<float>(i) + 0.5f);
      if (std::memcmp(start() + i, &expected, sizeof expected) != 0) return i;
    }
    return -1;
  }

 private:
  int offset_;
  alignas(64) char bytes_[1024];
};

Floats ascending(int64_t from) {
  Floats v;
  for (int lane = 0; lane < LANES; ++lane) v[lane] = static_cast<float>(from + lane) + 0.5f;
  return v;
}

template <class T>
void expect_rows() {
  for (int offset = 0; offset < 17; ++offset)
    for (int count = 0; count < 70; ++count) {
      Row<T> row(offset);
      int64_t next = 0;
      stream_row(row.start(), count, [&](int64_t i, int64_t n) {
        EXPECT_EQ(i, next);
        EXPECT_TRUE(n > 0 && n <= LANES) << n;
        next = i + n;
        return ascending(i);
      });
      stream_fence();
      ASSERT_EQ(next, count);
      ASSERT_EQ(row.fault(count), -1) << offset << " " << count;
    }
}

template <class T>
void expect_vectors() {
  for (int offset = 0; offset < 17; ++offset)
    for (int count = 0; count <= LANES; ++count) {
      Row<T> whole(offset), some(offset);
      stream_elements(whole.start(), ascending(0));
      stream_some(some.start(), ascending(0), count);
      stream_fence();
      ASSERT_EQ(whole.fault(LANES), -1) << offset;
      ASSERT_EQ(some.fault(count), -1) << offset << " " << count;
    }
}

TEST(Stream, rows_are_written_whole_and_no_further) {
  expect_rows<float>();
  expect_rows<bfloat16>();
  expect_rows<half>();
}

TEST(Stream, vectors_and_their_first_elements_are_written_and_no_more) {
  expect_vectors<float>();
  expect_vectors<bfloat16>();
  expect_vectors<half>();
}

// The instructions of a row of `type` by this compiler, as one string; empty: it did not compile.
std::string assembly(const std::string& compiler, const std::string& flags, const std::string& type) {
  const std::string name = testing::TempDir() + "ejk_stream_" + std::to_string(::getpid());
  std::ofstream(name + ".cpp")
      << "#include \"device/number/stream.h\"\n#include \"device/number/vector.h\"\n"
      << "extern \"C\" void row(" << type << "* to, const float* from, int64_t n) {\n"
      << "  stream_row(to, n, [&](int64_t i, int64_t k) { return load_some(from + i, k); });\n  stream_fence();\n}\n";
  const std::string command = compiler + " -std=c++20 -O3 -Wall -Werror " + flags + " -I" + ejk::test::source_dir() + "/templates -S -o " +
                              name + ".s " + name + ".cpp";
  const bool compiled = std::system(command.c_str()) == 0;
  std::stringstream text;
  if (compiled) text << std::ifstream(name + ".s").rdbuf();
  std::remove((name + ".cpp").c_str());
  std::remove((name + ".s").c_str());
  return text.str();
}

#if defined(__x86_64__)
TEST(Stream, instructions_pass_the_caches_by) {
  const struct {
    const char *flags, *type, *whole_vector;
  } machines[] = {{"", "float", "movntdq"},
                  {"", "bfloat16", "movnti"},
                  {"-march=x86-64-v3", "float", "vmovntdq\t%ymm"},
                  {"-march=x86-64-v3", "bfloat16", "vmovntdq\t%xmm"},
                  {"-march=x86-64-v4 -mprefer-vector-width=512", "float", "vmovntdq\t%zmm"},
                  {"-march=x86-64-v4 -mprefer-vector-width=512", "half", "vmovntdq\t%ymm"}};
  for (const auto& [flags, type, whole_vector] : machines) {
    const auto text = assembly("g++", flags, type);
    for (const std::string word : {whole_vector, "movnti", "sfence"})
      EXPECT_NE(text.find(word), std::string::npos) << flags << " " << type << " " << word;
  }
}
#endif

TEST(Stream, is_a_plain_store_where_there_is_no_other) {
  if (std::system("aarch64-linux-gnu-g++ --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "aarch64-linux-gnu-g++ is not here";
  const auto text = assembly("aarch64-linux-gnu-g++", "", "bfloat16");
  EXPECT_NE(text.find("str"), std::string::npos);
  EXPECT_EQ(text.find("movnt"), std::string::npos);
}

}  // namespace
