// The hash of a code object's machine code, of what clang makes.
#include "backends/machine_code.hpp"

#include "hip/hand_made_code_object.hpp"
#include "hip/hip_image.hpp"

namespace ejk::hip {
namespace {

std::string lines_of(std::string source, const std::string& from, const std::string& to, const std::string& arch,
                     std::vector<std::string> flags = {}) {
  for (auto at = source.find(from); !from.empty() && at != std::string::npos; at = source.find(from, at + to.size()))
    source.replace(at, from.size(), to);
  auto image = hip_image(source, arch);
  image.flags = std::move(flags);
  const auto result = compile_with_clang(*clang_for(arch), image);
  EXPECT_TRUE(result.ok) << result.log;
  return machine_code_lines(result.binary);
}

class HipMachineCode : public ::testing::TestWithParam<const char*> {};

TEST_P(HipMachineCode, IsWhatRuns) {
  const std::string arch = GetParam();
  NEEDS_CLANG(arch);
  const auto plain = lines_of(small_source, "", "", arch);
  EXPECT_NE(plain.find("entry fill .text+0x0\n"), std::string::npos) << plain;
  EXPECT_NE(plain.find("entry fill.kd .rodata+0x0\n"), std::string::npos) << plain;
  EXPECT_EQ(lines_of(small_source, "row", "line_of_values", arch), plain) << "a local name";
  EXPECT_EQ(lines_of(small_source, "out", "a_parameter_with_a_name_that_moves_all_behind_the_metadata", arch), plain);
  EXPECT_EQ(lines_of(small_source, "  int i", "\n\n  // A comment.\n  int i", arch, {"-gline-tables-only"}), plain);
  EXPECT_NE(lines_of(small_source, "127 - i", "126 - i", arch), plain);
  EXPECT_NE(lines_of(small_source, "fill", "refill", arch), plain) << "an entry's name";
}

TEST_P(HipMachineCode, HasTheKernelDescriptors) {
  const std::string arch = GetParam();
  NEEDS_CLANG(arch);
  const auto section = [](const std::string& lines, const std::string& name) {
    const auto at = lines.find("section " + name + " ");
    return lines.substr(at, lines.find('\n', at) - at);
  };
  const auto plain = lines_of(small_source, "", "", arch), more = lines_of(small_source, "row[256]", "row[512]", arch);
  EXPECT_EQ(section(more, ".text"), section(plain, ".text")) << "shared memory of another size is not seen in the code";
  EXPECT_NE(section(more, ".rodata"), section(plain, ".rodata")) << "but in the descriptor";
}

INSTANTIATE_TEST_SUITE_P(Archs, HipMachineCode, ::testing::ValuesIn(hip_archs), [](const auto& info) { return std::string(info.param); });

TEST(HipMachineCodeOf, DamagedFilesIsAHashOrASentence) {
  const auto whole = hand_made_code_object();
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char value : {'\0', '\x7f', '\xff'}) {
      auto bytes = whole;
      bytes[at] = value;
      std::string why_not;
      const auto hash = machine_code_hash(bytes, why_not);
      EXPECT_EQ(hash.empty(), !why_not.empty());
    }
}

}  // namespace
}  // namespace ejk::hip
