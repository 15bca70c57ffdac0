// mma.sync, ldmatrix, stmatrix and movmatrix, with fragments as the PTX ISA has them, element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "emulator/ptx/matrix/matrix_product.hpp"
#include "emulator/ptx/numbers.hpp"
#include "tests/ptx/matrix_warp.hpp"

namespace ejk::ptx::test_matrix {
namespace {

struct MmaCase {
  std::string shape, d, a, b;
  int depth;
};

// Slots: A from 0 on, B from 8 on, C from 16 on, D from 24 on.
struct MmaRun {
  MmaRun(const MmaCase& its, std::uint32_t seed) : mma(its), random(seed) {
    per_word = 4 / element_bytes(mma.a);
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < mma.depth; ++k) a[row][k] = set(mma.a, a_slot(row, k), 4 * (row % 8) + k / per_word % 4, k % per_word);
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < mma.depth; ++k) b[k][column] = set(mma.b, b_slot(k), 4 * column + k / per_word % 4, k % per_word);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) set_c(row, column, static_cast<int>(random() % 64) - 32);
  }
  Slot a_slot(int row, int k) const { return static_cast<Slot>(row / 8 + k / (4 * per_word) * 2); }
  Slot b_slot(int k) const { return static_cast<Slot>(8 + k / (4 * per_word)); }
  double set(const std::string& type, Slot slot, int lane, int part) {
    const auto element = draw_element(type, random);
    word(cta.warp(), slot, lane) |= element.bits << (32 / per_word * part);
    return element.value;
  }
  void set_c(int row, int column, int value) {
    c[row][column] = value;
    const int lane = 4 * (row % 8) + column / 2;
    if (mma.d == "f16")
      word(cta.warp(), 16 + row / 8, lane) |= std::uint32_t{to_f16(static_cast<float>(value))} << (16 * (column % 2));
    else if (mma.d == "f32")
      single(cta.warp(), 16 + 2 * (row / 8) + column % 2, lane) = static_cast<float>(value);
    else
      word(cta.warp(), 16 + 2 * (row / 8) + column % 2, lane) = static_cast<std::uint32_t>(value);
  }
  double result(int row, int column) {
    const int lane = 4 * (row % 8) + column / 2;
    if (mma.d == "f16") return from_f16(static_cast<std::uint16_t>(word(cta.warp(), 24 + row / 8, lane) >> (16 * (column % 2))));
    if (mma.d == "f32") return single(cta.warp(), 24 + 2 * (row / 8) + column % 2, lane);
    return static_cast<std::int32_t>(word(cta.warp(), 24 + 2 * (row / 8) + column % 2, lane));
  }
  void run_it(const std::string& more = "") {
    const int sums = mma.d == "f16" ? 2 : 4, bricks = mma.depth / (4 * per_word);
    run(cta.warp(), "mma.sync.aligned." + mma.shape + ".row.col" + more + "." + mma.d + "." + mma.a + "." + mma.b + "." + mma.d,
        {words_operand(24, sums), words_operand(0, 2 * bricks), words_operand(8, bricks), words_operand(16, sums)});
  }
  double expected(int row, int column) const {
    double sum = c[row][column];
    for (int k = 0; k < mma.depth; ++k) sum += a[row][k] * b[k][column];
    return sum;
  }

  MmaCase mma;
  std::mt19937 random;
  Cta cta;
  int per_word;
  double a[16][32], b[32][8], c[16][8];
};

class PtxMma : public testing::TestWithParam<MmaCase> {};

TEST_P(PtxMma, MultipliesFragments) {
  MmaRun it(GetParam(), 1);
  it.run_it();
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) EXPECT_EQ(it.result(row, column), it.expected(row, column)) << row << ", " << column;
}

INSTANTIATE_TEST_SUITE_P(Types, PtxMma,
                         testing::Values(MmaCase{"m16n8k16", "f32", "bf16", "bf16", 16}, MmaCase{"m16n8k16", "f32", "f16", "f16", 16},
                                         MmaCase{"m16n8k16", "f16", "f16", "f16", 16}, MmaCase{"m16n8k8", "f32", "bf16", "bf16", 8},
                                         MmaCase{"m16n8k8", "f32", "f16", "f16", 8}, MmaCase{"m16n8k8", "f16", "f16", "f16", 8},
                                         MmaCase{"m16n8k8", "f32", "tf32", "tf32", 8}, MmaCase{"m16n8k4", "f32", "tf32", "tf32", 4},
                                         MmaCase{"m16n8k32", "f32", "e4m3", "e4m3", 32}, MmaCase{"m16n8k32", "f32", "e4m3", "e5m2", 32},
                                         MmaCase{"m16n8k32", "f32", "e5m2", "e4m3", 32}, MmaCase{"m16n8k32", "f16", "e5m2", "e5m2", 32},
                                         MmaCase{"m16n8k16", "f32", "e4m3", "e4m3", 16}, MmaCase{"m16n8k32", "s32", "s8", "s8", 32},
                                         MmaCase{"m16n8k32", "s32", "s8", "u8", 32}, MmaCase{"m16n8k32", "s32", "u8", "u8", 32},
                                         MmaCase{"m16n8k16", "s32", "u8", "s8", 16}),
                         [](const auto& info) { return info.param.shape + "_" + info.param.d + "_" + info.param.a + "_" + info.param.b; });

TEST(PtxMatrix, IntegerSumsWrapOrSaturate) {
  for (const bool saturates : {false, true}) {
    MmaRun it({"m16n8k32", "s32", "u8", "u8", 32}, 2);  // products are 40000 and more
    for (Slot slot = 16; slot < 20; ++slot)
      for (int lane = 0; lane < lanes; ++lane) word(it.cta.warp(), slot, lane) = 0x7fffffff;
    it.run_it(saturates ? ".satfinite" : "");
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column)
        EXPECT_EQ(it.result(row, column) > 0, saturates) << row << ", " << column << ": " << it.result(row, column);
  }
}

// Each code in turn as the first element of A, times one.
template <class Value>
void check_codes(const std::string& type, const std::string& shape, std::uint32_t one, int codes, Value value) {
  for (int first = 0; first < codes; first += 16) {
    Cta cta;
    for (int row = 0; row < 16; ++row) word(cta.warp(), row / 8, 4 * (row % 8)) = static_cast<std::uint32_t>(first + row);
    for (int column = 0; column < 8; ++column) word(cta.warp(), 8, 4 * column) = one;
    run(cta.warp(), "mma.sync.aligned." + shape + ".row.col.f32." + type + "." + type + ".f32",
        {words_operand(24, 4), words_operand(0, 4), words_operand(8, 2), words_operand(16, 4)});
    for (int row = 0; row < 16; ++row) {
      const float expected = value(first + row), got = single(cta.warp(), 24 + 2 * (row / 8), 4 * (row % 8));
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : got == expected)
          << type << " " << first + row << ": " << got << ", not " << expected;
    }
  }
}
TEST(PtxMatrix, EveryCodeHasItsValue) {
  check_codes("f16", "m16n8k16", 0x3c00, 65536, [](int code) { return from_f16(static_cast<std::uint16_t>(code)); });
  check_codes("bf16", "m16n8k16", 0x3f80, 65536, [](int code) { return from_bf16(static_cast<std::uint16_t>(code)); });
  check_codes("e4m3", "m16n8k32", 0x38, 256, [](int code) { return from_e4m3(static_cast<std::uint8_t>(code)); });
  check_codes("e5m2", "m16n8k32", 0x3c, 256, [](int code) { return from_e5m2(static_cast<std::uint8_t>(code)); });
}

TEST(PtxMatrix, Tf32HasTenBits) {
  Cta cta;
  single(cta.warp(), 0, 0) = 1 + 0x1p-10f + 0x1p-11f;
  single(cta.warp(), 8, 0) = 1;
  run(cta.warp(), "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
      {words_operand(24, 4), words_operand(0, 4), words_operand(8, 2), words_operand(16, 4)});
  EXPECT_EQ(single(cta.warp(), 24, 0), 1 + 0x1p-10f);
}

TEST(PtxMatrix, HalfSumsAreRoundedOnce) {
  Cta cta;
  for (const int k : {0, 1}) word(cta.warp(), 0, 0) |= 0x3c00u << (16 * k);  // 2048 + 1 + 1: one by one 1 would be lost
  word(cta.warp(), 8, 0) = 0x3c003c00;
  word(cta.warp(), 16, 0) = to_f16(2048);
  run(cta.warp(), "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
      {words_operand(24, 2), words_operand(0, 4), words_operand(8, 2), words_operand(16, 2)});
  EXPECT_EQ(from_f16(static_cast<std::uint16_t>(word(cta.warp(), 24, 0))), 2050);
}

TEST(PtxMatrix, SumsMayLieWhereFactorsDid) {
  MmaRun it({"m16n8k16", "f32", "bf16", "bf16", 16}, 3), apart({"m16n8k16", "f32", "bf16", "bf16", 16}, 3);
  apart.run_it();
  run(it.cta.warp(), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
      {words_operand(0, 4), words_operand(0, 4), words_operand(8, 2), words_operand(16, 4)});
  for (Slot slot = 0; slot < 4; ++slot)
    for (int lane = 0; lane < lanes; ++lane) EXPECT_EQ(single(it.cta.warp(), slot, lane), single(apart.cta.warp(), 24 + slot, lane));
}

// Slots of 2 units: A from 0 on, B from 20 on, C from 30 on, D from 40 on.
void check_doubles(int rows, int depth) {
  Cta cta;
  std::mt19937 random(4);
  const int halves = rows / 8;
  double a[16][16], b[16][8], c[16][8];
  const auto at = [&](Slot slot, int lane) -> double& { return cta.warp().lanes_of<double>(slot)[lane]; };
  const auto draw = [&] { return static_cast<double>(random() % 1000) / 7; };
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < depth; ++k) at(static_cast<Slot>(2 * (row / 8 + k / 4 * halves)), row % 8 * 4 + k % 4) = a[row][k] = draw();
  for (int k = 0; k < depth; ++k)
    for (int column = 0; column < 8; ++column) at(static_cast<Slot>(20 + 2 * (k / 4)), column * 4 + k % 4) = b[k][column] = draw();
  const auto place = [](int row, int column) { return static_cast<Slot>(2 * (row / 8 * 2 + column % 2)); };
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < 8; ++column) at(30 + place(row, column), row % 8 * 4 + column / 2) = c[row][column] = draw();
  run(cta.warp(), "mma.sync.aligned.m" + std::to_string(rows) + "n8k" + std::to_string(depth) + ".row.col.f64.f64.f64.f64",
      {doubles_operand(40, 2 * halves), doubles_operand(0, halves * depth / 4), doubles_operand(20, depth / 4),
       doubles_operand(30, 2 * halves)});
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < 8; ++column) {
      double sum = c[row][column];
      for (int k = 0; k < depth; ++k) sum = std::fma(a[row][k], b[k][column], sum);
      EXPECT_EQ(at(40 + place(row, column), row % 8 * 4 + column / 2), sum) << row << ", " << column;
    }
}
TEST(PtxMatrix, Doubles) {
  check_doubles(8, 4);
  for (const int depth : {4, 8, 16}) check_doubles(16, depth);
}

TEST(PtxMatrix, EveryWidthOfVectorsGivesTheSame) {
  std::mt19937 random(5);
  std::vector<std::uint32_t> a(128), b(11 * 64);
  for (auto& each : a) each = (random() & 0x0f0f0f0f) | 0x30303030;
  for (auto& each : b) each = (random() & 0x0f0f0f0f) | 0x30303030;
  std::vector<Slot> slots(44);
  for (Slot i = 0; i < 44; ++i) slots[i] = i;
  for (const auto format : {FactorType::bf16, FactorType::f16, FactorType::e4m3, FactorType::s8, FactorType::tf32})
    for (const bool rows : {false, true}) {
      if (rows && format != FactorType::bf16 && format != FactorType::f16) continue;
      std::vector<char> plain;
      for (const auto width : {VectorWidth::bytes16, VectorWidth::bytes32, VectorWidth::bytes64}) {
        if (!has_width(width)) continue;
        std::vector<char> file(44 * 128);
        MatrixProduct product;
        product.a_format = product.b_format = format;
        product.integer = format == FactorType::s8;
        product.negative = format == FactorType::f16;
        product.a_rows = product.b_rows = rows;
        product.groups = 11;
        for (int i = 0; i < 4; ++i) product.a[i] = a.data() + (rows ? 64 * (i % 2) : 32 * i);
        product.b = b.data();
        product.file = file.data();
        product.d = slots.data();
        multiply_with(width, product);
        if (plain.empty()) plain = file;
        EXPECT_EQ(file, plain) << static_cast<int>(format) << " " << static_cast<int>(width);
      }
    }
}

TEST(PtxMatrix, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(Made("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", {}), std::runtime_error);
  EXPECT_THROW(Made("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", {}), std::runtime_error);
  EXPECT_THROW(Made("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
                    {words_operand(0, 4), words_operand(0, 2), words_operand(0, 2), words_operand(0, 4)}),
               std::runtime_error);
  EXPECT_THROW(Made("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", {words_operand(0, 2), address_operand(0)}), std::runtime_error);
  EXPECT_FALSE(Made("add.f32", {}).taken);
}

TEST(PtxMatrix, NeedsAllLanes) {
  Cta cta;
  cta.warp().active = 0x7fffffff;
  try {
    run(cta.warp(), "movmatrix.sync.aligned.m8n8.trans.b16", {reg_operand(RegisterKind::word32, 0), reg_operand(RegisterKind::word32, 1)});
    FAIL() << "it ran";
  } catch (const Fault& fault) {
    EXPECT_EQ(fault.words, "movmatrix.sync.aligned.m8n8.trans.b16: 31 of the warp's 32 lanes run it, where all must");
  }
}

// Rows of matrices lie in any order in shared memory: row i of all at 2048 + 16 * order[i].
struct Rows {
  Rows() {
    for (int i = 0; i < lanes; ++i) {
      word(cta.warp(), 9, i) = static_cast<std::uint32_t>(2048 + 16 * order(i) - 32);
      for (int column = 0; column < 8; ++column) element(i, column) = static_cast<std::uint16_t>(random());
    }
  }
  static int order(int i) { return i * 13 % 32; }
  std::uint16_t& element(int row, int column) {
    return reinterpret_cast<std::uint16_t*>(cta.block.shared.data() + 2048 + 16 * order(row))[column];
  }
  std::uint16_t half_of(Slot slot, int row, int column) {
    return static_cast<std::uint16_t>(word(cta.warp(), slot, 4 * row + column / 2) >> (16 * (column % 2)));
  }
  std::mt19937 random{6};
  Cta cta;
};
std::string matrix_opcode(const char* name, int count, bool transposed) {
  return std::string(name) + ".sync.aligned.m8n8.x" + std::to_string(count) + (transposed ? ".trans" : "") + ".shared.b16";
}

TEST(PtxMatrix, LoadsMatrices) {
  for (const int count : {1, 2, 4})
    for (const bool transposed : {false, true}) {
      Rows it;
      run(it.cta.warp(), matrix_opcode("ldmatrix", count, transposed),
          {words_operand(7, count), address_operand(9, 32)});  // over its own address
      for (int i = 0; i < count; ++i)
        for (int row = 0; row < 8; ++row)
          for (int column = 0; column < 8; ++column)
            ASSERT_EQ(it.half_of(static_cast<Slot>(7 + i), row, column),
                      transposed ? it.element(8 * i + column, row) : it.element(8 * i + row, column));
    }
}

TEST(PtxMatrix, StoresMatrices) {
  for (const int count : {1, 2, 4})
    for (const bool transposed : {false, true}) {
      Rows it;
      for (Slot slot = 20; slot < 24; ++slot)
        for (int lane = 0; lane < lanes; ++lane) word(it.cta.warp(), slot, lane) = static_cast<std::uint32_t>(it.random());
      const auto before = it.cta.block.shared;
      run(it.cta.warp(), matrix_opcode("stmatrix", count, transposed), {address_operand(9, 32), words_operand(20, count)});
      for (int i = 0; i < count; ++i)
        for (int row = 0; row < 8; ++row)
          for (int column = 0; column < 8; ++column)
            ASSERT_EQ(it.element(8 * i + row, column),
                      transposed ? it.half_of(static_cast<Slot>(20 + i), column, row) : it.half_of(static_cast<Slot>(20 + i), row, column));
      for (int i = 8 * count; i < lanes; ++i) ASSERT_EQ(std::memcmp(before.data() + 2048 + 16 * Rows::order(i), &it.element(i, 0), 16), 0);
    }
}

TEST(PtxMatrix, TransposesARegister) {
  Rows it;
  for (int lane = 0; lane < lanes; ++lane) word(it.cta.warp(), 3, lane) = static_cast<std::uint32_t>(it.random());
  run(it.cta.warp(), "movmatrix.sync.aligned.m8n8.trans.b16", {reg_operand(RegisterKind::word32, 4), reg_operand(RegisterKind::word32, 3)});
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column) EXPECT_EQ(it.half_of(4, row, column), it.half_of(3, column, row));
}

}  // namespace
}  // namespace ejk::ptx::test_matrix
