// An image's entries compiled apart: the same code as together, one binary; and archives of cubins, whole and damaged.
#include "backends/cuda/cuda_parts.hpp"

#include <algorithm>
#include <sstream>

#include "backends/cuda/cubin_archive.hpp"
#include "backends/machine_code.hpp"
#include "cuda/cuda_image.hpp"

namespace ejk::cuda {
namespace {

const std::string two_entries =
    "#define KERNEL(THREADS, BLOCKS) extern \"C\" __global__ void __launch_bounds__(THREADS, BLOCKS)\n"
    "// KERNEL(threads, blocks) name(parameters)\n"
    "constexpr float factors[4] = {1, 3, 5, 7};\n"
    "KERNEL((2 * (64)), 1) fill(float* out, int n) { out[threadIdx.x] = factors[n]; }\n"
    "KERNEL(256, 2) turn(float* out) {\n"
    "  __shared__ float row[256];\n"
    "  row[threadIdx.x] = out[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  out[threadIdx.x] = row[255 - threadIdx.x] * factors[threadIdx.x % 4];\n"
    "}\n";

std::vector<std::string> code_of(const std::string& binary) {
  std::vector<std::string> lines;
  std::istringstream all(machine_code_lines(binary));
  for (std::string line; std::getline(all, line);)
    if (line.find(".nv.shared") == std::string::npos) lines.push_back(line);
  return lines;
}

std::int64_t resource_of(const CompileResult& result, const std::string& name) {
  for (const auto& [each, value] : result.resources)
    if (each == name) return value;
  return -1;
}

TEST(CudaParts, ASourceOnceForEachEntry) {
  const auto sources = sources_by_entry(two_entries);
  ASSERT_EQ(sources.size(), 2u);
  const std::string fill = "\nKERNEL((2 * (64)), 1) fill(", turn = "\nKERNEL(256, 2) turn(";
  const std::string no_fill = "\ntemplate <int> static __global__ void __launch_bounds__((2 * (64)), 1) fill(";
  const std::string no_turn = "\ntemplate <int> static __global__ void __launch_bounds__(256, 2) turn(";
  const auto has = [](const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; };
  EXPECT_TRUE(has(sources[0], fill) && has(sources[0], no_turn) && !has(sources[0], turn)) << sources[0];
  EXPECT_TRUE(has(sources[1], turn) && has(sources[1], no_fill) && !has(sources[1], fill)) << sources[1];
  for (const auto& source : sources) EXPECT_EQ(std::ranges::count(source, '\n'), std::ranges::count(two_entries, '\n'));
}

TEST(CudaParts, OtherSourcesStayWhole) {
  EXPECT_TRUE(sources_by_entry("").empty());
  EXPECT_TRUE(sources_by_entry(small_source).empty());
  EXPECT_TRUE(sources_by_entry("\nKERNEL(1, 1) one() {}\n").empty());
  EXPECT_TRUE(sources_by_entry("\nKERNEL(1, 1) one() {}\nKERNEL((1, 1) two() {}\n").empty());
}

TEST(CudaParts, CompiledApartTheCodeIsTheSame) {
  NEEDS_NVRTC();
  const auto image = cuda_image(two_entries);
  const auto whole = compile_cuda_image(nvrtc(), image), parts = compile_cuda_parts(nvrtc(), image);
  ASSERT_TRUE(whole.ok) << whole.log;
  ASSERT_TRUE(parts.ok) << parts.log;
  std::string why_not;
  const auto cubins = cubins_of(parts.binary, why_not);
  ASSERT_EQ(cubins.size(), 2u) << why_not;
  auto code = code_of(cubins[0]), more = code_of(cubins[1]);
  EXPECT_NE(code, more);
  code.insert(code.end(), more.begin(), more.end());
  std::ranges::sort(code);
  code.erase(std::unique(code.begin(), code.end()), code.end());
  EXPECT_EQ(code, code_of(whole.binary));
  for (const char* name : {"registers", "spill_bytes", "stack_bytes", "code_bytes", "performance_losses", "shared_bytes"})
    EXPECT_EQ(resource_of(parts, name), resource_of(whole, name)) << name;
  EXPECT_EQ(parts.compiler, whole.compiler);
  EXPECT_EQ(parts.command, whole.command);
  ASSERT_EQ(parts.assembled.size(), 2u);
  EXPECT_EQ(parts.assembled[0].first, "fill");
  EXPECT_EQ(parts.assembled[1].first, "turn");
  EXPECT_EQ(compile_cuda_parts(nvrtc(), image).binary, parts.binary) << "the same source, other bytes";
}

TEST(CudaParts, OneEntryIsOneCubin) {
  NEEDS_NVRTC();
  const auto image = cuda_image(small_source);
  EXPECT_EQ(compile_cuda_parts(nvrtc(), image).binary, compile_cuda_image(nvrtc(), image).binary);
}

TEST(CudaParts, AFaultInOneIsToldInTheCompilersWords) {
  NEEDS_NVRTC();
  auto source = two_entries;
  source.replace(source.find("out[threadIdx.x] = row"), 3, "off");
  const auto result = compile_cuda_parts(nvrtc(), cuda_image(source));
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.transient);
  EXPECT_NE(result.log.find("source.cu(9): error: identifier \"off\" is undefined"), std::string::npos) << result.log;
}

TEST(CubinArchive, WhatWasJoinedComesApart) {
  const std::vector<std::string> cubins = {"one", "", std::string("\0even", 5), "!<arch>\n"};
  std::string why_not;
  EXPECT_EQ(cubins_of(join_cubins(cubins), why_not), cubins);
  EXPECT_EQ(cubins_of("no archive", why_not), std::vector<std::string>{"no archive"});
  EXPECT_EQ(cubins_of("", why_not), std::vector<std::string>{""});
  EXPECT_EQ(why_not, "");
}

TEST(CubinArchive, DamageIsNamed) {
  const auto whole = join_cubins({"one", "other"});
  const auto wrong = [](const std::string& bytes) {
    std::string why_not;
    EXPECT_TRUE(cubins_of(bytes, why_not).empty()) << bytes;
    return why_not;
  };
  EXPECT_EQ(wrong(whole.substr(0, 8)), "the archive has no cubin");
  EXPECT_EQ(wrong(whole.substr(0, 40)), "cubin 0 of the archive has no header");
  EXPECT_EQ(wrong(whole.substr(0, 80)), "cubin 1 of the archive has no header");
  EXPECT_EQ(wrong(whole.substr(0, whole.size() - 2)), "cubin 1 of the archive is to have '5         ' bytes; there are 4");
  for (const char* size : {"99        ", "-1        ", "3x        ", "          ", "9999999999"}) {
    auto other = whole;
    EXPECT_NE(wrong(other.replace(8 + 48, 10, size)).find("cubin 0 of the archive is to have '" + std::string(size)), std::string::npos);
  }
}

}  // namespace
}  // namespace ejk::cuda
