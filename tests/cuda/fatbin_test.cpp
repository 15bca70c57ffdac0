// Fatbins, against CUDA's own tool where it is.
#include "backends/cuda/fatbin.hpp"

#include <cstdlib>
#include <cstring>

#include "cuda/cuda_image.hpp"
#include "cuda/hand_made_cubin.hpp"
#include "store/fixtures.hpp"

namespace ejk::cuda {
namespace {

TEST(Fatbin, HeaderAndMembersAddUp) {
  const auto first = hand_made_cubin(80), second = hand_made_cubin(90);
  const auto bytes = make_fatbin({{*parse_sm("sm_80"), first}, {*parse_sm("sm_90a"), second}});
  std::uint64_t rest = 0;
  std::memcpy(&rest, bytes.data() + 8, 8);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x50\xed\x55\xba\x01\x00\x10\x00", 8));
  EXPECT_EQ(rest, bytes.size() - 16);
  EXPECT_EQ(bytes.substr(16 + 64, first.size()), first);
  EXPECT_EQ(bytes.size() % 8, 0u);
  CubinFacts facts;
  EXPECT_EQ(read_cubin(bytes, facts), "it is a fatbin, a container of several cubins; expected one cubin");
}

std::string fatbinary_tool() {
  for (const std::string folder : {"/usr/local/cuda/bin", "/usr/bin"})
    if (store::fs::exists(folder + "/fatbinary")) return folder + "/fatbinary";
  return {};
}

TEST(Fatbin, IsWhatCudasToolWrites) {
  NEEDS_NVRTC();
  const auto tool = fatbinary_tool();
  if (tool.empty()) GTEST_SKIP() << "no fatbinary in /usr/local/cuda/bin or /usr/bin";
  const store::Folder folder;
  std::vector<FatbinMember> members;
  std::string command = tool + " -64 --create=" + (folder.path / "theirs").string();
  for (const std::string arch : cuda_archs) {
    const auto compiled = compile_cuda_image(nvrtc(), cuda_image(small_source, arch));
    ASSERT_TRUE(compiled.ok) << compiled.log;
    members.push_back({*parse_sm(arch), compiled.binary});
    store::spill(folder.path / (arch + ".cubin"), compiled.binary);
    command += " --image3=kind=elf,sm=" + arch.substr(3) + ",file=" + (folder.path / (arch + ".cubin")).string();
  }
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_TRUE(make_fatbin(members) == store::slurp(folder.path / "theirs"));
}

}  // namespace
}  // namespace ejk::cuda
