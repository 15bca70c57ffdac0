// Every portable GPU template by hipRTC (of a day a quarter), for an arch of waves of 64 and one of 32; clang's images are `ejk build`'s.
#include <fmt/format.h>

#include <algorithm>

#include "hip/hip_image.hpp"
#include "spec/read/catalogue.hpp"
#include "tests/day.hpp"
#include "tests/paths.hpp"

namespace ejk::hip {
namespace {

// hipRTC 5.2 knows no gfx1100: the same waves of 32 one generation before.
spec::Arch arch_for(const spec::Catalogue& catalogue, const std::string& name) {
  auto arch = *catalogue.arch(name == "gfx1030" ? "hip:gfx1100" : "hip:" + name);
  arch.name = name;
  return arch;
}

class PortableTemplates : public ::testing::TestWithParam<const char*> {};

TEST_P(PortableTemplates, CompileByHiprtc) {
  NEEDS_HIPRTC();
  const auto catalogue = spec::Catalogue::open(test::source_dir() + "/specs", test::source_dir() + "/templates");
  const auto arch = arch_for(catalogue, GetParam());
  if (std::ranges::find(hiprtc().archs, arch.name) == hiprtc().archs.end()) GTEST_SKIP() << hiprtc().description << " has no " << arch.name;
  int templates = 0;
  for (const auto& name : catalogue.kernel_names()) {
    const auto spec = catalogue.kernel(name);
    if (spec->same_as) continue;  // its variants are another kernel's
    for (const auto& variant : spec->variants) {
      const auto names = [&](const char* pattern) { return std::ranges::find(variant.archs, pattern) != variant.archs.end(); };
      // gfx1030 has no matrix instructions, which ends the compiler: only what CUDA runs as well is for it.
      if (!names("hip") || (arch.name == "gfx1030" && !names("simt"))) continue;
      bool compiled = false;
      for (const auto& each : spec->cases) {
        if (compiled) break;
        const auto binding = spec::bind(*spec, spec::facts_of(*spec, each));
        if (spec::refusal(variant, arch, binding)) continue;
        const auto config = spec::heuristic_config(variant, arch, binding);
        if (!config) continue;
        const auto image = spec::make_image(*spec, variant, arch, binding, *config, catalogue.templates());
        compiled = true;
        if (!test::of_the_day(static_cast<std::uint64_t>(templates), 4)) continue;  // `ejk build` compiles them by clang
        const auto result = compile_with_hiprtc(hiprtc(), image);
        EXPECT_TRUE(result.ok) << image.id << "\n" << result.log;
      }
      EXPECT_TRUE(compiled) << name << " " << variant.name << ": no case is for " << arch.name;
      templates += compiled;
    }
  }
  EXPECT_GE(templates, arch.name == "gfx90a" ? 14 : 9);
}

INSTANTIATE_TEST_SUITE_P(Archs, PortableTemplates, ::testing::Values("gfx90a", "gfx1030"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ejk::hip
