// mbarriers: phases of arrivals and bytes.
#include <gtest/gtest.h>

#include "tests/ptx/one_warp.hpp"

namespace ejk::ptx::test::barriers {
namespace {

constexpr std::uint32_t place = reserved_shared + 8;

struct WithBarrier : OneWarp {
  explicit WithBarrier(std::uint32_t arrivals, int ctas = 1) : OneWarp(ctas) {
    fill<std::uint32_t>(0, place);
    for (int rank = 0; rank < ctas; ++rank) fill<std::uint32_t>(0, place, rank);
    for (int rank = 0; rank < ctas; ++rank) {
      warp(rank).active = 1;
      run(decode_copies, "mbarrier.init.shared::cta.b64", {at(0), number(1, arrivals)}, rank);
    }
  }
  bool over(std::uint32_t parity, int rank = 0) {
    run(decode_copies, "mbarrier.test_wait.parity.shared::cta.b64", {predicate(10), at(0), number(1, parity)}, rank);
    return warp(rank).predicate(10) & 1;
  }
  void arrive() { run(decode_copies, "mbarrier.arrive.shared::cta.b64", {Operand{}, at(0)}); }
};

TEST(PtxBarriers, PhasesEndWhenAllHaveArrived) {
  WithBarrier one(3);
  EXPECT_TRUE(one.over(1));
  one.arrive();
  one.arrive();
  EXPECT_FALSE(one.over(0));
  one.arrive();
  EXPECT_TRUE(one.over(0));
  EXPECT_FALSE(one.over(1));
  one.warp().active = 7;
  one.arrive();
  EXPECT_FALSE(one.over(0));
  EXPECT_TRUE(one.over(1));
}

TEST(PtxBarriers, PhasesWaitForBytes) {
  WithBarrier one(1);
  one.run(decode_copies, "mbarrier.arrive.expect_tx.shared::cta.b64", {Operand{}, at(0), number(1, 100)});
  EXPECT_FALSE(one.over(0));
  one.run(decode_copies, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64", {at(0), number(1, 60)});
  EXPECT_FALSE(one.over(0));
  one.run(decode_copies, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64", {at(0), number(1, 40)});
  EXPECT_TRUE(one.over(0));
}

TEST(PtxBarriers, BytesMayComeBeforeTheyAreExpected) {
  WithBarrier one(1);
  one.run(decode_copies, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64", {at(0), number(1, 64)});
  EXPECT_FALSE(one.over(0));
  one.run(decode_copies, "mbarrier.arrive.expect_tx.shared::cta.b64", {Operand{}, at(0), number(1, 64)});
  EXPECT_TRUE(one.over(0));
}

TEST(PtxBarriers, StatesTellTheirPhase) {
  WithBarrier one(2);
  one.run(decode_copies, "mbarrier.arrive.noComplete.shared::cta.b64", {wide(4), at(0), number(1, 1)});
  one.run(decode_copies, "mbarrier.pending_count.b64", {word(6), wide(4)});
  EXPECT_EQ(one.value<std::uint32_t>(6, 0), 2u);
  one.run(decode_copies, "mbarrier.test_wait.shared::cta.b64", {predicate(10), at(0), wide(4)});
  EXPECT_EQ(one.warp().predicate(10) & 1, 0u);
  one.run(decode_copies, "mbarrier.arrive_drop.shared::cta.b64", {wide(8), at(0)});
  one.run(decode_copies, "mbarrier.test_wait.shared::cta.b64", {predicate(10), at(0), wide(4)});
  EXPECT_EQ(one.warp().predicate(10) & 1, 1u);
  one.arrive();  // the next phase expects one
  EXPECT_TRUE(one.over(1));
}

TEST(PtxBarriers, WaitsOnlyIfNoLanesPhaseIsOver) {
  WithBarrier one(1);
  one.warp().active = 3;
  one.fill<std::uint32_t>(2, 0);
  one.run(decode_copies, "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", {predicate(10), at(0), word(2)});
  EXPECT_EQ(one.warp().progress, Progress::wait);
  one.value<std::uint32_t>(2, 1) = 1;
  one.run(decode_copies, "mbarrier.try_wait.parity.shared::cta.b64", {predicate(10), at(0), word(2)});
  EXPECT_EQ(one.warp().progress, Progress::done);
  EXPECT_EQ(one.warp().predicate(10), 2u);
  one.fill<std::uint32_t>(2, 0);
  one.run(decode_copies, "mbarrier.test_wait.parity.shared::cta.b64", {predicate(10), at(0), word(2)});
  EXPECT_EQ(one.warp().progress, Progress::done);
}

TEST(PtxBarriers, ArrivesInAnotherCta) {
  WithBarrier one(1, 2);
  one.fill<std::uint32_t>(3, place | 2u << cluster_shift);
  one.run(decode_copies, "mbarrier.arrive.release.cluster.shared::cluster.b64", {Operand{}, at(3)});
  EXPECT_TRUE(one.over(0, 1));
  EXPECT_FALSE(one.over(0, 0));
}

TEST(PtxBarriers, FaultsNameWhatIsWrong) {
  WithBarrier one(1);
  one.run(decode_copies, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64", {at(0), number(1, 16)});
  one.arrive();
  EXPECT_NE(fault_of([&] { one.arrive(); }).find("0 are pending"), std::string::npos);
  one.fill<std::uint32_t>(0, place + 8);
  EXPECT_NE(fault_of([&] { one.arrive(); }).find("initialised"), std::string::npos);
  EXPECT_NE(fault_of([&] {
              one.run(decode_copies, "mbarrier.init.shared::cta.b64", {at(0), number(1, 0)});
            }).find("0 arrivals"),
            std::string::npos);
  one.fill<std::uint32_t>(0, place);
  one.run(decode_copies, "mbarrier.inval.shared::cta.b64", {at(0)});
  EXPECT_NE(fault_of([&] { one.over(0); }), "");
}

}  // namespace
}  // namespace ejk::ptx::test::barriers
