// Archs: names, and which cubins run on which device.
#include "backends/cuda/cuda_arch.hpp"

#include "cuda/cuda_image.hpp"

namespace ejk::cuda {
namespace {

std::vector<std::string> archs_on(int major, int minor) {
  std::vector<spec::Arch> archs;
  for (const char* name : cuda_archs) archs.push_back(cuda_arch(name));
  std::vector<const spec::Arch*> pointers;
  for (const auto& arch : archs) pointers.push_back(&arch);
  return runnable_archs(pointers, major, minor);
}

using Names = std::vector<std::string>;

TEST(CudaArch, CubinsRunOnTheirMajorFromTheirMinorOn) {
  EXPECT_EQ(archs_on(8, 0), Names({"cuda:sm_80"}));
  EXPECT_EQ(archs_on(8, 6), Names({"cuda:sm_86", "cuda:sm_80"}));
  EXPECT_EQ(archs_on(8, 9), Names({"cuda:sm_89", "cuda:sm_86", "cuda:sm_80"}));
  EXPECT_EQ(archs_on(7, 5), Names());
}

TEST(CudaArch, SpecificOnesRunOnExactlyTheirs) {
  EXPECT_EQ(archs_on(9, 0), Names({"cuda:sm_90a"}));
  EXPECT_EQ(archs_on(10, 0), Names({"cuda:sm_100a"}));
  EXPECT_EQ(archs_on(10, 3), Names());
  EXPECT_EQ(archs_on(12, 0), Names({"cuda:sm_120a"}));
  EXPECT_EQ(archs_on(12, 1), Names());
}

TEST(CudaArch, TegraRunsNoDesktopCubin) { EXPECT_EQ(archs_on(8, 7), Names()); }

TEST(CudaArch, NamesAreParsed) {
  const auto sm = parse_sm("cuda:sm_100a");
  ASSERT_TRUE(sm);
  EXPECT_EQ(sm->major, 10);
  EXPECT_EQ(sm->minor, 0);
  EXPECT_TRUE(sm->specific);
  EXPECT_FALSE(parse_sm("sm_80")->specific);
  for (const char* name : {"", "sm_", "sm_a", "sm_9x", "gfx90a", "sm_9", "sm_9000"}) EXPECT_FALSE(parse_sm(name)) << name;
}

}  // namespace
}  // namespace ejk::cuda
