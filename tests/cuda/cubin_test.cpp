// Reading cubins: whole ones, and every way of being something else.
#include "backends/cuda/cubin.hpp"

#include <elf.h>

#include <cstring>

#include "cuda/hand_made_cubin.hpp"

namespace ejk::cuda {
namespace {

std::string wrong_with(const std::string& bytes) {
  CubinFacts facts;
  return read_cubin(bytes, facts);
}

TEST(Cubin, FactsAreRead) {
  CubinFacts facts;
  ASSERT_EQ(read_cubin(hand_made_cubin(90), facts), "");
  EXPECT_EQ(facts.sm, 90);
  EXPECT_EQ(facts.code_bytes, 64);
  EXPECT_EQ(facts.registers, 40);
  EXPECT_EQ(facts.stack_bytes, 16);
}

TEST(Cubin, OlderLayoutsHaveTheArchElsewhere) {
  auto bytes = hand_made_cubin(0);
  bytes[EI_ABIVERSION] = 7;
  const std::uint32_t flags = 0x00500550;  // virtual and real arch 80
  std::memcpy(bytes.data() + offsetof(Elf64_Ehdr, e_flags), &flags, sizeof flags);
  CubinFacts facts;
  ASSERT_EQ(read_cubin(bytes, facts), "");
  EXPECT_EQ(facts.sm, 80);
}

TEST(Cubin, OtherFilesAreToldApart) {
  EXPECT_EQ(wrong_with(""), "it has 0 bytes, fewer than an ELF header: it is truncated");
  EXPECT_EQ(wrong_with(std::string("\x50\xed\x55\xba", 4) + std::string(100, '\0')),
            "it is a fatbin, a container of several cubins; expected one cubin");
  EXPECT_EQ(wrong_with(std::string(100, 'x')), "it is no 64-bit ELF file");
  auto host = hand_made_cubin(90);
  host[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  EXPECT_EQ(wrong_with(host), "it is for ELF machine 62, expected 190 (CUDA)");
}

TEST(Cubin, EveryTruncationIsSeen) {
  const auto whole = hand_made_cubin(90);
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(wrong_with(whole.substr(0, size)), "") << size;
}

// Any byte may be anything: no read leaves the bytes (under sanitizers), whatever the answer is.
TEST(Cubin, CorruptedBytesAreReadSafely) {
  const auto whole = hand_made_cubin(90);
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char value : {'\0', '\x7f', '\xff'}) {
      auto bytes = whole;
      bytes[at] = value;
      CubinFacts facts;
      (void)read_cubin(bytes, facts);
      EXPECT_GE(facts.code_bytes, 0);
    }
}

}  // namespace
}  // namespace ejk::cuda
