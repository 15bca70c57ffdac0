// wgmma: factors in every layout of shared memory, element by element as the PTX ISA has it; signs, sums, groups of products in flight.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "emulator/ptx/matrix/wgmma.hpp"
#include "emulator/ptx/numbers.hpp"
#include "tests/ptx/matrix_warp.hpp"

namespace ejk::ptx::test_matrix {
namespace {

// A factor in shared memory, its elements' addresses by the canonical layouts.
struct Layout {
  std::uint32_t start, leading, stride, swizzle;
  bool rows;  // neighbours are along M or N
  std::uint32_t address(std::uint32_t row, std::uint32_t k, std::uint32_t size) const {
    const std::uint32_t piece = 16 / size;  // elements
    std::uint32_t at = start;
    if (!rows && swizzle == 0) at += row % 8 * 16 + row / 8 * stride + k / piece * leading + k % piece * size;
    if (!rows && swizzle != 0) at += row % 8 * swizzle + row / 8 * stride + k * size;
    if (rows && swizzle == 0) at += row % 8 * 2 + row / 8 * stride + k % 8 * 16 + k / 8 * leading;
    if (rows && swizzle != 0) at += row % (swizzle / 2) * 2 + row / (swizzle / 2) * leading + k % 8 * swizzle + k / 8 * stride;
    if (swizzle == 128) at ^= at >> 7 & 1 ? 16 : 0, at ^= at >> 8 & 1 ? 32 : 0, at ^= at >> 9 & 1 ? 64 : 0;
    if (swizzle == 64) at ^= at >> 7 & 1 ? 16 : 0, at ^= at >> 8 & 1 ? 32 : 0;
    if (swizzle == 32) at ^= at >> 7 & 1 ? 16 : 0;
    return at;
  }
  std::uint64_t descriptor() const {
    const std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return start >> 4 | std::uint64_t{leading >> 4} << 16 | std::uint64_t{stride >> 4} << 32 | mode << 62;
  }
};

// One that has 8 rows or depths of it without gaps, the rest apart by odd distances.
Layout some_layout(std::uint32_t start, std::uint32_t swizzle, bool rows, std::uint32_t count) {
  if (swizzle == 0) return rows ? Layout{start, 16 * count + 128, 128, 0, true} : Layout{start, 16 * count + 16, 128, 0, false};
  if (rows) return {start, 16 * swizzle, 8 * swizzle, swizzle, true};
  return {start, 16, 8 * swizzle, swizzle, false};
}

// A warpgroup whose factors and sums are whole numbers. Slots: D from 0 on, A's registers from 130 on, descriptors 140 and 142, scale-d
// 150.
struct WarpGroup {
  WarpGroup(std::string its_sums, std::string its_a, std::string its_b, int columns)
      : sums(std::move(its_sums)),
        a_type(std::move(its_a)),
        b_type(std::move(its_b)),
        n(columns),
        depth(32 / element_bytes(a_type)),
        cta(8, 200000) {
    for (int w = 4; w < 8; ++w) cta.warp(w).predicate(150) = all_lanes;
  }
  int half_columns() const { return sums == "f16" ? n / 4 : n / 2; }

  void put_a(const Layout& layout, std::uint32_t seed) {
    draw(a_type, 64, layout, seed, [&](int row, int k, double value) { a[row][k] = value; });
    for (int w = 4; w < 8; ++w) std::fill_n(cta.warp(w).lanes_of<std::uint64_t>(140), lanes, layout.descriptor());
    in_registers = false;
    a_rows = layout.rows;
  }
  void put_a_in_registers(std::uint32_t seed) {
    std::mt19937 random(seed);
    const int size = element_bytes(a_type), per_word = 4 / size;
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < depth; ++k) {
        const auto element = draw_element(a_type, random);
        a[row][k] = element.value;
        word(cta.warp(4 + row / 16), static_cast<Slot>(130 + row / 8 % 2 + k * size / 16 * 2), 4 * (row % 8) + k / per_word % 4) |=
            element.bits << (8 * size * (k % per_word));
      }
    in_registers = true;
  }
  void put_b(const Layout& layout, std::uint32_t seed) {
    draw(b_type, n, layout, seed, [&](int column, int k, double value) { b[k][column] = value; });
    for (int w = 4; w < 8; ++w) std::fill_n(cta.warp(w).lanes_of<std::uint64_t>(142), lanes, layout.descriptor());
    b_rows = layout.rows;
  }
  template <class Keep>
  void draw(const std::string& type, int rows, const Layout& layout, std::uint32_t seed, Keep keep) {
    std::mt19937 random(seed);
    const auto size = static_cast<std::uint32_t>(element_bytes(type));
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < depth; ++k) {
        const auto element = draw_element(type, random);
        keep(row, k, element.value);
        std::memcpy(cta.block.shared.data() + layout.address(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(k), size),
                    &element.bits, size);
      }
  }
  void set_sums(double value) {
    for (int w = 4; w < 8; ++w)
      for (int i = 0; i < half_columns(); ++i)
        for (int lane = 0; lane < lanes; ++lane) {
          auto& to = word(cta.warp(w), static_cast<Slot>(i), lane);
          if (sums == "f32") single(cta.warp(w), static_cast<Slot>(i), lane) = static_cast<float>(value);
          if (sums == "f16") to = to_f16(static_cast<float>(value)) * 0x10001u;
          if (sums == "s32") to = static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
        }
  }
  double sum(int row, int column) {
    auto& warp = cta.warp(4 + row / 16);
    const int lane = 4 * (row % 8) + column % 8 / 2, group = column / 8, half = row / 8 % 2;
    if (sums == "f16")
      return from_f16(static_cast<std::uint16_t>(word(warp, static_cast<Slot>(2 * group + half), lane) >> (16 * (column % 2))));
    const auto slot = static_cast<Slot>(4 * group + 2 * half + column % 2);
    return sums == "f32" ? double{single(warp, slot, lane)} : double(static_cast<std::int32_t>(word(warp, slot, lane)));
  }
  std::unique_ptr<Made> make(int scale_a = 1, int scale_b = 1, bool inverted = false) const {
    const int size = element_bytes(a_type);
    std::vector<Operand> operands = {words_operand(0, half_columns()),
                                     in_registers ? words_operand(130, 4) : reg_operand(RegisterKind::word64, 140),
                                     reg_operand(RegisterKind::word64, 142), reg_operand(RegisterKind::predicate, 150)};
    operands[3].inverted = inverted;
    if (sums != "s32") operands.insert(operands.end(), {immediate_operand(scale_a), immediate_operand(scale_b)});
    if (size == 2 && !in_registers) operands.push_back(immediate_operand(a_rows));
    if (size == 2) operands.push_back(immediate_operand(b_rows));
    const std::string shape = "m64n" + std::to_string(n) + "k" + std::to_string(depth);
    return std::make_unique<Made>("wgmma.mma_async.sync.aligned." + shape + "." + sums + "." + a_type + "." + b_type, operands);
  }
  void run_all(Made& made) {
    for (int w = 4; w < 8; ++w) made.run(cta.warp(w));
  }
  double product(int row, int column) const {
    double total = 0;
    for (int k = 0; k < depth; ++k) total += a[row][k] * b[k][column];
    return total;
  }
  void expect_sums(double before, double times = 1) {
    for (int row = 0; row < 64; ++row)
      for (int column = 0; column < n; ++column)
        ASSERT_EQ(sum(row, column), before + times * product(row, column)) << row << ", " << column;
  }

  std::string sums, a_type, b_type;
  int n, depth;
  Cta cta;
  bool in_registers = false, a_rows = false, b_rows = false;
  double a[64][32], b[32][256];
};

TEST(PtxWgmma, EveryLayoutOfBothFactors) {
  for (const std::uint32_t a_swizzle : {0u, 32u, 64u, 128u})
    for (const std::uint32_t b_swizzle : {0u, 32u, 64u, 128u})
      for (const bool a_rows : {false, true})
        for (const bool b_rows : {false, true}) {
          SCOPED_TRACE(testing::Message() << a_swizzle << " " << b_swizzle << " " << a_rows << " " << b_rows);
          WarpGroup it("f32", "bf16", "bf16", 72);
          it.put_a(some_layout(2048, a_swizzle, a_rows, 64), 1);
          it.put_b(some_layout(65536, b_swizzle, b_rows, 72), 2);
          it.set_sums(5);
          it.run_all(*it.make());
          it.expect_sums(5);
          if (testing::Test::HasFatalFailure()) return;
        }
}

TEST(PtxWgmma, StartsInsideOfAPattern) {
  for (const std::uint32_t swizzle : {32u, 64u, 128u})
    for (std::uint32_t start = 65536; start < 65536 + swizzle; start += 32) {
      SCOPED_TRACE(testing::Message() << swizzle << " " << start);
      WarpGroup it("f32", "f16", "f16", 16);
      it.put_a(some_layout(start - 32768, swizzle, false, 64), 1);
      it.put_b(some_layout(start, swizzle, false, 16), 2);
      it.set_sums(0);
      it.run_all(*it.make());
      it.expect_sums(0);
    }
}

// As a box of a tensor map brings it: row i of 128 bytes at 128 i, its piece j of 16 bytes in the place of piece j ^ i % 8.
TEST(PtxWgmma, ReadsWhatTensorMapsBring) {
  WarpGroup it("f32", "bf16", "bf16", 64);
  std::mt19937 random(3);
  for (int step = 0; step < 4; ++step) {  // 64 depths
    it.in_registers = false;
    const std::uint32_t a_at = 8192, b_at = 32768;
    const auto put = [&](std::uint32_t at, int row, int column, std::uint32_t bits) {
      const auto place = at + static_cast<std::uint32_t>(128 * row + 16 * (column / 8 ^ row % 8) + 2 * (column % 8));
      std::memcpy(it.cta.block.shared.data() + place, &bits, 2);
    };
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; ++k) {
        const auto a = draw_element("bf16", random), b = draw_element("bf16", random);
        it.a[row][k] = a.value;
        it.b[k][row] = b.value;
        put(a_at, row, 16 * step + k, a.bits);  // [rows][depths]
        put(b_at, 16 * step + k, row, b.bits);  // [depths][columns]
      }
    const Layout a{a_at + static_cast<std::uint32_t>(32 * step), 16, 1024, 128, false};
    const Layout b{b_at + static_cast<std::uint32_t>(2048 * step), 64 * 128, 1024, 128, true};
    for (int w = 4; w < 8; ++w) {
      std::fill_n(it.cta.warp(w).lanes_of<std::uint64_t>(140), lanes, a.descriptor());
      std::fill_n(it.cta.warp(w).lanes_of<std::uint64_t>(142), lanes, b.descriptor());
    }
    it.b_rows = true;
    it.set_sums(0);
    it.run_all(*it.make());
    it.expect_sums(0);
  }
}

struct Types {
  std::string sums, a, b;
};
class PtxWgmmaTypes : public testing::TestWithParam<Types> {};
TEST_P(PtxWgmmaTypes, FromRegistersAndDescriptors) {
  for (const int n : {8, 40, 256})
    for (const bool in_registers : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " " << in_registers);
      WarpGroup it(GetParam().sums, GetParam().a, GetParam().b, n);
      in_registers ? it.put_a_in_registers(4) : it.put_a(some_layout(4096 + 64, 128, false, 64), 4);
      it.put_b(some_layout(65536, 64, false, static_cast<std::uint32_t>(n)), 5);
      it.set_sums(3);
      it.run_all(*it.make());
      it.expect_sums(3);
    }
}
INSTANTIATE_TEST_SUITE_P(All, PtxWgmmaTypes,
                         testing::Values(Types{"f32", "f16", "f16"}, Types{"f16", "f16", "f16"}, Types{"f32", "bf16", "bf16"},
                                         Types{"f32", "tf32", "tf32"}, Types{"f32", "e4m3", "e4m3"}, Types{"f32", "e4m3", "e5m2"},
                                         Types{"f32", "e5m2", "e4m3"}, Types{"f16", "e5m2", "e5m2"}, Types{"f16", "e4m3", "e4m3"},
                                         Types{"s32", "s8", "s8"}, Types{"s32", "s8", "u8"}, Types{"s32", "u8", "s8"},
                                         Types{"s32", "u8", "u8"}),
                         [](const auto& info) { return info.param.sums + "_" + info.param.a + "_" + info.param.b; });

TEST(PtxWgmma, SetsOrAddsAsScaleDSays) {
  for (const bool predicate : {false, true})
    for (const bool inverted : {false, true}) {
      WarpGroup it("f32", "bf16", "bf16", 16);
      it.put_a(some_layout(4096, 128, false, 64), 1);
      it.put_b(some_layout(65536, 128, false, 16), 2);
      it.set_sums(7);
      for (int w = 4; w < 8; ++w) it.cta.warp(w).predicate(150) = predicate ? all_lanes : 0;
      it.run_all(*it.make(1, 1, inverted));
      it.expect_sums(predicate != inverted ? 7 : 0);
    }
}

TEST(PtxWgmma, TurnsSigns) {
  for (const bool in_registers : {false, true})
    for (const int scale_a : {1, -1})
      for (const int scale_b : {1, -1}) {
        WarpGroup it("f32", "f16", "f16", 24);
        in_registers ? it.put_a_in_registers(1) : it.put_a(some_layout(4096, 64, true, 64), 1);
        it.put_b(some_layout(65536, 128, true, 24), 2);
        it.set_sums(1);
        it.run_all(*it.make(scale_a, scale_b));
        it.expect_sums(1, scale_a * scale_b);
      }
}

Made commit() { return Made("wgmma.commit_group.sync.aligned", {}); }
Made wait(int groups) { return Made("wgmma.wait_group.sync.aligned", {immediate_operand(groups)}); }

TEST(PtxWgmma, LazyProductsRunAtTheirWait) {
  WarpGroup it("f32", "bf16", "bf16", 16);
  it.cta.grid.pace = Pace::lazy;
  it.put_a(some_layout(4096, 128, false, 64), 1);
  it.put_b(some_layout(65536, 128, false, 16), 2);
  it.set_sums(2);
  auto product = it.make();
  auto fence = Made("wgmma.fence.sync.aligned", {}), commits = commit(), waits_1 = wait(1), waits_0 = wait(0);
  it.run_all(fence);
  it.run_all(*product);
  it.run_all(*product);
  it.run_all(commits);
  it.run_all(*product);
  it.run_all(commits);
  EXPECT_EQ(it.sum(0, 0), 2);
  it.run_all(waits_1);
  it.expect_sums(2, 2);
  EXPECT_TRUE(has_pending_products(it.cta.warp(4)));
  it.run_all(waits_1);
  it.expect_sums(2, 2);
  it.run_all(waits_0);
  it.expect_sums(2, 3);
  EXPECT_FALSE(has_pending_products(it.cta.warp(4)));
}

TEST(PtxWgmma, ProductsOfNoGroupAreNotWaitedFor) {
  WarpGroup it("f32", "bf16", "bf16", 16);
  it.cta.grid.pace = Pace::lazy;
  it.put_a(some_layout(4096, 128, false, 64), 1);
  it.put_b(some_layout(65536, 128, false, 16), 2);
  it.set_sums(2);
  auto waits = wait(0);
  it.run_all(*it.make());
  it.run_all(waits);
  EXPECT_TRUE(has_pending_products(it.cta.warp(4)));
  it.expect_sums(2, 0);
}

// Registers of A and shared memory as they are at the wait; scale-d and descriptors as they were at the product.
TEST(PtxWgmma, LazyProductsReadFactorsLate) {
  WarpGroup it("f32", "bf16", "bf16", 16);
  it.cta.grid.pace = Pace::lazy;
  it.put_b(some_layout(65536, 128, false, 16), 2);
  it.put_a_in_registers(1);
  it.set_sums(2);
  auto product = it.make();
  auto commits = commit(), waits = wait(0);
  it.run_all(*product);
  it.run_all(commits);
  for (int w = 4; w < 8; ++w) {
    std::fill_n(it.cta.warp(w).lanes_of<std::uint64_t>(142), lanes, 0);
    it.cta.warp(w).predicate(150) = 0;
    for (Slot slot = 130; slot < 134; ++slot) std::fill_n(it.cta.warp(w).lanes_of<std::uint32_t>(slot), lanes, 0);
  }
  it.run_all(waits);
  it.expect_sums(2, 0);
}

TEST(PtxWgmma, EagerProductsRunAtOnce) {
  WarpGroup it("f32", "bf16", "bf16", 16);
  it.put_a(some_layout(4096, 128, false, 64), 1);
  it.put_b(some_layout(65536, 128, false, 16), 2);
  it.set_sums(2);
  it.run_all(*it.make());
  it.expect_sums(2);
  auto commits = commit(), waits = wait(0);
  it.run_all(commits);
  it.run_all(waits);
  it.expect_sums(2);
  EXPECT_FALSE(has_pending_products(it.cta.warp(4)));
}

std::string fault_of(WarpGroup& it) {
  try {
    it.make()->run(it.cta.warp(4));
  } catch (const Fault& fault) {
    return fault.words;
  }
  return "none";
}
TEST(PtxWgmma, Faults) {
  WarpGroup it("f32", "bf16", "bf16", 16);
  it.put_a(some_layout(4096, 128, false, 64), 1);
  it.put_b(some_layout(65536, 128, false, 16), 2);
  EXPECT_EQ(fault_of(it), "none");
  it.cta.block.shared.resize(65536 + 2048);
  EXPECT_EQ(fault_of(it), "none");
  it.cta.block.shared.resize(65536 + 2047);
  EXPECT_EQ(fault_of(it), "wgmma.mma_async: a factor's descriptor reaches 16 bytes at shared address 67568, where the CTA has 67583 bytes");
  it.cta.warp(4).lanes_of<std::uint64_t>(142)[5] = 1;
  EXPECT_NE(fault_of(it).find("the descriptor of B is"), std::string::npos) << fault_of(it);
  it.put_b(some_layout(8192, 128, false, 16), 2);
  it.cta.warp(4).predicate(150) = 3;
  EXPECT_EQ(fault_of(it), "wgmma.mma_async: scale-d is true in 2 of 32 lanes, where all must have the same");
}

TEST(PtxWgmma, RefusesWhatItDoesNotKnow) {
  const auto d = words_operand(0, 8), p = reg_operand(RegisterKind::predicate, 150);
  const auto a = reg_operand(RegisterKind::word64, 140), one = immediate_operand(1), two = immediate_operand(2),
             zero = immediate_operand(0);
  const std::string bf16 = "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16";
  EXPECT_NO_THROW(Made(bf16, {d, a, a, p, one, one, zero, zero}));
  EXPECT_THROW(Made(bf16, {d, a, a, p, one, one, zero}), std::runtime_error);
  EXPECT_THROW(Made(bf16, {d, a, a, p, two, one, zero, zero}), std::runtime_error);
  EXPECT_THROW(Made(bf16, {words_operand(0, 16), a, a, p, one, one, zero, zero}), std::runtime_error);
  EXPECT_THROW(Made("wgmma.mma_async.sync.aligned.m64n16k16.f16.bf16.bf16", {words_operand(0, 4), a, a, p, one, one, zero, zero}),
               std::runtime_error);
  EXPECT_THROW(Made("wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16", {d, a, a, p, one, one, zero, zero}), std::runtime_error);
  EXPECT_THROW(Made("wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.bf16.bf16", {d, a, a, p, one, one, zero, zero}), std::runtime_error);
}

}  // namespace
}  // namespace ejk::ptx::test_matrix
