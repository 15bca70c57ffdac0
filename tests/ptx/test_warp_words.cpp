// shfl, vote, redux, match, elect and activemask of the PTX emulator.
#include <stdexcept>

#include "tests/ptx/one_instruction.hpp"

namespace ejk::ptx {
namespace {

WarpOfRegisters numbered() {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, 100 + lane);
  return one;
}

TEST(PtxWarpWords, Butterfly) {
  auto one = numbered();
  one.words("shfl.sync.bfly.b32 %r2|%p1, %r1, 5, 31, -1");
  for (int lane = 0; lane < lanes; ++lane) EXPECT_EQ(one.get("%r2", lane), 100u + (lane ^ 5));
  EXPECT_EQ(one.mask("%p1"), all_lanes);
}

TEST(PtxWarpWords, UpAndDownStayInsideTheWarp) {
  auto one = numbered();
  one.words("shfl.sync.down.b32 %r2|%p1, %r1, 3, 31, -1");
  EXPECT_EQ(one.get("%r2", 28), 131u);
  EXPECT_EQ(one.get("%r2", 29), 129u);
  EXPECT_EQ(one.mask("%p1"), 0x1fffffffu);
  one.words("shfl.sync.up.b32 %r2|%p1, %r1, 3, 0, -1");
  EXPECT_EQ(one.get("%r2", 3), 100u);
  EXPECT_EQ(one.get("%r2", 2), 102u);
  EXPECT_EQ(one.mask("%p1"), 0xfffffff8u);
}

TEST(PtxWarpWords, SegmentsBoundShuffles) {
  auto one = numbered();
  const std::string segments_of_8 = std::to_string((24 << 8) | 31);
  one.words("shfl.sync.down.b32 %r2, %r1, 1, " + segments_of_8 + ", -1");
  EXPECT_EQ(one.get("%r2", 6), 107u);
  EXPECT_EQ(one.get("%r2", 7), 107u);
  one.words("shfl.sync.idx.b32 %r2|%p1, %r1, 10, " + segments_of_8 + ", -1");
  EXPECT_EQ(one.get("%r2", 17), 118u);
  one.words("shfl.sync.idx.b32 %r1, %r1, 0, 31, -1");  // a lane's value is read before it is written
  EXPECT_EQ(one.get("%r1", 31), 100u);
}

TEST(PtxWarpWords, NamedLanesAreAwaited) {
  auto one = numbered();
  one.warp.path = one.warp.active = 0x0000ffff;
  one.set("%r2", 7);
  one.words("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1");
  EXPECT_EQ(one.warp.progress, Progress::wait);
  EXPECT_EQ(one.get("%r2"), 7u);
  one.warp.progress = Progress::done;
  one.words("vote.sync.any.pred %p1, %p2, -1");
  EXPECT_EQ(one.warp.progress, Progress::wait);
  one.warp.progress = Progress::done;
  one.warp.alive = 0x0000ffff;
  one.words("shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1");
  EXPECT_EQ(one.warp.progress, Progress::done);
  EXPECT_EQ(one.get("%r2"), 101u);
  EXPECT_EQ(one.get("%r2", 16), 7u);
}

TEST(PtxWarpWords, LanesOutsideTheMaskAreAFault) {
  auto one = numbered();
  EXPECT_THROW(one.run(decode_warp, "shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff"), Fault);
}

TEST(PtxWarpWords, Votes) {
  WarpOfRegisters one;
  one.set_mask("%p2", 0x00010000);
  one.words("vote.sync.any.pred %p1, %p2, -1");
  EXPECT_EQ(one.mask("%p1"), all_lanes);
  one.words("vote.sync.all.pred %p1, %p2, -1");
  EXPECT_EQ(one.mask("%p1"), 0u);
  one.words("vote.sync.uni.pred %p1, %p2, -1");
  EXPECT_EQ(one.mask("%p1"), 0u);
  one.words("vote.sync.ballot.b32 %r1, !%p2, -1");
  EXPECT_EQ(one.get("%r1", 9), 0xfffeffffu);
  one.warp.path = one.warp.active = 0x00ff0000;
  one.words("vote.sync.ballot.b32 %r1, !%p2, 0xff0000");
  EXPECT_EQ(one.get("%r1", 16), 0x00fe0000u);
  EXPECT_EQ(one.get("%r1", 0), 0xfffeffffu);
}

TEST(PtxWarpWords, GroupsOfLanesTalkAmongThemselves) {
  auto one = numbered();
  for (int lane = 0; lane < lanes; ++lane) one.set("%r9", lane, lane % 2 ? 0xaaaaaaaa : 0x55555555);
  one.words("redux.sync.max.u32 %r2, %r1, %r9");
  EXPECT_EQ(one.get("%r2", 0), 130u);
  EXPECT_EQ(one.get("%r2", 1), 131u);
}

TEST(PtxWarpWords, Reductions) {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, static_cast<std::uint32_t>(lane - 5));
  one.words("redux.sync.add.s32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2", 4), 31u * 16 - 5 * 32);
  one.words("redux.sync.min.s32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2"), 0xfffffffbu);
  one.words("redux.sync.min.u32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2"), 0u);
  one.words("redux.sync.max.s32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2"), 26u);
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, 1u << lane);
  one.words("redux.sync.or.b32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2"), all_lanes);
  one.words("redux.sync.and.b32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2"), 0u);
  one.set("%r1", 0, 0);
  one.words("redux.sync.xor.b32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2"), 0xfffffffeu);
}

TEST(PtxWarpWords, Matches) {
  WarpOfRegisters one;
  for (int lane = 0; lane < lanes; ++lane) one.set("%r1", lane, lane / 8), one.set("%rd1", lane, std::uint64_t{5} << 33);
  one.words("match.any.sync.b32 %r2, %r1, -1");
  EXPECT_EQ(one.get("%r2", 9), 0x0000ff00u);
  one.words("match.all.sync.b32 %r2|%p1, %r1, -1");
  EXPECT_EQ(one.get("%r2", 9), 0u);
  EXPECT_EQ(one.mask("%p1"), 0u);
  one.set("%r3", all_lanes);
  one.words("match.all.sync.b64 %r2|%p1, %rd1, %r3");
  EXPECT_EQ(one.get("%r2", 9), all_lanes);
  EXPECT_EQ(one.mask("%p1"), all_lanes);
}

TEST(PtxWarpWords, LeaderIsTheFirstLane) {
  WarpOfRegisters one;
  one.set_mask("%p1", all_lanes);
  one.words("elect.sync _|%p1, -1");
  EXPECT_EQ(one.mask("%p1"), 1u);
  one.warp.path = one.warp.active = 0xfff0;
  one.set_mask("%p1", 0);
  one.words("elect.sync %r1|%p1, 0xfff0");
  EXPECT_EQ(one.mask("%p1"), 0x10u);
  EXPECT_EQ(one.get("%r1", 7), 4u);
  one.words("activemask.b32 %r2");
  EXPECT_EQ(one.get("%r2", 7), 0xfff0u);
}

}  // namespace
}  // namespace ejk::ptx
