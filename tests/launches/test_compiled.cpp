// The GPU templates of data/ by NVRTC and by clang, for every arch of CUDA and HIP.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/backend.h"
#include "spec/read/catalogue.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

class Compiled : public ::testing::TestWithParam<std::string> {};

TEST_P(Compiled, EveryKernel) {
  const auto catalogue =
      spec::Catalogue::open(test::source_dir() + "/tests/launches/data/specs", test::source_dir() + "/tests/launches/data/templates");
  const auto& arch = *catalogue.arch(GetParam());
  auto& backend = *backend_of(arch.platform);
  if (std::string why_not; !backend.can_compile(arch, why_not)) GTEST_SKIP() << why_not;
  int images = 0;
  for (const auto& name : catalogue.kernel_names()) {
    const auto spec = catalogue.kernel(name);
    for (const auto& variant : spec->variants) {
      if (std::ranges::find(variant.archs, arch.platform) == variant.archs.end()) continue;
      const auto binding = spec::bind(*spec, spec::facts_of(*spec, spec->cases.at(0)));
      const auto config = spec::heuristic_config(variant, arch, binding);
      ASSERT_TRUE(config);
      const auto image = spec::make_image(*spec, variant, arch, binding, *config, catalogue.templates());
      const auto result = backend.compile(image, arch);
      EXPECT_TRUE(result.ok) << image.id << "\n" << result.log;
      ++images;
    }
  }
  EXPECT_GT(images, 0);
}

INSTANTIATE_TEST_SUITE_P(Archs, Compiled,
                         ::testing::Values("cuda:sm_80", "cuda:sm_90a", "cuda:sm_120a", "hip:gfx90a", "hip:gfx942", "hip:gfx1100",
                                           "hip:gfx1200"),
                         [](const auto& info) { return info.param.substr(info.param.find(':') + 1); });

}  // namespace
}  // namespace ejk
