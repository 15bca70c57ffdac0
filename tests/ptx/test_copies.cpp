// Asynchronous copies: what they move, when it is there, and where a tensor's boxes lie in shared memory.
#include <gtest/gtest.h>

#include "tests/ptx/one_warp.hpp"

namespace ejk::ptx::test::copies {
namespace {

constexpr std::uint32_t barrier_place = reserved_shared, to_place = reserved_shared + 1024;
// Slots: 0 address in shared memory, 1 number, 2 global address, 4 barrier's address, 6 and on coordinates.

struct Copies : OneWarp {
  explicit Copies(Pace pace = Pace::eager, int ctas = 1) : OneWarp(ctas, pace) {
    for (int rank = 0; rank < ctas; ++rank) {
      warp(rank).active = 1;
      fill<std::uint32_t>(0, to_place, rank);
      fill<std::uint32_t>(4, barrier_place, rank);
      run(decode_copies, "mbarrier.init.shared::cta.b64", {at(4), number(1, 1)}, rank);
    }
  }
  void expect(std::uint32_t bytes, int rank = 0) {
    run(decode_copies, "mbarrier.arrive.expect_tx.shared::cta.b64", {Operand{}, at(4), number(1, bytes)}, rank);
  }
  bool over(int rank = 0) {
    run(decode_copies, "mbarrier.test_wait.parity.shared::cta.b64", {predicate(40), at(4), number(1, 0)}, rank);
    return warp(rank).predicate(40) & 1;
  }
};

TEST(PtxCopies, SmallCopiesFillWithZeros) {
  for (const auto pace : {Pace::eager, Pace::lazy}) {
    Copies one(pace);
    DeviceArray<std::uint32_t> memory(8);
    for (std::uint32_t i = 0; i < 8; ++i) memory.values[i] = i + 1;
    one.warp().active = 3;
    one.value<std::uint32_t>(0, 1) = to_place + 16;
    one.value<std::uint64_t>(2, 0) = memory.address(4);
    one.value<std::uint64_t>(2, 1) = 12345;  // not read
    one.value<std::uint32_t>(5, 0) = 8;
    one.value<std::uint32_t>(5, 1) = 0;
    one.run(decode_copies, "cp.async.cg.shared.global.L2::128B", {at(0), at_wide(2), number(1, 16), word(5)});
    one.run(decode_copies, "cp.async.commit_group", {});
    EXPECT_EQ(one.shared<std::uint32_t>(to_place), pace == Pace::lazy ? 0x77777777u : 5u);
    one.run(decode_copies, "cp.async.wait_group", {number(1, 0)});
    EXPECT_EQ(one.shared<std::uint32_t>(to_place), 5u);
    EXPECT_EQ(one.shared<std::uint32_t>(to_place + 4), 6u);
    EXPECT_EQ(one.shared<std::uint32_t>(to_place + 8), 0u);
    EXPECT_EQ(one.shared<std::uint32_t>(to_place + 16), 0u);
  }
}

TEST(PtxCopies, WaitsForAllButTheLastGroups) {
  Copies one(Pace::lazy);
  DeviceArray<std::uint32_t> memory(4);
  one.fill<std::uint64_t>(2, memory.address());
  for (std::uint32_t group = 0; group < 3; ++group) {
    one.fill<std::uint32_t>(0, to_place + 16 * group);
    one.run(decode_copies, "cp.async.ca.shared.global", {at(0), at_wide(2), number(1, 4)});
    one.run(decode_copies, "cp.async.commit_group", {});
  }
  one.run(decode_copies, "cp.async.wait_group", {number(1, 1)});
  EXPECT_EQ(one.shared<std::uint32_t>(to_place + 16), 0u);
  EXPECT_NE(one.shared<std::uint32_t>(to_place + 32), 0u);
  one.run(decode_copies, "cp.async.wait_all", {});
  EXPECT_EQ(one.shared<std::uint32_t>(to_place + 32), 0u);
}

TEST(PtxCopies, IgnoresTheSourceWhereAPredicateSaysSo) {
  Copies one;
  DeviceArray<std::uint32_t> memory(4);
  memory.values[0] = 9;
  one.fill<std::uint64_t>(2, memory.address());
  one.warp().active = 3;
  one.value<std::uint32_t>(0, 1) = to_place + 16;
  one.warp().predicate(5) = 2;
  one.run(decode_copies, "cp.async.ca.shared.global", {at(0), at_wide(2), number(1, 4), predicate(5)});
  EXPECT_EQ(one.shared<std::uint32_t>(to_place), 9u);
  EXPECT_EQ(one.shared<std::uint32_t>(to_place + 16), 0u);
}

TEST(PtxCopies, ArrivesWhenSmallCopiesAreDone) {
  for (const char* opcode : {"cp.async.mbarrier.arrive.noinc.shared::cta.b64", "cp.async.mbarrier.arrive.shared::cta.b64"}) {
    const bool raises = std::string(opcode).find("noinc") == std::string::npos;
    Copies one(Pace::lazy);
    DeviceArray<std::uint32_t> memory(4);
    one.fill<std::uint64_t>(2, memory.address());
    one.run(decode_copies, "cp.async.ca.shared.global", {at(0), at_wide(2), number(1, 4)});
    one.run(decode_copies, opcode, {at(4)});
    EXPECT_FALSE(one.over());
    EXPECT_NE(one.shared<std::uint32_t>(to_place), 0u);
    one.run_pending();
    EXPECT_EQ(one.shared<std::uint32_t>(to_place), 0u);
    EXPECT_EQ(one.over(), !raises);
    if (raises) one.expect(0);
    EXPECT_TRUE(one.over());
  }
}

TEST(PtxCopies, BulkBytesArriveAtTheBarrier) {
  Copies one(Pace::lazy);
  DeviceArray<std::uint32_t> memory(16);
  memory.values[15] = 15;
  one.fill<std::uint64_t>(2, memory.address());
  one.expect(64);
  one.run(decode_copies, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", {at(0), at_wide(2), number(1, 64), at(4)});
  EXPECT_FALSE(one.over());
  one.run_pending();
  EXPECT_TRUE(one.over());
  EXPECT_EQ(one.shared<std::uint32_t>(to_place + 60), 15u);
  EXPECT_NE(fault_of([&] {
              one.run(decode_copies, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
                      {at(0), at_wide(2), number(1, 8), at(4)});
            }),
            "");
}

TEST(PtxCopies, MulticastArrivesInEachCta) {
  Copies one(Pace::eager, 4);
  DeviceArray<std::uint32_t> memory(4);
  one.fill<std::uint64_t>(2, memory.address());
  for (int rank = 0; rank < 4; ++rank) one.expect(16, rank);
  one.fill<std::uint32_t>(5, 0b1010);
  one.run(decode_copies, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
          {at(0), at_wide(2), number(1, 16), at(4), half(5)});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(one.over(rank), rank % 2 == 1);
    EXPECT_EQ(one.shared<std::uint32_t>(to_place, rank) == 0, rank % 2 == 1);
  }
}

TEST(PtxCopies, CopiesToAnotherCtaAndItsBarrier) {
  Copies one(Pace::eager, 2);
  one.expect(16, 1);
  one.put_shared<std::uint32_t>(to_place + 64, 5);
  one.fill<std::uint32_t>(0, to_place | 2u << cluster_shift);
  one.fill<std::uint32_t>(5, barrier_place | 2u << cluster_shift);
  one.fill<std::uint32_t>(6, to_place + 64);
  one.run(decode_copies, "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", {at(0), at(6), number(1, 16), at(5)});
  EXPECT_TRUE(one.over(1));
  EXPECT_EQ(one.shared<std::uint32_t>(to_place, 1), 5u);
}

TEST(PtxCopies, BulkStoresRunOnceWhoeverAsksFirst) {
  Copies one(Pace::lazy);
  DeviceArray<float> memory(4);
  one.fill<std::uint64_t>(2, memory.address());
  one.put_shared<float>(to_place, 2.5f);
  const auto add = [&] {
    one.run(decode_copies, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", {at_wide(2), at(0), number(1, 16)});
    one.run(decode_copies, "cp.async.bulk.commit_group", {});
  };
  add();
  add();
  EXPECT_EQ(memory.values[0], 0.0f);
  one.run(decode_copies, "cp.async.bulk.wait_group.read", {number(1, 1)});
  EXPECT_EQ(memory.values[0], 2.5f);
  one.run_pending();
  EXPECT_EQ(memory.values[0], 5.0f);
  one.run(decode_copies, "cp.async.bulk.wait_group", {number(1, 0)});
  EXPECT_EQ(memory.values[0], 5.0f);
}

TEST(PtxCopies, StoresWordsInAnotherCta) {
  Copies one(Pace::lazy, 2);
  one.expect(16, 1);
  one.fill<std::uint32_t>(0, to_place | 2u << cluster_shift);
  one.fill<std::uint32_t>(5, barrier_place | 2u << cluster_shift);
  for (Slot part = 0; part < 4; ++part) one.fill<std::uint32_t>(6 + part, 60 + part);
  one.run(decode_copies, "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32",
          {at(0), vector({word(6), word(7), word(8), word(9)}), at(5)});
  one.fill<std::uint32_t>(9, 0);  // what was sent stays
  EXPECT_FALSE(one.over(1));
  one.run_pending();
  EXPECT_TRUE(one.over(1));
  EXPECT_EQ(one.shared<std::uint32_t>(to_place + 12, 1), 63u);
}

// A map of `type`, of extents and a box innermost first.
TensorMap map_of(std::uint64_t address, std::uint8_t type, std::uint32_t element, std::uint8_t swizzle, std::vector<std::uint32_t> extents,
                 std::vector<std::uint16_t> box) {
  TensorMap map{};
  map.magic = tensor_map_magic;
  map.address = address;
  std::uint64_t stride = element;
  for (std::size_t dim = 0; dim < extents.size(); ++dim) {
    map.extents_less_1[dim] = extents[dim] - 1;
    map.box[dim] = box[dim];
    if (dim) map.strides[dim - 1] = stride;
    stride *= extents[dim];
  }
  map.rank = static_cast<std::uint8_t>(extents.size());
  map.type = type;
  map.swizzle = swizzle;
  return map;
}

// The map is parameter 64 of the entry; slot 2 has its generic address.
void give_map(OneWarp& one, const TensorMap& map) {
  std::memcpy(one.grid.parameters.data() + 64, &map, sizeof map);
  one.fill<std::uint64_t>(2, generic_param | 64);
}

Operand in_map(std::vector<Operand> coordinates) {
  auto made = at_wide(2);
  made.parts = std::move(coordinates);
  return made;
}

void set_at(OneWarp& one, std::vector<std::int32_t> at) {
  for (Slot i = 0; i < at.size(); ++i) one.fill<std::int32_t>(6 + i, at[i]);
}

constexpr const char* load_2d = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint";

// templates/device/sm90/sm90_copy.h: chunk c of row r is at chunk c ^ (r % 8) for 128 bytes, c ^ (r / 2 % 4) for 64, c ^ (r / 4 % 2)
// for 32.
TEST(PtxCopies, SwizzlesAsThePtxVocabularySays) {
  for (std::uint8_t swizzle = 0; swizzle < 4; ++swizzle) {
    const std::uint32_t width = swizzle ? 16u << swizzle : 64, chunks = width / 16, rows = 16;
    Copies one;
    DeviceArray<std::uint16_t> memory(rows * width / 2);
    for (std::uint32_t i = 0; i < rows * width / 2; ++i) memory.values[i] = static_cast<std::uint16_t>(i);
    give_map(one, map_of(memory.address(), 9, 2, swizzle, {width / 2, rows}, {static_cast<std::uint16_t>(width / 2), rows}));
    set_at(one, {0, 0});
    one.expect(rows * width);
    one.run(decode_copies, load_2d, {at(0), in_map({word(6), word(7)}), at(4), wide(20)});
    EXPECT_TRUE(one.over());
    for (std::uint32_t row = 0; row < rows; ++row)
      for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
        const std::uint32_t turned[] = {0, row / 4 % 2, row / 2 % 4, row % 8};
        const auto place = to_place + row * width + (chunk ^ turned[swizzle]) * 16;
        EXPECT_EQ(one.shared<std::uint16_t>(place), row * width / 2 + chunk * 8) << "swizzle " << int{swizzle} << ", row " << row;
      }
  }
}

TEST(PtxCopies, ReadsZerosOutsideAndDoesNotWriteThere) {
  Copies one(Pace::lazy);
  DeviceArray<float> memory(6 * 5);
  for (int i = 0; i < 30; ++i) memory.values[i] = static_cast<float>(i + 1);
  auto map = map_of(memory.address(), 7, 4, 0, {6, 5}, {4, 4});
  map.strides[0] = 24;
  give_map(one, map);
  set_at(one, {4, -1});
  one.expect(64);
  one.run(decode_copies, load_2d, {at(0), in_map({word(6), word(7)}), at(4), wide(20)});
  EXPECT_FALSE(one.over());
  one.run_pending();
  EXPECT_TRUE(one.over());
  for (std::uint32_t row = 0; row < 4; ++row)
    for (std::uint32_t column = 0; column < 4; ++column)
      EXPECT_EQ(one.shared<float>(to_place + row * 16 + column * 4),
                row == 0 || column > 1 ? 0.0f : static_cast<float>((row - 1) * 6 + column + 5));
  one.run(decode_copies, "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group", {in_map({word(6), word(7)}), at(0)});
  one.run_pending();
  for (int i = 0; i < 30; ++i) EXPECT_EQ(memory.values[i], static_cast<float>(i + 1) * (i % 6 > 3 && i < 18 ? 2 : 1)) << i;
}

TEST(PtxCopies, StoresWhatItLoaded) {
  Copies one;
  DeviceArray<std::uint16_t> from(64 * 3 * 2 * 2 * 2), to(64 * 3 * 2 * 2 * 2);
  for (std::uint32_t i = 0; i < 64 * 24; ++i) from.values[i] = static_cast<std::uint16_t>(i + 1);
  const auto map = [](const DeviceArray<std::uint16_t>& memory) {
    return map_of(memory.address(), 6, 2, 3, {64, 3, 2, 2, 2}, {64, 2, 1, 2, 1});
  };
  set_at(one, {0, 2, 1, 0, 1});
  const std::vector<Operand> coordinates = {word(6), word(7), word(8), word(9), word(10)};
  give_map(one, map(from));
  one.run(decode_copies, "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
          {at(0), in_map(coordinates), at(4)});
  give_map(one, map(to));
  one.run(decode_copies, "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group", {in_map(coordinates), at(0)});
  for (std::uint32_t i = 0; i < 64 * 24; ++i) {
    const auto row = i / 64;
    const bool in_box = row % 3 == 2 && row / 3 % 2 == 1 && row / 12 == 1;
    EXPECT_EQ(to.values[i], in_box ? i + 1 : 0) << i;
  }
}

TEST(PtxCopies, FaultsOfMaps) {
  Copies one;
  DeviceArray<float> memory(64);
  const auto load = [&] { one.run(decode_copies, load_2d, {at(0), in_map({word(6), word(7)}), at(4), wide(20)}); };
  set_at(one, {0, 0});
  one.fill<std::uint64_t>(2, generic_param | 64);
  EXPECT_NE(fault_of(load).find("encoded"), std::string::npos);
  give_map(one, map_of(memory.address(), 7, 4, 0, {16, 8}, {16, 8}));  // more than there is
  EXPECT_NE(fault_of(load).find("box of a tensor"), std::string::npos);
  give_map(one, map_of(memory.address(), 7, 4, 0, {16, 4}, {16, 4}));
  one.fill<std::uint32_t>(0, to_place + 16);
  EXPECT_NE(fault_of(load).find("multiple of 128"), std::string::npos);
}

}  // namespace
}  // namespace ejk::ptx::test::copies
