// What a bench's table says of a machine whose peaks were measured too low, and of alignments.
#include "bench/bench_report.hpp"

#include <gtest/gtest.h>

#include "bench/machine_peaks.hpp"
#include "reference/host_tensor.hpp"

namespace ejk::tools {
namespace {

TEST(BenchReport, NoRunIsSaidToBeFasterThanTheMachine) {
  EXPECT_EQ(roofline_text(0.931), "93.1%");
  EXPECT_EQ(roofline_text(1), "100.0%");
  EXPECT_EQ(roofline_text(1.49), "> peak measured");
}

TEST(BenchReport, PeaksOnlyRiseWithTheirRounds) {
  PeakMeter meter(1);
  EXPECT_EQ(meter.peaks().flops, 0);
  meter.measure(1);
  const auto first = meter.peaks();
  EXPECT_GT(first.flops, 0);
  EXPECT_GT(first.read, 0);
  EXPECT_GT(first.copy, 0);
  meter.measure(2);
  EXPECT_GE(meter.peaks().flops, first.flops);
  EXPECT_GE(meter.peaks().read, first.read);
  EXPECT_GE(meter.peaks().copy, first.copy);
}

TEST(HostTensor, IsAlignedToWhatItsLayoutSaysAndToNoMore) {
  for (const int alignment : {4, 8, 16, 32, 64}) {
    reference::Layout layout;
    layout.alignment = alignment;
    const reference::HostTensor tensor("x", DType::f32, {3, 5}, layout);
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
    EXPECT_EQ(address % static_cast<std::uintptr_t>(alignment), 0u);
    if (alignment < 64) {
      EXPECT_NE(address % static_cast<std::uintptr_t>(2 * alignment), 0u) << alignment;
    }
    EXPECT_TRUE(tensor.surroundings_intact());
  }
}

}  // namespace
}  // namespace ejk::tools
