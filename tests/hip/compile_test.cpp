// Code objects by clang and by hipRTC: the same bytes twice, resources, limits, and what is said when a compiler fails or is not there.
#include <cstdlib>
#include <fstream>

#include "hip/hip_image.hpp"
#include "store/build.hpp"
#include "store/fixtures.hpp"

namespace ejk::hip {
namespace {

namespace fs = std::filesystem;

std::int64_t resource(const CompileResult& result, const std::string& name) {
  for (const auto& [resource, value] : result.resources)
    if (resource == name) return value;
  return -1;
}

class HipCompile : public ::testing::TestWithParam<const char*> {};

TEST_P(HipCompile, GivesOneBareCodeObjectAndTheSameBytesTwice) {
  NEEDS_CLANG(GetParam());
  const auto image = hip_image(small_source, GetParam());
  const auto first = compile_with_clang(*clang_for(GetParam()), image), second = compile_with_clang(*clang_for(GetParam()), image);
  ASSERT_TRUE(first.ok) << first.log;
  EXPECT_EQ(first.binary, second.binary);
  CodeObjectFacts facts;
  ASSERT_EQ(read_code_object(first.binary, facts), "");
  EXPECT_EQ(facts.arch, GetParam());
  EXPECT_EQ(facts.kernels, std::vector<std::string>({"fill"}));
  EXPECT_EQ(resource(first, "wave_size"), std::string(GetParam()).starts_with("gfx9") ? 64 : 32);
  EXPECT_EQ(resource(first, "shared_bytes"), 1024);
  EXPECT_EQ(resource(first, "spill_bytes"), 0);
  EXPECT_GT(resource(first, "vgprs"), 0);
  EXPECT_GT(resource(first, "sgprs"), 0);
  EXPECT_EQ(first.command.front().find('/'), std::string::npos) << "a path of this machine";
}

INSTANTIATE_TEST_SUITE_P(Archs, HipCompile, ::testing::ValuesIn(hip_archs), [](const auto& info) { return std::string(info.param); });

TEST(HipCompileErrors, ABadSourceIsTheSourcesFault) {
  NEEDS_CLANG("gfx942");
  const auto result = compile_with_clang(*clang_for("gfx942"), hip_image("void f( {", "gfx942"));
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.transient);
  EXPECT_NE(result.log.find("source.hip:1:6: error"), std::string::npos) << result.log;
}

TEST(HipCompileErrors, WithoutAClangTheRefusalTellsWhereItLooked) {
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(setenv("PATH", "/nowhere", 1), 0);
  const auto clang = clang_for("gfx942");
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  if (fs::exists("/opt/rocm/llvm/bin/clang++")) GTEST_SKIP() << "ROCm has one";
  EXPECT_FALSE(clang->found());
  EXPECT_TRUE(clang->why_not.starts_with("no clang that compiles for gfx942: looked for ")) << clang->why_not;
}

TEST(HipCompileErrors, AClangThatFailsIsToldInItsOwnWords) {
  if (fs::exists("/opt/rocm/llvm/bin/clang++")) GTEST_SKIP() << "ROCm has one";
  const store::Folder rocm;
  const auto program = rocm.path / "llvm/bin/clang++";
  fs::create_directories(program.parent_path());
  std::ofstream(program) << "#!/bin/sh\necho 'toy clang version 1.0'\necho 'Target: toy'\necho 'toy: error: no such target' >&2\nexit 1\n";
  fs::permissions(program, fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(setenv("PATH", "/nowhere", 1), 0);
  ASSERT_EQ(setenv("ROCM_PATH", rocm.path.c_str(), 1), 0);
  const auto clang = clang_for("gfx942");
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  ASSERT_EQ(unsetenv("ROCM_PATH"), 0);
  EXPECT_FALSE(clang->found());
  EXPECT_TRUE(clang->why_not.ends_with("; " + program.string() +
                                       " (toy clang version 1.0) does not build a small kernel for gfx942: toy: error: no such target"))
      << clang->why_not;
}

TEST(HipCompiler, AClangIsDescribedAsItDescribesItself) {
  NEEDS_CLANG("gfx1100");
  const auto clang = clang_for("gfx1100");
  std::string complaints;
  EXPECT_EQ(clang->description, ask_version(clang->command, complaints).description);
  EXPECT_EQ(complaints, "");
}

TEST(HipLimits, ABuildRefusesASpillingKernel) {
  NEEDS_CLANG("gfx1100");
  const store::Folder folder;
  const store::Store store(folder.path, true);
  const auto arch = hip_arch("gfx1100");
  auto spilling = hip_image(spilling_source, "gfx1100"), fine = hip_image(small_source, "gfx1100");
  spilling.id += ".spilling";
  spilling.limits = fine.limits = {{"spill_bytes", 0}, {"vgprs", 255}};
  const std::vector<store::BuildItem> items = {{spilling, &arch}, {fine, &arch}};
  const auto report = store::build(store, items, 1, {});
  EXPECT_EQ(report.built, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(
      report.failures[0].starts_with("toy.gpu.hip_gfx1100.spilling:\nit needs more than its variant's limits allow: spill_bytes is "))
      << report.failures[0];
  EXPECT_TRUE(fs::exists(store.entry_path(fine) / "binary.hsaco"));
  EXPECT_TRUE(fs::exists(store.entry_path(fine) / "source.hip"));
}

TEST(Hiprtc, IsAskedOnlyForArchsItIsKnownToCompileFor) {
  EXPECT_EQ(known_archs(50100), std::vector<std::string>());
  EXPECT_EQ(known_archs(50200), std::vector<std::string>({"gfx906", "gfx908", "gfx90a", "gfx1030"}));
  EXPECT_EQ(known_archs(60000), std::vector<std::string>({"gfx906", "gfx908", "gfx90a", "gfx1030", "gfx1100", "gfx942"}));
  auto old = hiprtc();  // it would end the process
  old.archs = known_archs(50200);
  old.path = "/fake/libamdhip64.so.5";
  old.why_not.clear();
  old.description = "hipRTC of HIP 5.2";
  const auto result = compile_with_hiprtc(old, hip_image(small_source, "gfx942"));
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.transient);
  EXPECT_EQ(
      result.log,
      "hipRTC of HIP 5.2 (/fake/libamdhip64.so.5) is not asked for gfx942: it is known to compile for gfx906, gfx908, gfx90a, gfx1030");
}

TEST(Hiprtc, CompilesWithoutADevice) {
  NEEDS_HIPRTC();
  const auto first = compile_with_hiprtc(hiprtc(), hip_image(small_source)),
             second = compile_with_hiprtc(hiprtc(), hip_image(small_source));
  ASSERT_TRUE(first.ok) << first.log;
  EXPECT_EQ(first.binary, second.binary);
  EXPECT_EQ(resource(first, "shared_bytes"), 1024);
  const auto bad = compile_with_hiprtc(hiprtc(), hip_image("void f( {"));
  EXPECT_FALSE(bad.ok);
  EXPECT_FALSE(bad.transient);
  EXPECT_NE(bad.log.find("error"), std::string::npos) << bad.log;
}

}  // namespace
}  // namespace ejk::hip
