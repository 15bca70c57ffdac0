// Matrix tiles against plain loops over the layouts of the PTX ISA, written out element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "emulator/program.hpp"
#include "reference/element.hpp"
#include "reference/random.hpp"

namespace ejk {
namespace {

using reference::Rng;

std::vector<std::uint16_t> random_elements(DType type, std::size_t count, Rng& rng) {
  std::vector<std::uint16_t> elements(count);
  for (auto& element : elements) reference::store_element(type, &element, rng.normal());
  return elements;
}

double value(DType type, const std::uint16_t& element) { return reference::load_element(type, &element); }

// a[16][16], b[16][8] row-major in memory; every lane picks its fragments one element at a time.
constexpr char multiply[] = R"(
using T = ${T};
static uint32_t pair(const uint16_t* low, const uint16_t* high) { return static_cast<uint32_t>(*high) << 16 | *low; }
KERNEL(32, 1) kernel(void* a, void* b, void* c, int64_t) {
  const auto* A = static_cast<const uint16_t*>(a);
  const auto* B = static_cast<const uint16_t*>(b);
  float* const C = static_cast<float*>(c);
  const int group = lane() >> 2, in_group = lane() & 3;
  uint32_t fragment[4];
  for (int i = 0; i < 4; ++i) {
    const int row = i == 0 || i == 2 ? group : group + 8;
    const int column = i < 2 ? 2 * in_group : 2 * in_group + 8;
    fragment[i] = pair(A + 16 * row + column, A + 16 * row + column + 1);
  }
  const uint32_t b0 = pair(B + 8 * (2 * in_group) + group, B + 8 * (2 * in_group + 1) + group);
  const uint32_t b1 = pair(B + 8 * (2 * in_group + 8) + group, B + 8 * (2 * in_group + 9) + group);
  float sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = C[8 * (i < 2 ? group : group + 8) + 2 * in_group + (i & 1)];
  mma_16x8x16<T>(sum, fragment, b0, b1);
  for (int i = 0; i < 4; ++i) C[8 * (i < 2 ? group : group + 8) + 2 * in_group + (i & 1)] = sum[i];
}
)";

TEST(SimtMma, AddsTheProductOfTheTiles) {
  for (const auto& [type, name] : {std::pair{DType::f16, "half"}, {DType::bf16, "bfloat16"}}) {
    Rng rng(7);
    const Program program(multiply, {{"T", spec::Value(std::string(name))}});
    const auto a = random_elements(type, 256, rng), b = random_elements(type, 128, rng);
    std::vector<float> c(128);
    for (auto& x : c) x = static_cast<float>(rng.normal());
    const auto before = c;
    program.run({}, const_cast<std::uint16_t*>(a.data()), const_cast<std::uint16_t*>(b.data()), c.data());
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 8; ++n) {
        double expected = before[8 * m + n];
        for (std::size_t k = 0; k < 16; ++k) expected += value(type, a[16 * m + k]) * value(type, b[8 * k + n]);
        EXPECT_NEAR(c[8 * m + n], expected, 1e-5) << name << " " << m << " " << n;
      }
  }
}

TEST(SimtMma, TakesDenormalsInfinitiesAndNan) {
  const Program program(multiply, {{"T", spec::Value(std::string("half"))}});
  std::vector<std::uint16_t> a(256, 0), b(128, 0);
  std::vector<float> c(128, 0);
  a[0] = 0x0001, b[0] = 0x7bff;    // smallest denormal by largest number
  a[17] = 0x7c00, b[9] = 0x3c00;   // infinity by 1: row 1, column 1
  a[34] = 0x7e00, b[18] = 0x3c00;  // NaN by 1: all of row 2
  program.run({}, a.data(), b.data(), c.data());
  EXPECT_EQ(c[0], 65504 * 0x1p-24f);
  EXPECT_EQ(c[9], INFINITY);
  EXPECT_TRUE(std::isnan(c[8])) << "infinity by 0";
  for (std::size_t n = 0; n < 8; ++n) EXPECT_TRUE(std::isnan(c[16 + n]));
}

// Rows of four matrices lie scattered in shared memory; matrix m, row r at 16-byte slot 7 (8 m + r) % 32.
constexpr char load[] = R"(
KERNEL(32, 1) kernel(void* a, void* b, void*, int64_t) {
  alignas(16) __shared__ uint16_t slots[32][8];
  const auto* from = static_cast<const uint16_t*>(a);
  for (int i = 0; i < 8; ++i) slots[7 * lane() % 32][i] = from[8 * lane() + i];
  sync_warp();
  uint32_t r[4];
  ${word}(r, shared_pointer(slots[7 * lane() % 32]));
  for (int i = 0; i < 4; ++i) static_cast<uint32_t*>(b)[4 * lane() + i] = r[i];
}
)";

TEST(SimtLoadMatrices, HandsOutRowsOrColumns) {
  Rng rng(3);
  auto elements = random_elements(DType::f16, 256, rng);
  for (const bool transposed : {false, true}) {
    const Program program(load, {{"word", spec::Value(std::string(transposed ? "load_matrices_transposed" : "load_matrices"))}});
    std::vector<std::uint32_t> registers(128);
    program.run({}, elements.data(), registers.data());
    for (std::size_t lane = 0; lane < 32; ++lane)
      for (std::size_t matrix = 0; matrix < 4; ++matrix)
        for (std::size_t which = 0; which < 2; ++which) {
          const std::size_t outer = lane / 4, inner = lane % 4 * 2 + which;
          const auto expected = elements[64 * matrix + (transposed ? 8 * inner + outer : 8 * outer + inner)];
          EXPECT_EQ(registers[4 * lane + matrix] >> (16 * which) & 0xffff, expected) << lane << " " << matrix << " " << which;
        }
  }
}

// Three groups of copies; the thread waits until all but n have arrived and shows what is there.
constexpr char copies[] = R"(
KERNEL(32, 1) kernel(void* a, void* b, void*, int64_t) {
  float* const to = reinterpret_cast<float*>(dynamic_shared()) + 12 * lane();
  const auto* from = static_cast<const float*>(a);
  for (int i = 0; i < 12; ++i) to[i] = -1;
  for (int group = 0; group < 3; ++group) {
    copy_async_16(shared_pointer(to) + 16 * group, from + 4 * group, ${wanted});
    ${commit};
  }
  copy_async_wait<${pending}>();
  for (int i = 0; i < 12; ++i) static_cast<float*>(b)[12 * lane() + i] = to[i];
}
)";

std::vector<float> copied(std::int64_t pending, const std::string& wanted = "true", const std::string& commit = "copy_async_commit()") {
  const Program program(copies, {{"pending", spec::Value(pending)}, {"wanted", spec::Value(wanted)}, {"commit", spec::Value(commit)}});
  alignas(16) float from[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<float> found(12 * 32, 0);
  program.run({1, 1, 1, 32, 12 * 32 * 4}, from, found.data());
  for (std::size_t i = 12; i < found.size(); ++i) EXPECT_EQ(std::isnan(found[i]), std::isnan(found[i % 12]));
  return found;
}

TEST(SimtCopies, ArriveWhenTheirGroupIsWaitedFor) {
  for (std::int64_t pending = 0; pending < 4; ++pending) {
    const auto found = copied(pending);
    for (std::size_t i = 0; i < 12; ++i) {
      const bool arrived = static_cast<std::int64_t>(i / 4) < 3 - pending;
      EXPECT_EQ(std::isnan(found[i]), !arrived) << pending << " " << i;
      EXPECT_TRUE(!arrived || found[i] == static_cast<float>(i + 1)) << found[i];
    }
  }
}

TEST(SimtCopies, OfNothingAreZeros) {
  const auto found = copied(0, "group != 1");
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(found[i], i / 4 == 1 ? 0.0f : static_cast<float>(i + 1));
}

TEST(SimtCopies, ThatWereNotCommittedDoNotArrive) {
  const auto found = copied(0, "true", "if (group == 1) copy_async_commit()");
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(found[i]), i / 4 == 2);
}

}  // namespace
}  // namespace ejk
