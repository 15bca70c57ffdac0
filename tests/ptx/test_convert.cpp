// cvt of the PTX emulator, and the numbers behind it.
#include <cmath>
#include <limits>

#include "emulator/ptx/numbers.hpp"
#include "tests/ptx/one_instruction.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint64_t ones = ~std::uint64_t{0};

std::uint64_t converted(const std::string& opcode, const std::string& to, const std::string& from, std::uint64_t bits) {
  WarpOfRegisters one;
  one.set(from, bits);
  one.scalar(opcode + " " + to + ", " + from);
  const auto whole = one.get(to, 31);
  WarpOfRegisters few;  // the same, where not all lanes are active
  few.set(from, bits);
  few.warp.active = 2;
  few.scalar(opcode + " " + to + ", " + from);
  EXPECT_EQ(few.get(to, 1), whole) << opcode;
  EXPECT_EQ(few.get(to, 0), 0u) << opcode;
  return whole;
}
std::uint32_t of_float(const std::string& opcode, float value, const std::string& to = "%r1") {
  return static_cast<std::uint32_t>(converted(opcode, to, "%f1", std::bit_cast<std::uint32_t>(value)));
}
std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(PtxConvert, ConversionsToTheNearestAgreeWithTheGeneralOnes) {
  for (std::uint64_t i = 0; i < std::uint64_t{1} << 32; i += 65521 * 7) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    ASSERT_EQ(to_f16(value), encode(f16_format, value)) << value;
    ASSERT_EQ(to_bf16(value), encode(bf16_format, value)) << value;
    if (value == value) {
      ASSERT_EQ(bits(value), encode(f32_format, value)) << value;
    }
  }
  for (const float value : {65504.0f, 65519.9f, 65520.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1.004p0f, 0x1.00cp0f, 0x1p-149f}) {
    EXPECT_EQ(to_f16(value), encode(f16_format, value)) << value;
    EXPECT_EQ(to_f16(-value), encode(f16_format, -value)) << value;
  }
}

TEST(PtxConvert, SmallFormatsComeBack) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    if (from_f16(half) == from_f16(half)) {
      ASSERT_EQ(to_f16(from_f16(half)), code);
    }
    if (from_bf16(half) == from_bf16(half)) {
      ASSERT_EQ(to_bf16(from_bf16(half)), code);
    }
  }
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    if (from_e4m3(byte) == from_e4m3(byte)) {
      ASSERT_EQ(encode(e4m3_format, from_e4m3(byte)), code);
    }
    if (from_e5m2(byte) == from_e5m2(byte)) {
      ASSERT_EQ(encode(e5m2_format, from_e5m2(byte)), code);
    }
  }
  EXPECT_EQ(from_e4m3(0x7e), 448.0f);
  EXPECT_EQ(from_e4m3(0x01), 0x1p-9f);
  EXPECT_EQ(from_e5m2(0x7b), 57344.0f);
}

TEST(PtxConvert, Integers) {
  EXPECT_EQ(converted("cvt.s64.s32", "%rd1", "%r1", 0x80000000), 0xffffffff80000000u);
  EXPECT_EQ(converted("cvt.u64.u32", "%rd1", "%r1", 0x80000000), 0x80000000u);
  EXPECT_EQ(converted("cvt.s64.s32", "%rd1", "%rd2", 0x1280000000), 0xffffffff80000000u);
  EXPECT_EQ(converted("cvt.u32.u64", "%r1", "%rd1", 0x1280000000), 0x80000000u);
  EXPECT_EQ(converted("cvt.s32.s8", "%r1", "%r2", 0x180), 0xffffff80u);
  EXPECT_EQ(converted("cvt.u32.u16", "%r1", "%rs1", 0xabcd1234), 0x1234u);
  EXPECT_EQ(converted("cvt.s32.s16", "%r1", "%rs1", 0xabcd8234), 0xffff8234u);
  EXPECT_EQ(converted("cvt.u16.u64", "%rs1", "%rd1", 0x12345678), 0x5678u);
  EXPECT_EQ(converted("cvt.sat.u8.s32", "%r1", "%r2", 0xffffffff), 0u);
  EXPECT_EQ(converted("cvt.sat.s16.s32", "%rs1", "%r2", 70000) & 0xffff, 0x7fffu);
}

TEST(PtxConvert, FloatsToIntegers) {
  EXPECT_EQ(of_float("cvt.rzi.s32.f32", -2.7f), static_cast<std::uint32_t>(-2));
  EXPECT_EQ(of_float("cvt.rni.s32.f32", 2.5f), 2u);
  EXPECT_EQ(of_float("cvt.rmi.s32.f32", -2.1f), static_cast<std::uint32_t>(-3));
  EXPECT_EQ(of_float("cvt.rpi.s32.f32", 2.1f), 3u);
  EXPECT_EQ(of_float("cvt.rzi.s32.f32", 1e20f), 0x7fffffffu);
  EXPECT_EQ(of_float("cvt.rzi.u32.f32", -5.0f), 0u);
  EXPECT_EQ(of_float("cvt.rzi.s32.f32", std::nanf("")), 0u);
  EXPECT_EQ(converted("cvt.rzi.s64.f32", "%rd1", "%f1", bits(std::nanf(""))), std::uint64_t{1} << 63);
  EXPECT_EQ(converted("cvt.rzi.u64.f32", "%rd1", "%f1", bits(1e30f)), ones);
}

TEST(PtxConvert, IntegersToFloats) {
  EXPECT_EQ(converted("cvt.rn.f32.s32", "%f1", "%r1", 0xffffffff), bits(-1.0f));
  EXPECT_EQ(converted("cvt.rn.f32.u32", "%f1", "%r1", 0xffffffff), bits(0x1p32f));
  EXPECT_EQ(converted("cvt.rz.f32.u32", "%f1", "%r1", 0xffffffff), bits(std::nextafter(0x1p32f, 0.0f)));
  EXPECT_EQ(converted("cvt.rp.f32.s64", "%f1", "%rd1", (std::uint64_t{1} << 40) + 1), bits(std::nextafter(0x1p40f, 0x1p41f)));
  EXPECT_EQ(converted("cvt.rn.f64.s64", "%fd1", "%rd1", ones), std::bit_cast<std::uint64_t>(-1.0));
  EXPECT_EQ(converted("cvt.rn.f16.s32", "%rs1", "%r1", 100000), 0x7c00u);
  EXPECT_EQ(converted("cvt.rn.bf16.u8", "%rs1", "%rs2", 0x1ff), 0x437fu);
}

TEST(PtxConvert, FloatsToFloats) {
  EXPECT_EQ(of_float("cvt.rn.f16.f32", 65520.0f), 0x7c00u);
  EXPECT_EQ(of_float("cvt.rz.f16.f32", 65520.0f), 0x7bffu);
  EXPECT_EQ(of_float("cvt.rn.f16.f32", std::nanf("")), 0x7fffu);
  EXPECT_EQ(of_float("cvt.rn.bf16.f32", 1.00390625f), 0x3f80u);
  EXPECT_EQ(of_float("cvt.rz.bf16.f32", -1.999f), 0xbfffu);
  EXPECT_EQ(of_float("cvt.rn.relu.bf16.f32", -1.0f), 0u);
  EXPECT_EQ(of_float("cvt.rna.tf32.f32", std::bit_cast<float>(0x3f801000u)), 0x3f802000u);
  EXPECT_EQ(of_float("cvt.rn.tf32.f32", std::bit_cast<float>(0x3f801000u)), 0x3f800000u);
  EXPECT_EQ(of_float("cvt.rni.f32.f32", 2.5f), bits(2.0f));
  EXPECT_EQ(of_float("cvt.sat.f32.f32", 2.5f), bits(1.0f));
  EXPECT_EQ(of_float("cvt.ftz.f32.f32", -0x1p-140f), bits(-0.0f));
  EXPECT_EQ(converted("cvt.f32.f16", "%f1", "%rs1", 0x0001), bits(0x1p-24f));
  EXPECT_EQ(converted("cvt.f32.bf16", "%f1", "%rs1", 0x3f80), bits(1.0f));
  EXPECT_EQ(converted("cvt.f64.f32", "%fd1", "%f1", bits(1.5f)), std::bit_cast<std::uint64_t>(1.5));
  EXPECT_EQ(converted("cvt.rn.f32.f64", "%f1", "%fd1", std::bit_cast<std::uint64_t>(1e300)), 0x7f800000u);
  EXPECT_EQ(converted("cvt.rz.f32.f64", "%f1", "%fd1", std::bit_cast<std::uint64_t>(1e300)), 0x7f7fffffu);
}

TEST(PtxConvert, FirstOfAPairIsTheHighOne) {
  WarpOfRegisters one;
  one.set_float("%f1", 1.0f);
  one.set_float("%f2", -2.0f);
  one.scalar("cvt.rn.bf16x2.f32 %r1, %f1, %f2");
  EXPECT_EQ(one.get("%r1", 3), 0x3f80c000u);
  one.scalar("cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2");
  EXPECT_EQ(one.get("%r1", 3), 0x3f800000u);
  one.scalar("cvt.rn.f16x2.f32 %r1, %f1, %f2");
  EXPECT_EQ(one.get("%r1", 3), 0x3c00c000u);
  one.set_float("%f2", 1e9f);
  one.scalar("cvt.rz.f16x2.f32 %r1, %f1, %f2");
  EXPECT_EQ(one.get("%r1", 3), 0x3c007bffu);
  one.scalar("cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2");
  EXPECT_EQ(one.get("%rs1", 3), 0x387eu);
  one.scalar("cvt.rn.satfinite.e5m2x2.f32 %rs1, %f1, %f2");
  EXPECT_EQ(one.get("%rs1", 3), 0x3c7bu);
}

TEST(PtxConvert, PairsToPairs) {
  EXPECT_EQ(converted("cvt.rn.f16x2.e4m3x2", "%r1", "%rs1", 0x7e38), 0x5f003c00u);
  EXPECT_EQ(converted("cvt.rn.f16x2.e4m3x2", "%r1", "%rs1", 0x7f01), 0x7fff1800u);
  EXPECT_EQ(converted("cvt.rn.f16x2.e5m2x2", "%r1", "%rs1", 0x7cbc), 0x7c00bc00u);
  EXPECT_EQ(converted("cvt.rn.satfinite.e4m3x2.f16x2", "%rs1", "%r1", 0x7bff3c00), 0x7e38u);
}

TEST(PtxConvert, Packs) {
  WarpOfRegisters one;
  one.set("%r1", 70000);
  one.set("%r2", static_cast<std::uint32_t>(-70000));
  one.scalar("cvt.pack.sat.s16.s32 %r0, %r1, %r2");
  EXPECT_EQ(one.get("%r0"), 0x7fff8000u);
  one.set("%r3", 0xaabb1122);
  one.scalar("cvt.pack.sat.u8.s32.b32 %r0, %r1, %r2, %r3");
  EXPECT_EQ(one.get("%r0"), 0x1122ff00u);
}

}  // namespace
}  // namespace ejk::ptx
