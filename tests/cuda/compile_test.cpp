// NVRTC in this process: every arch, the same bytes each time, resources, the compiler's words, and a machine without it.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cuda/cuda_image.hpp"

namespace ejk::cuda {
namespace {

std::int64_t resource(const CompileResult& result, const std::string& name) {
  for (const auto& [each, value] : result.resources)
    if (each == name) return value;
  return -1;
}

class CudaCompileOn : public testing::TestWithParam<const char*> {};

TEST_P(CudaCompileOn, OneKernelAndItsResources) {
  NEEDS_NVRTC();
  const auto result = compile_cuda_image(nvrtc(), cuda_image(small_source, GetParam()));
  ASSERT_TRUE(result.ok) << result.log;
  CubinFacts facts;
  ASSERT_EQ(read_cubin(result.binary, facts), "");
  EXPECT_EQ("sm_" + std::to_string(facts.sm), std::string(GetParam()).substr(0, 3 + std::to_string(facts.sm).size()));
  EXPECT_GT(resource(result, "registers"), 4);
  EXPECT_LT(resource(result, "registers"), 64);
  EXPECT_EQ(resource(result, "spill_bytes"), 0);
  EXPECT_EQ(resource(result, "stack_bytes"), 0);
  EXPECT_EQ(resource(result, "shared_bytes"), 1024);
  EXPECT_GT(resource(result, "code_bytes"), 100);
  EXPECT_EQ(resource(result, "performance_losses"), 0);
  EXPECT_EQ(result.command.front(), "nvrtc");
  EXPECT_EQ(result.command[1], std::string("--gpu-architecture=") + GetParam());
}

INSTANTIATE_TEST_SUITE_P(Archs, CudaCompileOn, testing::ValuesIn(cuda_archs), [](const auto& info) { return std::string(info.param); });

// Toolkits that are no system's, such as those of pip packages: after the loader's own path.
TEST(CudaCompile, AddedToolkitsAreLookedAt) {
  const auto toolkit = std::filesystem::temp_directory_path() / ("ejk-toolkit-" + std::to_string(getpid()));
  std::filesystem::create_directories(toolkit / "lib");
  const auto file = (toolkit / "lib/libnvrtc.so.13").string();
  std::ofstream(file).put('x');
  add_toolkit(toolkit.string());
  const auto candidates = nvrtc_candidates();
  std::filesystem::remove_all(toolkit);
  const auto own = std::ranges::find(candidates, "libnvrtc.so.13"), added = std::ranges::find(candidates, file);
  ASSERT_NE(added, candidates.end());
  EXPECT_LT(own, added);
}

TEST(CudaCompile, SameSourceSameBytes) {
  NEEDS_NVRTC();
  const auto first = compile_cuda_image(nvrtc(), cuda_image(small_source)), second = compile_cuda_image(nvrtc(), cuda_image(small_source));
  ASSERT_TRUE(first.ok) << first.log;
  EXPECT_EQ(first.binary, second.binary);
  EXPECT_EQ(first.resources, second.resources);
}

TEST(CudaCompile, FourAtOnce) {
  NEEDS_NVRTC();
  std::vector<CompileResult> results(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < results.size(); ++i)
      threads.emplace_back([&, i] { results[i] = compile_cuda_image(nvrtc(), cuda_image(small_source, cuda_archs[i])); });
  }
  for (const auto& result : results) EXPECT_TRUE(result.ok) << result.log;
  EXPECT_EQ(results[3].binary, compile_cuda_image(nvrtc(), cuda_image(small_source, cuda_archs[3])).binary);
}

TEST(CudaCompile, SpillsAreCounted) {
  NEEDS_NVRTC();
  const auto result = compile_cuda_image(nvrtc(), cuda_image(spilling_source));
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_GT(resource(result, "spill_bytes"), 100);
  EXPECT_GT(resource(result, "stack_bytes"), 100);
  EXPECT_EQ(resource(result, "registers"), 32);
}

TEST(CudaCompile, LossesThatPtxasTellsAreCounted) {
  NEEDS_NVRTC();
  for (const auto& [source, code] : {std::pair{serialised_source, "(C7511)"}, {unbounded_source, "(C7508)"}}) {
    const auto result = compile_cuda_image(nvrtc(), cuda_image(source));
    ASSERT_TRUE(result.ok) << result.log;
    EXPECT_EQ(resource(result, "performance_losses"), 1) << result.log;
    EXPECT_EQ(resource(result, "spill_bytes"), 0);
    EXPECT_NE(result.log.find(code), std::string::npos) << result.log;
  }
}

TEST(CudaCompile, TellsWhatEachEntryTookInTheAssembler) {
  NEEDS_NVRTC();
  const auto result = compile_cuda_image(nvrtc(), cuda_image(small_source));
  ASSERT_TRUE(result.ok) << result.log;
  ASSERT_EQ(result.assembled.size(), 1u) << result.log;
  EXPECT_EQ(result.assembled[0].first, "fill");
  EXPECT_GT(result.assembled[0].second, 0);
  EXPECT_LT(result.assembled[0].second, 60);
}

TEST(CudaCompile, EntryTimesComeFromTheLogAlone) {
  const auto times = entry_times(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'fill' for 'sm_90a'\n"
      "ptxas info    : Used 8 registers, used 0 barriers\n"
      "ptxas info    : Compile time = 12.500 ms\n"
      "ptxas info    : Compiling entry function 'scale' for 'sm_90a'\n"
      "ptxas info    : Compile time = 1000.000 ms");
  EXPECT_EQ(times, (Stages{{"fill", 0.0125}, {"scale", 1.0}}));
  EXPECT_TRUE(entry_times("").empty());
  EXPECT_TRUE(entry_times("ptxas info    : Used 8 registers\n").empty());
}

TEST(CudaCompile, AFaultIsToldInTheCompilersWords) {
  NEEDS_NVRTC();
  const auto result = compile_cuda_image(nvrtc(), cuda_image("extern \"C\" __global__ void fill(float* p) { *p = nothing; }\n"));
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.transient);
  EXPECT_NE(result.log.find("source.cu(1): error: identifier \"nothing\" is undefined"), std::string::npos) << result.log;
}

TEST(CudaCompile, AnInstructionThatTheArchLacksIsAFault) {
  NEEDS_NVRTC();
  const std::string source = "extern \"C\" __global__ void fill() { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n";
  EXPECT_TRUE(compile_cuda_image(nvrtc(), cuda_image(source, "sm_90a")).ok);
  const auto result = compile_cuda_image(nvrtc(), cuda_image(source, "sm_120a"));
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.transient);
  EXPECT_NE(result.log.find("wgmma.fence"), std::string::npos) << result.log;
}

TEST(CudaCompile, ArchsThatNvrtcLacksAreNamed) {
  NEEDS_NVRTC();
  std::string why_not;
  for (const char* name : cuda_archs) EXPECT_TRUE(compiles_for(nvrtc(), cuda_arch(name), why_not)) << why_not;
  EXPECT_FALSE(compiles_for(nvrtc(), cuda_arch("sm_35"), why_not));
  EXPECT_NE(why_not.find("does not compile for sm_35; it does for "), std::string::npos) << why_not;
  EXPECT_FALSE(compiles_for(nvrtc(), cuda_arch("volta"), why_not));
  EXPECT_EQ(why_not, "'volta' is no CUDA arch: expected a name such as sm_80 or sm_90a");
}

TEST(CudaCompile, WithoutNvrtcThePlacesAreNamed) {
  const auto nowhere = load_nvrtc({"libnvrtc-of-no-machine.so", "/nowhere/lib64/libnvrtc.so.13"});
  EXPECT_FALSE(nowhere.found());
  EXPECT_EQ(
      nowhere.why_not,
      "no CUDA compiler (NVRTC): looked for libnvrtc-of-no-machine.so, /nowhere/lib64/libnvrtc.so.13. It is part of the CUDA toolkit 12 or "
      "13, looked for in $CUDA_HOME, $CUDA_PATH, on the loader's path, in toolkits that were added (ejk_add_toolkit) and in "
      "/usr/local/cuda*");
  std::string why_not;
  EXPECT_FALSE(compiles_for(nowhere, cuda_arch("sm_80"), why_not));
  EXPECT_EQ(why_not, nowhere.why_not);
  const auto result = compile_cuda_image(nowhere, cuda_image(small_source));
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.transient);
  EXPECT_EQ(result.log, nowhere.why_not);
}

TEST(CudaCompile, AnotherLibraryInItsPlaceIsNamed) {
  const auto other = load_nvrtc({"libc.so.6"});
  EXPECT_FALSE(other.found());
  EXPECT_NE(other.why_not.find("has no nvrtcVersion, "), std::string::npos) << other.why_not;
}

TEST(PtxasLog, TheMostDemandingEntryCounts) {
  const std::string log =
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'two' for 'sm_80'\n"
      "ptxas         .     624 bytes stack frame, 648 bytes spill stores, 696 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 0 barriers, 624 bytes cumulative stack size, 360 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'one' for 'sm_80'\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 90 registers, used 1 barriers, 1024 bytes smem, 360 bytes cmem[0]\n";
  const spec::Resources expected = {{"registers", 90},      {"spill_bytes", 1344}, {"stack_bytes", 624},
                                    {"shared_bytes", 1024}, {"code_bytes", 512},   {"performance_losses", 0}};
  EXPECT_EQ(resources_of(log, {80, 0, 0, 512}), expected);
}

TEST(PtxasLog, LossesOfAllEntriesAreAddedUp) {
  const std::string log =
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 63 by compiler to allow use of registers defined by GMMA in "
      "function 'a'\n"
      "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register "
      "resources for the wgmma pipeline in the function 'a'\n"
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.\n"
      "ptxas info    : Used 30 registers, used 0 barriers\n";
  const spec::Resources expected = {{"registers", 30},   {"spill_bytes", 0}, {"stack_bytes", 0},
                                    {"shared_bytes", 0}, {"code_bytes", 8},  {"performance_losses", 2}};
  EXPECT_EQ(resources_of(log, {90, 0, 0, 8}), expected);
}

}  // namespace
}  // namespace ejk::cuda
