// Scalar instructions of the PTX emulator, one at a time: values and edges from the PTX ISA.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "emulator/ptx/numbers.hpp"
#include "tests/ptx/one_instruction.hpp"

namespace ejk::ptx {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();

// Runs "opcode d, a, b, ..." with sources in registers as the names' kinds say, and gives d.
struct Result {
  WarpOfRegisters one;
  std::uint64_t of(const std::string& opcode, const std::string& d, std::vector<std::pair<std::string, std::uint64_t>> sources) {
    std::string text = opcode + " " + d;
    for (const auto& [name, bits] : sources) {
      one.set(name, bits);
      text += ", " + name;
    }
    one.scalar(text);
    return one.get(d, 7);
  }
  std::uint32_t words(const std::string& opcode, std::vector<std::uint32_t> values) {
    std::vector<std::pair<std::string, std::uint64_t>> sources;
    for (std::size_t i = 0; i < values.size(); ++i) sources.emplace_back("%r" + std::to_string(i + 1), values[i]);
    return static_cast<std::uint32_t>(of(opcode, "%r0", sources));
  }
  std::uint64_t wide(const std::string& opcode, std::vector<std::uint64_t> values) {
    std::vector<std::pair<std::string, std::uint64_t>> sources;
    for (std::size_t i = 0; i < values.size(); ++i) sources.emplace_back("%rd" + std::to_string(i + 1), values[i]);
    return of(opcode, "%rd0", sources);
  }
  float floats(const std::string& opcode, std::vector<float> values) {
    std::vector<std::uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return std::bit_cast<float>(words(opcode, bits));
  }
  double doubles(const std::string& opcode, std::vector<double> values) {
    std::vector<std::uint64_t> bits;
    for (const double value : values) bits.push_back(std::bit_cast<std::uint64_t>(value));
    return std::bit_cast<double>(wide(opcode, bits));
  }
  bool holds(const std::string& opcode, float a, float b) {
    one.set_float("%f1", a);
    one.set_float("%f2", b);
    one.scalar(opcode + " %p1, %f1, %f2");
    return one.mask("%p1") == all_lanes;
  }
};

TEST(PtxScalar, OnlyActiveLanesAreWritten) {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, lane);
  one.set("%r2", 99);
  one.warp.active = 0x80000005;
  one.scalar("add.s32 %r2, %r1, 1");
  EXPECT_EQ(one.get("%r2", 0), 1u);
  EXPECT_EQ(one.get("%r2", 1), 99u);
  EXPECT_EQ(one.get("%r2", 2), 3u);
  EXPECT_EQ(one.get("%r2", 31), 32u);
}

TEST(PtxScalar, SourceMayBeDestination) {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, lane);
  one.scalar("add.s32 %r1, %r1, %r1");
  for (int lane = 0; lane < lanes; ++lane) EXPECT_EQ(one.get("%r1", lane), 2u * lane);
}

TEST(PtxScalar, Products) {
  Result r;
  EXPECT_EQ(r.words("mul.lo.s32", {0xffffffff, 3}), 0xfffffffdu);
  EXPECT_EQ(r.words("mul.hi.s32", {0xffffffff, 3}), 0xffffffffu);
  EXPECT_EQ(r.words("mul.hi.u32", {0xffffffff, 3}), 2u);
  EXPECT_EQ(r.of("mul.wide.s32", "%rd1", {{"%r1", 0xffffffff}, {"%r2", 3}}), ~std::uint64_t{2});
  EXPECT_EQ(r.of("mul.wide.u16", "%r9", {{"%rs1", 0xffff}, {"%rs2", 0xffff}}), 0xfffe0001u);
  EXPECT_EQ(r.of("mad.wide.u32", "%rd1", {{"%r1", 0xffffffff}, {"%r2", 2}, {"%rd2", 5}}), 0x200000003u);
  EXPECT_EQ(r.words("mad.lo.s32", {7, 6, 0xffffffff}), 41u);
  EXPECT_EQ(r.wide("mul.hi.s64", {~std::uint64_t{0}, 5}), ~std::uint64_t{0});
  EXPECT_EQ(r.of("mul.lo.s16", "%rs0", {{"%rs1", 0xffff}, {"%rs2", 0xffff}}), 1u);
  EXPECT_EQ(r.words("dp4a.s32.u32", {0xff02ff01, 0x04030201, 10}), static_cast<std::uint32_t>(10 + 1 - 2 + 6 - 4));
}

TEST(PtxScalar, DivisionsHaveNoTraps) {
  Result r;
  EXPECT_EQ(r.words("div.s32", {0xfffffff9, 2}), 0xfffffffdu);
  EXPECT_EQ(r.words("rem.s32", {0xfffffff9, 2}), 0xffffffffu);
  EXPECT_EQ(r.words("div.u32", {7, 0}), 0xffffffffu);
  EXPECT_EQ(r.words("rem.u32", {7, 0}), 7u);
  EXPECT_EQ(r.words("div.s32", {0x80000000, 0xffffffff}), 0x80000000u);
  EXPECT_EQ(r.words("rem.s32", {0x80000000, 0xffffffff}), 0u);
  EXPECT_EQ(r.wide("div.s64", {std::uint64_t{1} << 63, ~std::uint64_t{0}}), std::uint64_t{1} << 63);
}

TEST(PtxScalar, IntegersOfAllSizes) {
  Result r;
  EXPECT_EQ(r.words("min.s32", {0xffffffff, 1}), 0xffffffffu);
  EXPECT_EQ(r.words("min.u32", {0xffffffff, 1}), 1u);
  EXPECT_EQ(r.words("max.u16x2", {0x0001ffff, 0x00020001}), 0x0002ffffu);
  EXPECT_EQ(r.words("max.s16x2", {0x0001ffff, 0x00020001}), 0x00020001u);
  EXPECT_EQ(r.words("add.u16x2", {0x0001ffff, 0x00020001}), 0x00030000u);
  EXPECT_EQ(r.words("add.sat.s32", {0x7fffffff, 1}), 0x7fffffffu);
  EXPECT_EQ(r.words("abs.s32", {0x80000000}), 0x80000000u);
  EXPECT_EQ(r.wide("neg.s64", {1}), ~std::uint64_t{0});
  EXPECT_EQ(r.words("sad.s32", {0xffffffff, 2, 10}), 13u);
  EXPECT_EQ(r.of("sub.s16", "%rs0", {{"%rs1", 0}, {"%rs2", 1}}), 0xffffu);
}

TEST(PtxScalar, Shifts) {
  Result r;
  EXPECT_EQ(r.words("shl.b32", {1, 32}), 0u);
  EXPECT_EQ(r.words("shl.b32", {1, 31}), 0x80000000u);
  EXPECT_EQ(r.words("shr.u32", {0x80000000, 40}), 0u);
  EXPECT_EQ(r.words("shr.s32", {0x80000000, 40}), 0xffffffffu);
  EXPECT_EQ(r.of("shr.s64", "%rd0", {{"%rd1", std::uint64_t{1} << 63}, {"%r1", 62}}), ~std::uint64_t{1});
  EXPECT_EQ(r.of("shl.b16", "%rs0", {{"%rs1", 0xffff}, {"%r1", 8}}), 0xff00u);
  EXPECT_EQ(r.words("shf.l.wrap.b32", {0x80000000, 1, 33}), 3u);
  EXPECT_EQ(r.words("shf.r.wrap.b32", {0x80000000, 1, 1}), 0xc0000000u);
  EXPECT_EQ(r.words("shf.l.clamp.b32", {0x12345678, 1, 40}), 0x12345678u);
  EXPECT_EQ(r.words("shf.r.clamp.b32", {0x12345678, 1, 40}), 1u);
}

TEST(PtxScalar, LogicAndFields) {
  Result r;
  EXPECT_EQ(r.words("not.b32", {0xf0f0f0f0}), 0x0f0f0f0fu);
  EXPECT_EQ(r.words("cnot.b32", {0}), 1u);
  WarpOfRegisters one;
  one.set("%r1", 0xcccc);
  one.set("%r2", 0xaaaa);
  one.set("%r3", 0xf0f0);
  one.scalar("lop3.b32 %r0, %r1, %r2, %r3, 0x96");
  EXPECT_EQ(one.get("%r0"), 0xccccu ^ 0xaaaau ^ 0xf0f0u);
  one.scalar("lop3.b32 %r0, %r1, %r2, %r3, 0xe0");
  EXPECT_EQ(one.get("%r0"), 0xccccu & (0xaaaau | 0xf0f0u));
  EXPECT_EQ(r.words("bfe.u32", {0x12345678, 8, 12}), 0x456u);
  EXPECT_EQ(r.words("bfe.s32", {0x00000f00, 8, 4}), 0xffffffffu);
  EXPECT_EQ(r.words("bfe.s32", {0x80000000, 28, 10}), 0xfffffff8u);
  EXPECT_EQ(r.words("bfe.u32", {0xffffffff, 0, 0}), 0u);
  EXPECT_EQ(r.words("bfi.b32", {0xff, 0, 4, 4}), 0xf0u);
  EXPECT_EQ(r.words("bfi.b32", {0xff, 0x1234, 32, 4}), 0x1234u);
  EXPECT_EQ(r.of("bfi.b64", "%rd0", {{"%rd1", 3}, {"%rd2", 0}, {"%r1", 62}, {"%r2", 8}}), std::uint64_t{3} << 62);
  EXPECT_EQ(r.words("bfind.u32", {0x00010000}), 16u);
  EXPECT_EQ(r.words("bfind.shiftamt.u32", {0x00010000}), 15u);
  EXPECT_EQ(r.words("bfind.s32", {0xffffffff}), 0xffffffffu);
  EXPECT_EQ(r.words("bfind.s32", {0xfffffffe}), 0u);
  EXPECT_EQ(r.words("brev.b32", {1}), 0x80000000u);
  EXPECT_EQ(r.words("popc.b32", {0xf0f}), 8u);
  EXPECT_EQ(r.of("clz.b64", "%r0", {{"%rd1", 1}}), 63u);
}

TEST(PtxScalar, Permutations) {
  Result r;
  const std::uint32_t a = 0x33221180, b = 0x77665544;
  EXPECT_EQ(r.words("prmt.b32", {a, b, 0x7410}), 0x77441180u);
  EXPECT_EQ(r.words("prmt.b32", {a, b, 0x0008}), 0x808080ffu);
  EXPECT_EQ(r.words("prmt.b32.f4e", {a, b, 1}), 0x44332211u);
  EXPECT_EQ(r.words("prmt.b32.b4e", {a, b, 1}), 0x66778011u);
  EXPECT_EQ(r.words("prmt.b32.rc8", {a, b, 2}), 0x22222222u);
  EXPECT_EQ(r.words("prmt.b32.rc16", {a, b, 1}), 0x33223322u);
  EXPECT_EQ(r.words("prmt.b32.ecl", {a, b, 1}), 0x33221111u);
  EXPECT_EQ(r.words("prmt.b32.ecr", {a, b, 2}), 0x22221180u);
}

TEST(PtxScalar, FloatsRoundAsAsked) {
  Result r;
  EXPECT_EQ(r.floats("add.f32", {1.0f, 0x1p-24f}), 1.0f);
  EXPECT_EQ(r.floats("add.rp.f32", {1.0f, 0x1p-24f}), std::nextafter(1.0f, 2.0f));
  EXPECT_EQ(r.floats("add.rm.f32", {1.0f, 0x1p-70f}), 1.0f);
  EXPECT_EQ(r.floats("add.rz.f32", {1.0f, -0x1p-70f}), std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(r.floats("mul.rz.f32", {3e38f, 3e38f}), std::numeric_limits<float>::max());
  EXPECT_EQ(r.floats("mul.f32", {3e38f, 3e38f}), infinity);
  EXPECT_EQ(r.floats("div.rp.f32", {1.0f, 3.0f}), 1.0f / 3.0f);
  EXPECT_EQ(r.floats("div.rm.f32", {1.0f, 3.0f}), std::nextafter(1.0f / 3.0f, 0.0f));
  EXPECT_EQ(r.floats("div.rz.f32", {-1.0f, 3.0f}), -std::nextafter(1.0f / 3.0f, 0.0f));
  EXPECT_EQ(r.floats("fma.rn.f32", {1 + 0x1p-23f, 1 - 0x1p-23f, -1.0f}), -0x1p-46f);
  EXPECT_EQ(r.floats("fma.rz.f32", {-1.0f, 1.0f, 0x1p-60f}), -std::nextafter(1.0f, 0.0f));
  EXPECT_EQ(r.floats("sqrt.rp.f32", {2.0f}), 1.41421366f);
  EXPECT_EQ(r.floats("sqrt.rz.f32", {2.0f}), 1.41421354f);
  EXPECT_EQ(r.floats("rcp.rz.f32", {-3.0f}), -std::nextafter(1.0f / 3.0f, 0.0f));
  EXPECT_EQ(r.doubles("add.f64", {1.0, 0x1p-52}), 1.0 + 0x1p-52);
  EXPECT_EQ(r.doubles("add.rp.f64", {1.0, 0x1p-80}), std::nextafter(1.0, 2.0));
  EXPECT_EQ(r.doubles("mul.rz.f64", {1.0 + 0x1p-52, -1.0 - 0x1p-52}), -(1.0 + 0x1p-51));
  EXPECT_EQ(r.doubles("fma.rn.f64", {1 + 0x1p-52, 1 - 0x1p-52, -1.0}), -0x1p-104);
}

TEST(PtxScalar, FlushAndSaturate) {
  Result r;
  EXPECT_EQ(r.floats("add.f32", {0x1p-140f, 0x1p-140f}), 0x1p-139f);
  EXPECT_EQ(r.floats("add.ftz.f32", {0x1p-140f, 1e-30f}), 1e-30f);
  EXPECT_TRUE(std::signbit(r.floats("mul.ftz.f32", {-0x1p-100f, 0x1p-40f})));
  EXPECT_EQ(r.floats("mul.ftz.f32", {-0x1p-100f, 0x1p-40f}), 0.0f);
  EXPECT_EQ(r.floats("add.sat.f32", {2.0f, 3.0f}), 1.0f);
  EXPECT_EQ(r.floats("add.sat.f32", {nan, 3.0f}), 0.0f);
  EXPECT_EQ(r.floats("abs.ftz.f32", {-0x1p-140f}), 0.0f);
}

TEST(PtxScalar, ExtremesOfFloats) {
  Result r;
  EXPECT_EQ(r.floats("max.f32", {nan, 1.0f}), 1.0f);
  EXPECT_EQ(r.floats("min.f32", {1.0f, nan}), 1.0f);
  EXPECT_EQ(r.words("max.f32", {0x7fc00001, 0xffc00000}), 0x7fffffffu);
  EXPECT_EQ(r.words("max.NaN.f32", {0x7fc00001, 0}), 0x7fffffffu);
  EXPECT_FALSE(std::signbit(r.floats("max.f32", {-0.0f, 0.0f})));
  EXPECT_TRUE(std::signbit(r.floats("min.f32", {0.0f, -0.0f})));
  EXPECT_EQ(r.floats("min.xorsign.abs.f32", {-3.0f, 2.0f}), -2.0f);
  EXPECT_EQ(r.floats("min.xorsign.abs.f32", {-3.0f, -5.0f}), 3.0f);
  EXPECT_EQ(r.floats("max.xorsign.abs.f32", {3.0f, -5.0f}), -5.0f);
  EXPECT_TRUE(std::isnan(r.floats("min.NaN.xorsign.abs.f32", {1.0f, nan})));
  EXPECT_EQ(std::fabs(r.floats("min.xorsign.abs.f32", {-1.0f, nan})), 1.0f);
  EXPECT_EQ(r.doubles("max.f64", {-1.0, 2.0}), 2.0);
  EXPECT_EQ(r.floats("copysign.f32", {-1.0f, 5.0f}), -5.0f);
}

TEST(PtxScalar, Functions) {
  Result r;
  for (int i = -148; i < 128; ++i) EXPECT_EQ(r.floats("ex2.approx.f32", {static_cast<float>(i)}), std::ldexp(1.0f, i)) << i;
  for (float x = -20; x < 20; x += 0.0713f) {
    const auto exact = static_cast<float>(std::exp2(static_cast<double>(x)));
    EXPECT_LE(std::fabs(r.floats("ex2.approx.ftz.f32", {x}) - exact), std::nextafter(exact, infinity) - exact) << x;
  }
  EXPECT_EQ(r.floats("ex2.approx.ftz.f32", {-130.0f}), 0.0f);
  EXPECT_EQ(r.floats("ex2.approx.ftz.f32", {-infinity}), 0.0f);
  EXPECT_EQ(r.floats("ex2.approx.ftz.f32", {infinity}), infinity);
  EXPECT_TRUE(std::isnan(r.floats("ex2.approx.ftz.f32", {nan})));
  EXPECT_EQ(r.floats("lg2.approx.f32", {8.0f}), 3.0f);
  EXPECT_EQ(r.floats("rcp.approx.ftz.f32", {-0x1p-140f}), -infinity);
  EXPECT_EQ(r.floats("rsqrt.approx.f32", {4.0f}), 0.5f);
  EXPECT_EQ(r.floats("tanh.approx.f32", {0.5f}), std::tanh(0.5f));
  EXPECT_EQ(r.doubles("sqrt.rn.f64", {2.0}), std::sqrt(2.0));
}

TEST(PtxScalar, Halves) {
  Result r;
  EXPECT_EQ(r.words("mul.rn.f16x2", {0x3c004000, 0x42004200}), 0x42004600u);
  EXPECT_EQ(r.words("mul.rn.bf16x2", {0x3f804000, 0x40404040}), 0x404040c0u);
  // 1 + 2^-10 squared is 1 + 2^-9 + 2^-20: a tie is lost if the product is rounded before 2^-11 is added.
  EXPECT_EQ(r.of("fma.rn.f16", "%rs0", {{"%rs1", 0x3c01}, {"%rs2", 0x3c01}, {"%rs3", 0x1000}}), 0x3c03u);
  // A tie that a tiny number breaks, though it is lost even in double.
  EXPECT_EQ(r.of("fma.rn.bf16", "%rs0", {{"%rs1", 0x3f81}, {"%rs2", 0x3fc0}, {"%rs3", 0x0080}}), 0x3fc2u);
  EXPECT_EQ(r.of("fma.rn.bf16", "%rs0", {{"%rs1", 0x3f81}, {"%rs2", 0x3fc0}, {"%rs3", 0x8080}}), 0x3fc1u);
  EXPECT_EQ(r.of("fma.rn.relu.bf16", "%rs0", {{"%rs1", 0xbf80}, {"%rs2", 0x3f80}, {"%rs3", 0}}), 0u);
  EXPECT_EQ(r.words("max.bf16x2", {0x7fff8000, 0x3f800000}), 0x3f800000u);
  EXPECT_EQ(r.words("max.NaN.f16x2", {0x7e003c00, 0x3c004000}), 0x7fff4000u);
  EXPECT_EQ(r.words("neg.bf16x2", {0x3f80bf80}), 0xbf803f80u);
  EXPECT_EQ(r.of("add.ftz.f16", "%rs0", {{"%rs1", 0x0001}, {"%rs2", 0x0001}}), 0u);
  EXPECT_EQ(r.of("add.f16", "%rs0", {{"%rs1", 0x0001}, {"%rs2", 0x0001}}), 2u);
  EXPECT_EQ(r.of("add.sat.f16", "%rs0", {{"%rs1", 0x4000}, {"%rs2", 0x3c00}}), 0x3c00u);
}

TEST(PtxScalar, ComparisonsOfFloats) {
  Result r;
  const char* ordered[] = {"eq", "ne", "lt", "le", "gt", "ge", "num"};
  const char* unordered[] = {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"};
  for (const std::string type : {".f32", ".ftz.f32"}) {
    for (const std::string name : ordered) EXPECT_FALSE(r.holds("setp." + name + type, nan, 1.0f)) << name;
    for (const std::string name : unordered) EXPECT_TRUE(r.holds("setp." + name + type, nan, 1.0f)) << name;
    const float values[] = {1.0f, 2.0f, 3.0f};
    for (const float a : values) {
      EXPECT_EQ(r.holds("setp.eq" + type, a, 2.0f), a == 2.0f);
      EXPECT_EQ(r.holds("setp.ne" + type, a, 2.0f), a != 2.0f);
      EXPECT_EQ(r.holds("setp.neu" + type, a, 2.0f), a != 2.0f);
      EXPECT_EQ(r.holds("setp.equ" + type, a, 2.0f), a == 2.0f);
      EXPECT_EQ(r.holds("setp.lt" + type, a, 2.0f), a < 2.0f);
      EXPECT_EQ(r.holds("setp.ltu" + type, a, 2.0f), a < 2.0f);
      EXPECT_EQ(r.holds("setp.le" + type, a, 2.0f), a <= 2.0f);
      EXPECT_EQ(r.holds("setp.leu" + type, a, 2.0f), a <= 2.0f);
      EXPECT_EQ(r.holds("setp.gt" + type, a, 2.0f), a > 2.0f);
      EXPECT_EQ(r.holds("setp.gtu" + type, a, 2.0f), a > 2.0f);
      EXPECT_EQ(r.holds("setp.ge" + type, a, 2.0f), a >= 2.0f);
      EXPECT_EQ(r.holds("setp.geu" + type, a, 2.0f), a >= 2.0f);
      EXPECT_TRUE(r.holds("setp.num" + type, a, 2.0f));
      EXPECT_FALSE(r.holds("setp.nan" + type, a, 2.0f));
    }
  }
  EXPECT_TRUE(r.holds("setp.eq.ftz.f32", 0x1p-140f, 0.0f));
  EXPECT_FALSE(r.holds("setp.eq.f32", 0x1p-140f, 0.0f));
}

TEST(PtxScalar, ComparisonsOfIntegers) {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, static_cast<std::uint64_t>(lane - 16)), one.set("%rd1", lane, lane);
  one.scalar("setp.lt.s32 %p1, %r1, 0");
  EXPECT_EQ(one.mask("%p1"), 0x0000ffffu);
  one.scalar("setp.lt.u32 %p1, %r1, 3");
  EXPECT_EQ(one.mask("%p1"), 0x00070000u);
  one.scalar("setp.ge.s64 %p1, %rd1, 30");
  EXPECT_EQ(one.mask("%p1"), 0xc0000000u);
  one.scalar("setp.hs.u64 %p1, %rd1, 31");
  EXPECT_EQ(one.mask("%p1"), 0x80000000u);
  one.scalar("setp.le.s32 %p1|%p2, %r1, -16");
  EXPECT_EQ(one.mask("%p1"), 1u);
  EXPECT_EQ(one.mask("%p2"), 0xfffffffeu);
  one.set("%rs1", 0xffff8000);  // the upper half of a register of 16 bits does not count
  one.set("%rs2", 0x00008000);
  one.scalar("setp.eq.s16 %p1, %rs1, %rs2");
  EXPECT_EQ(one.mask("%p1"), all_lanes);
}

TEST(PtxScalar, ComparisonsCombine) {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, lane);
  one.set_mask("%p3", 0x0000ff00);
  one.scalar("setp.lt.and.s32 %p1|%p2, %r1, 12, %p3");
  EXPECT_EQ(one.mask("%p1"), 0x00000f00u);
  EXPECT_EQ(one.mask("%p2"), 0x0000f000u);
  one.scalar("setp.lt.or.s32 %p1, %r1, 4, !%p3");
  EXPECT_EQ(one.mask("%p1"), 0xffff00ffu);
  one.warp.active = 0xff;
  one.set_mask("%p1", 0xaaaaaaaa);
  one.scalar("setp.lt.xor.s32 %p1, %r1, 4, %p3");
  EXPECT_EQ(one.mask("%p1"), 0xaaaaaa0fu);
}

TEST(PtxScalar, ComparisonsOfHalvesAndSet) {
  WarpOfRegisters one;
  one.set("%rs1", 0x3c00);
  one.set("%rs2", 0x4000);
  one.scalar("setp.lt.f16 %p1, %rs1, %rs2");
  EXPECT_EQ(one.mask("%p1"), all_lanes);
  one.set("%r1", 0x40003c00);
  one.set("%r2", 0x3c003c00);
  one.scalar("setp.gt.f16x2 %p1|%p2, %r1, %r2");
  EXPECT_EQ(one.mask("%p1"), 0u);
  EXPECT_EQ(one.mask("%p2"), all_lanes);
  one.scalar("set.gt.f16x2.f16x2 %r3, %r1, %r2");
  EXPECT_EQ(one.get("%r3"), 0x3c000000u);
  one.scalar("set.ne.u32.s32 %r3, %r1, %r2");
  EXPECT_EQ(one.get("%r3"), 0xffffffffu);
  one.scalar("set.eq.f32.s32 %r3, %r1, %r1");
  EXPECT_EQ(one.get("%r3"), 0x3f800000u);
}

TEST(PtxScalar, Selections) {
  WarpOfRegisters one;
  one.set("%r1", 1);
  one.set("%r2", 2);
  one.set_mask("%p1", 0x00ff00ff);
  one.scalar("selp.b32 %r0, %r1, %r2, %p1");
  EXPECT_EQ(one.get("%r0", 7), 1u);
  EXPECT_EQ(one.get("%r0", 8), 2u);
  one.set("%rd1", std::uint64_t{1} << 40);
  one.set("%rd2", 5);
  one.warp.active = 0x101;
  one.scalar("selp.b64 %rd0, %rd1, %rd2, !%p1");
  EXPECT_EQ(one.get("%rd0", 0), 5u);
  EXPECT_EQ(one.get("%rd0", 8), std::uint64_t{1} << 40);
  EXPECT_EQ(one.get("%rd0", 1), 0u);
  one.set("%r3", 0xffffffff);
  one.scalar("slct.b32.s32 %r0, %r1, %r2, %r3");
  EXPECT_EQ(one.get("%r0"), 2u);
}

TEST(PtxScalar, PredicatesChangeInActiveLanesAlone) {
  WarpOfRegisters one;
  one.set_mask("%p1", 0xff00ff00);
  one.set_mask("%p2", 0xf0f0f0f0);
  one.set_mask("%p3", 0);
  one.warp.active = 0xffff;
  one.scalar("and.pred %p3, %p1, %p2");
  EXPECT_EQ(one.mask("%p3"), 0xf000u);
  one.scalar("or.pred %p3, %p1, !%p2");
  EXPECT_EQ(one.mask("%p3"), 0xff0fu);
  one.scalar("not.pred %p3, %p1");
  EXPECT_EQ(one.mask("%p3"), 0x00ffu);
  one.scalar("mov.pred %p3, -1");
  EXPECT_EQ(one.mask("%p3"), 0xffffu);
  one.scalar("mov.pred %p3, 0");
  EXPECT_EQ(one.mask("%p3"), 0u);
}

TEST(PtxScalar, Tests) {
  WarpOfRegisters one;
  one.set_float("%f1", 0x1p-140f);
  one.scalar("testp.subnormal.f32 %p1, %f1");
  EXPECT_EQ(one.mask("%p1"), all_lanes);
  one.scalar("testp.normal.f32 %p1, %f1");
  EXPECT_EQ(one.mask("%p1"), 0u);
  one.set("%rd1", generic_shared | 2048);
  one.scalar("isspacep.shared %p1, %rd1");
  EXPECT_EQ(one.mask("%p1"), all_lanes);
  one.scalar("isspacep.global %p1, %rd1");
  EXPECT_EQ(one.mask("%p1"), 0u);
  one.set("%rd1", generic_shared | 3u << cluster_shift | 2048);
  one.scalar("isspacep.shared::cta %p1, %rd1");
  EXPECT_EQ(one.mask("%p1"), 0u);
  one.scalar("isspacep.shared::cluster %p1, %rd1");
  EXPECT_EQ(one.mask("%p1"), all_lanes);
}

TEST(PtxScalar, Moves) {
  WarpOfRegisters one;
  one.set("%rs1", 0x1234);
  one.set("%rs2", 0xffff5678);
  one.scalar("mov.b32 %r1, {%rs1, %rs2}");
  EXPECT_EQ(one.get("%r1"), 0x56781234u);
  one.scalar("mov.b32 {%rs3, _}, %r1");
  EXPECT_EQ(one.get("%rs3"), 0x1234u);
  one.set("%r2", 0x9abcdef0);
  one.scalar("mov.b64 %rd1, {%r1, %r2}");
  EXPECT_EQ(one.get("%rd1"), 0x9abcdef056781234u);
  one.scalar("mov.b64 {%rs4, %rs5, %rs6, %rs7}, %rd1");
  EXPECT_EQ(one.get("%rs6"), 0xdef0u);
  one.warp.active = 2;
  one.scalar("mov.b64 {%r3, %r4}, %rd1");
  EXPECT_EQ(one.get("%r4", 1), 0x9abcdef0u);
  EXPECT_EQ(one.get("%r4", 0), 0u);
  one.scalar("mov.u64 %rd2, %clock64");
  one.scalar("mov.u64 %rd3, %clock64");
  EXPECT_LT(one.get("%rd2", 1), one.get("%rd3", 1));
}

TEST(PtxScalar, WhatIsNotEmulatedIsAnError) {
  WarpOfRegisters one;
  EXPECT_FALSE(one.run(decode_scalar, "ld.global.u32 %r1, %r2"));
  EXPECT_THROW(one.run(decode_scalar, "add.cc.u32 %r1, %r2, %r3"), std::runtime_error);
  EXPECT_THROW(one.run(decode_scalar, "add.s32 %r1, %r2"), std::runtime_error);
  EXPECT_THROW(one.run(decode_scalar, "add.s32 %r1, %rd2, %r3"), std::runtime_error);
  EXPECT_THROW(one.run(decode_scalar, "setp.lo.f32 %p1, %f1, %f2"), std::runtime_error);
  EXPECT_THROW(one.run(decode_scalar, "setp.neu.s32 %p1, %r1, %r2"), std::runtime_error);
}

}  // namespace
}  // namespace ejk::ptx
