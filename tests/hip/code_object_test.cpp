// Reading code objects: whole ones, and every way of being something else.
#include "backends/hip/code_object.hpp"

#include <gtest/gtest.h>

#include "hip/hand_made_code_object.hpp"

namespace ejk::hip {
namespace {

std::string wrong_with(const std::string& bytes) {
  CodeObjectFacts facts;
  return read_code_object(bytes, facts);
}

TEST(CodeObject, FactsAreRead) {
  CodeObjectFacts facts;
  ASSERT_EQ(read_code_object(hand_made_code_object(), facts), "");
  EXPECT_EQ(facts.arch, "gfx90a");
  EXPECT_EQ(facts.kernels, std::vector<std::string>({"fill"}));
  EXPECT_EQ(facts.vgprs, 40);
  EXPECT_EQ(facts.agprs, 8);
  EXPECT_EQ(facts.sgprs, 20);
  EXPECT_EQ(facts.spill_bytes, 12);
  EXPECT_EQ(facts.stack_bytes, 16);
  EXPECT_EQ(facts.shared_bytes, 1024);
  EXPECT_EQ(facts.wave_size, 64);
  EXPECT_EQ(facts.code_bytes, 64);
}

TEST(CodeObject, FeaturesAreNoPartOfTheArch) {
  CodeObjectFacts facts;
  ASSERT_EQ(read_code_object(hand_made_code_object("gfx90a:sramecc+:xnack-"), facts), "");
  EXPECT_EQ(facts.arch, "gfx90a");
}

TEST(CodeObject, OtherFilesAreToldApart) {
  EXPECT_EQ(wrong_with(""), "it has 0 bytes, fewer than an ELF header: it is truncated");
  EXPECT_EQ(wrong_with("__CLANG_OFFLOAD_BUNDLE__" + std::string(100, '\0')),
            "it is an offload bundle, a container of code objects for several archs; expected one code object (clang: "
            "--no-gpu-bundle-output)");
  EXPECT_EQ(wrong_with(std::string(100, 'x')), "it is no 64-bit ELF file");
  auto host = hand_made_code_object();
  host[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  EXPECT_EQ(wrong_with(host), "it is for ELF machine 62, expected 224 (AMD GPUs)");
  EXPECT_EQ(wrong_with(hand_made_code_object("gfx942")), "its header is for gfx90a, its metadata for gfx942");
}

TEST(CodeObject, EveryTruncationIsSeen) {
  const auto whole = hand_made_code_object();
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(wrong_with(whole.substr(0, size)), "") << size;
}

// Any byte may be anything: no read leaves the bytes (under sanitizers), whatever the answer is.
TEST(CodeObject, CorruptedBytesAreReadSafely) {
  const auto whole = hand_made_code_object();
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char value : {'\0', '\x7f', '\x91', '\xdd', '\xff'}) {
      auto bytes = whole;
      bytes[at] = value;
      CodeObjectFacts facts;
      (void)read_code_object(bytes, facts);
      EXPECT_GE(facts.code_bytes, 0);
    }
}

TEST(CodeObject, NestedMetadataDoesNotUseUpTheStack) {
  auto bytes = hand_made_code_object();
  const std::string lists(1 << 20, '\x91');  // each the one element of the one before
  Elf64_Nhdr note{7, static_cast<Elf64_Word>(lists.size()), 32};
  Elf64_Shdr section{};
  section.sh_type = SHT_NOTE;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  section.sh_offset = bytes.size();
  append(bytes, note);
  bytes.append("AMDGPU\0\0", 8);
  bytes += lists;
  section.sh_size = bytes.size() - section.sh_offset;
  std::memcpy(bytes.data() + header.e_shoff + 2 * sizeof section, &section, sizeof section);
  EXPECT_EQ(wrong_with(bytes), "its metadata note is no msgpack");
}

}  // namespace
}  // namespace ejk::hip
