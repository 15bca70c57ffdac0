// The hash of a cubin's machine code, of what NVRTC makes.
#include "backends/machine_code.hpp"

#include "cuda/cuda_image.hpp"
#include "cuda/hand_made_cubin.hpp"

namespace ejk::cuda {
namespace {

// With a table that the code reads through the constant bank's addresses.
const std::string tabled_source =
    "__device__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};\n"
    "extern \"C\" __global__ void __launch_bounds__(128) look(float* out, int n) { out[threadIdx.x] = table[(threadIdx.x + n) & 3]; }\n";

std::string changed(std::string source, const std::string& from, const std::string& to) {
  for (auto at = source.find(from); at != std::string::npos; at = source.find(from, at + to.size())) source.replace(at, from.size(), to);
  return source;
}

std::string code_of(const std::string& source, const std::string& arch, std::vector<std::string> flags = {}) {
  auto image = cuda_image(source, arch);
  image.flags = std::move(flags);
  const auto result = compile_cuda_image(nvrtc(), image);
  EXPECT_TRUE(result.ok) << result.log;
  return machine_code_lines(result.binary);
}

class CudaMachineCode : public testing::TestWithParam<const char*> {};

TEST_P(CudaMachineCode, IsWhatRuns) {
  NEEDS_NVRTC();
  const auto plain = code_of(small_source, GetParam());
  EXPECT_NE(plain.find("section .text.fill "), std::string::npos) << plain;
  EXPECT_NE(plain.find("section .nv.constant0.fill "), std::string::npos) << plain;
  EXPECT_NE(plain.find("registers .text.fill "), std::string::npos) << plain;
  EXPECT_NE(plain.find("section .nv.shared.fill "), std::string::npos) << plain;
  EXPECT_EQ(code_of(changed(small_source, "row", "line_of_values"), GetParam()), plain) << "a local name";
  EXPECT_EQ(code_of(changed(small_source, "out", "destination"), GetParam()), plain) << "a parameter's";
  EXPECT_EQ(code_of("\n// A comment.\n" + small_source, GetParam(), {"--generate-line-info"}), plain);
  EXPECT_NE(code_of(changed(small_source, "127 -", "126 -"), GetParam()), plain);
  EXPECT_NE(code_of(changed(small_source, "fill", "refill"), GetParam()), plain) << "an entry's name";
}

TEST_P(CudaMachineCode, HasTheDataThatTheCodeReads) {
  NEEDS_NVRTC();
  const auto text_of = [](const std::string& lines) {
    const auto at = lines.find("section .text.look ");
    return lines.substr(at, lines.find('\n', at) - at);
  };
  const auto plain = code_of(tabled_source, GetParam()), other = code_of(changed(tabled_source, "3.0f", "3.5f"), GetParam());
  EXPECT_EQ(text_of(other), text_of(plain));
  EXPECT_NE(other, plain) << "another table";
}

INSTANTIATE_TEST_SUITE_P(Archs, CudaMachineCode, testing::Values("sm_80", "sm_90a", "sm_120a"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CudaMachineCodeOf, DamagedFilesIsAHashOrASentence) {
  const auto whole = hand_made_cubin(90);
  std::string why_not;
  EXPECT_EQ(machine_code_hash(whole, why_not).size(), 16U) << why_not;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char value : {'\0', '\x7f', '\xff'}) {
      auto bytes = whole;
      bytes[at] = value;
      why_not.clear();
      const auto hash = machine_code_hash(bytes, why_not);
      EXPECT_EQ(hash.empty(), !why_not.empty());
    }
}

}  // namespace
}  // namespace ejk::cuda
