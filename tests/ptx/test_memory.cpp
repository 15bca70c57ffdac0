// ld, st, atom, red and addresses of every space, on one warp.
#include <gtest/gtest.h>

#include "tests/ptx/one_warp.hpp"

namespace ejk::ptx::test::memory {
namespace {

constexpr std::uint32_t base = reserved_shared;

TEST(PtxMemory, LoadsSharedWordsOfAllLanes) {
  OneWarp one;
  for (int lane = 0; lane < lanes; ++lane) {
    one.value<std::uint32_t>(0, lane) = base + 4 * static_cast<std::uint32_t>(31 - lane);
    one.put_shared<std::uint32_t>(base + 64 + 4 * static_cast<std::uint32_t>(lane), 1000 + static_cast<std::uint32_t>(lane));
  }
  one.run(decode_memory, "ld.shared.u32", {word(1), at(0, 64)});
  for (int lane = 0; lane < lanes; ++lane) EXPECT_EQ(one.value<std::uint32_t>(1, lane), 1031u - static_cast<std::uint32_t>(lane));
}

TEST(PtxMemory, WritesNothingForInactiveLanes) {
  OneWarp one;
  DeviceArray<float> memory(32);
  for (int lane = 0; lane < lanes; ++lane)
    one.value<std::uint64_t>(0, lane) = lane % 2 ? memory.address(static_cast<std::size_t>(lane)) : 7;
  one.fill<float>(2, 3.0f);
  one.warp().active = 0xaaaaaaaa;
  one.run(decode_memory, "st.global.f32", {at_wide(0), word(2)});
  one.fill<float>(3, -1.0f);
  one.run(decode_memory, "ld.relaxed.gpu.global.f32", {word(3), at_wide(0)});
  for (int lane = 0; lane < lanes; ++lane) {
    EXPECT_EQ(memory.values[lane], lane % 2 ? 3.0f : 0.0f);
    EXPECT_EQ(one.value<float>(3, lane), lane % 2 ? 3.0f : -1.0f);
  }
}

TEST(PtxMemory, ExtendsBytesBySignAndByZeros) {
  OneWarp one;
  one.put_shared<std::uint8_t>(base, 0x85);
  one.fill<std::uint32_t>(0, base);
  one.run(decode_memory, "ld.shared.s8", {word(1), at(0)});
  one.run(decode_memory, "ld.shared.u8", {word(2), at(0)});
  one.run(decode_memory, "ld.shared.s8", {half(3), at(0)});
  one.run(decode_memory, "ld.shared.s8", {wide(4), at(0)});
  EXPECT_EQ(one.value<std::uint32_t>(1, 5), 0xffffff85u);
  EXPECT_EQ(one.value<std::uint32_t>(2, 5), 0x85u);
  EXPECT_EQ(one.value<std::uint32_t>(3, 5) & 0xffff, 0xff85u);
  EXPECT_EQ(one.value<std::uint64_t>(4, 5), 0xffffffffffffff85u);
}

TEST(PtxMemory, MovesVectors) {
  OneWarp one;
  DeviceArray<std::uint64_t> memory(64);
  for (int lane = 0; lane < lanes; ++lane) {
    one.value<std::uint64_t>(0, lane) = memory.address(static_cast<std::size_t>(2 * lane));
    one.value<std::uint64_t>(2, lane) = static_cast<std::uint64_t>(lane) << 40;
    one.value<std::uint64_t>(4, lane) = 7;
  }
  one.run(decode_memory, "st.global.v2.u64", {at_wide(0), vector({wide(2), wide(4)})});
  EXPECT_EQ(memory.values[62], std::uint64_t{31} << 40);
  EXPECT_EQ(memory.values[63], 7u);
  one.run(decode_memory, "ld.global.nc.L1::no_allocate.v4.u32", {vector({word(6), Operand{}, word(8), word(9)}), at_wide(0)});
  EXPECT_EQ(one.value<std::uint32_t>(8, 31), 7u);
  EXPECT_EQ(one.value<std::uint32_t>(9, 31), 0u);
}

TEST(PtxMemory, LocalMemoryIsEachLanesOwn) {
  OneWarp one;
  one.fill<std::uint64_t>(0, 8);
  for (int lane = 0; lane < lanes; ++lane) one.value<std::uint32_t>(2, lane) = 50 + static_cast<std::uint32_t>(lane);
  one.run(decode_memory, "st.local.u32", {at_wide(0), word(2)});
  one.run(decode_memory, "cvta.local.u64", {wide(4), wide(0)});
  one.run(decode_memory, "ld.u32", {word(6), at_wide(4)});
  for (int lane = 0; lane < lanes; ++lane) EXPECT_EQ(one.value<std::uint32_t>(6, lane), 50u + static_cast<std::uint32_t>(lane));
  EXPECT_NE(fault_of([&] { one.run(decode_memory, "ld.local.u32", {word(6), at_wide(0, 56)}); }), "");
}

TEST(PtxMemory, ParametersHaveGenericAddresses) {
  OneWarp one;
  const std::uint64_t value = 0x1234567890;
  std::memcpy(one.grid.parameters.data() + 72, &value, 8);
  one.fill<std::uint64_t>(0, 64);
  one.run(decode_memory, "ld.param.u64", {wide(2), at_wide(0, 8)});
  EXPECT_EQ(one.value<std::uint64_t>(2, 31), value);
  one.run(decode_memory, "cvta.param.u64", {wide(4), wide(0)});
  one.run(decode_memory, "ld.u64", {wide(6), at_wide(4, 8)});
  EXPECT_EQ(one.value<std::uint64_t>(6, 31), value);
}

TEST(PtxMemory, GenericAddressesMayDifferInSpace) {
  OneWarp one;
  DeviceArray<std::uint32_t> memory(4);
  memory.values[2] = 22;
  one.put_shared<std::uint32_t>(base + 4, 44);
  one.fill<std::uint64_t>(2, base + 4);
  one.run(decode_memory, "cvta.shared.u64", {wide(0), wide(2)});
  for (int lane = 0; lane < 16; ++lane) one.value<std::uint64_t>(0, lane) = memory.address(2);
  one.run(decode_memory, "ld.u32", {word(4), at_wide(0)});
  EXPECT_EQ(one.value<std::uint32_t>(4, 3), 22u);
  EXPECT_EQ(one.value<std::uint32_t>(4, 16), 44u);
  one.run(decode_memory, "isspacep.shared", {predicate(6), wide(0)});
  EXPECT_EQ(one.warp().predicate(6), 0xffff0000u);
}

TEST(PtxMemory, FaultsNameWhatIsWrong) {
  OneWarp one;
  DeviceArray<std::uint32_t> memory(8);
  one.fill<std::uint64_t>(0, memory.address());
  one.value<std::uint64_t>(0, 9) = memory.address(8);
  const auto outside = fault_of([&] { one.run(decode_memory, "ld.global.u32", {word(2), at_wide(0)}); });
  EXPECT_NE(outside.find("lane 9"), std::string::npos) << outside;
  EXPECT_NE(outside.find("offset 32 from the nearest allocation, of 32 bytes"), std::string::npos) << outside;
  one.fill<std::uint64_t>(0, memory.address() + 4);
  const auto misaligned = fault_of([&] { one.run(decode_memory, "ld.global.v2.u32", {vector({word(2), word(3)}), at_wide(0)}); });
  EXPECT_NE(misaligned.find("multiple of 8"), std::string::npos) << misaligned;
  one.fill<std::uint32_t>(0, base - 4);
  EXPECT_NE(fault_of([&] { one.run(decode_memory, "ld.shared.u32", {word(2), at(0)}); }).find("system's"), std::string::npos);
  one.fill<std::uint32_t>(0, base + 65536);
  EXPECT_NE(fault_of([&] { one.run(decode_memory, "ld.shared.u32", {word(2), at(0)}); }).find("out of bounds"), std::string::npos);
}

TEST(PtxMemory, AnAllocationsLastElementIsInside) {
  OneWarp one;
  DeviceArray<std::uint32_t> memory(37);
  memory.values[36] = 5;
  for (int lane = 0; lane < lanes; ++lane) one.value<std::uint64_t>(0, lane) = memory.address(static_cast<std::size_t>(lane) + 5);
  one.run(decode_memory, "ld.global.u32", {word(2), at_wide(0)});
  EXPECT_EQ(one.value<std::uint32_t>(2, 31), 5u);
}

TEST(PtxMemory, AtomicsOfLanesFollowEachOther) {
  OneWarp one;
  DeviceArray<std::uint32_t> memory(1);
  one.fill<std::uint64_t>(0, memory.address());
  one.run(decode_memory, "atom.global.add.u32", {word(2), at_wide(0), number(3, 2)});
  EXPECT_EQ(memory.values[0], 64u);
  EXPECT_EQ(one.value<std::uint32_t>(2, 31), 62u);
  for (int lane = 0; lane < lanes; ++lane) one.value<std::int32_t>(4, lane) = -lane;
  one.run(decode_memory, "atom.global.min.s32", {word(2), at_wide(0), word(4)});
  EXPECT_EQ(static_cast<std::int32_t>(memory.values[0]), -31);
  one.warp().active = 1;
  one.value<std::int32_t>(4, 0) = -31;
  one.run(decode_memory, "atom.global.cas.b32", {word(2), at_wide(0), word(4), number(5, 9)});
  EXPECT_EQ(memory.values[0], 9u);
}

TEST(PtxMemory, AddsVectorsAndHalves) {
  OneWarp one;
  DeviceArray<float> memory(4);
  one.fill<std::uint64_t>(0, memory.address());
  for (Slot part = 0; part < 4; ++part) one.fill<float>(2 + part, static_cast<float>(part) + 0.5f);
  one.run(decode_memory, "red.global.add.v4.f32", {at_wide(0), vector({word(2), word(3), word(4), word(5)})});
  EXPECT_EQ(memory.values[3], 3.5f * 32);
  DeviceArray<std::uint32_t> halves(1);
  one.fill<std::uint64_t>(0, halves.address());
  one.warp().active = 7;
  one.fill<std::uint32_t>(2, 0x3c00'0400);  // 1 and 2^-14
  one.run(decode_memory, "red.global.add.noftz.f16x2", {at_wide(0), word(2)});
  EXPECT_EQ(halves.values[0], 0x4200'0a00u);
  halves.values[0] = 0x3f80'4000;
  one.fill<std::uint32_t>(2, 0x3f80'3f80);
  one.warp().active = 1;
  one.run(decode_memory, "red.global.add.noftz.bf16x2", {at_wide(0), word(2)});
  EXPECT_EQ(halves.values[0], 0x4000'4040u);
}

TEST(PtxMemory, ReachesOtherCtasOfTheCluster) {
  OneWarp one(2);
  one.fill<std::uint32_t>(0, base + 16);
  one.fill<std::uint32_t>(1, 1);
  one.run(decode_memory, "mapa.shared::cluster.u32", {word(2), word(0), word(1)});
  one.fill<std::uint32_t>(3, 77);
  one.run(decode_memory, "st.shared::cluster.u32", {at(2), word(3)});
  EXPECT_EQ(one.shared<std::uint32_t>(base + 16, 1), 77u);
  EXPECT_NE(one.shared<std::uint32_t>(base + 16, 0), 77u);
  one.run(decode_memory, "getctarank.shared::cluster.u32", {word(4), word(2)});
  EXPECT_EQ(one.value<std::uint32_t>(4, 8), 1u);
}

TEST(PtxMemory, RefusesWhatItDoesNotKnow) {
  OneWarp one;
  EXPECT_THROW(one.decode(decode_memory, "ld.global.b128", {wide(0), at_wide(2)}), std::runtime_error);
  EXPECT_THROW(one.decode(decode_memory, "ld.global.strange.u32", {word(0), at_wide(2)}), std::runtime_error);
  EXPECT_THROW(one.decode(decode_memory, "ld.global.v4.u32", {word(0), at_wide(2)}), std::runtime_error);
  EXPECT_THROW(one.decode(decode_memory, "atom.global.inc.f32", {word(0), at_wide(2), word(4)}), std::runtime_error);
  EXPECT_NO_THROW(one.decode(decode_memory, "fence.proxy.async.shared::cta", {}));
}

TEST(PtxAllocations, ForgetsWhatIsRemoved) {
  Allocations list;
  char bytes[64] = {};
  list.add(bytes, 32);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes);
  ASSERT_TRUE(list.find(address + 31));
  EXPECT_FALSE(list.find(address + 32));
  EXPECT_EQ(list.nearest(address + 40)->address, address);
  list.remove(bytes);
  EXPECT_FALSE(list.find(address));
}

}  // namespace
}  // namespace ejk::ptx::test::memory
