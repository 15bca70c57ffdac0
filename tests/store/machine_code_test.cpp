// The hash of a shared object's machine code: what leaves it as it is, what changes it, and files that are none or lie.
#include "backends/machine_code.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace ejk::machine_code_test {
namespace {

namespace fs = std::filesystem;

// A kernel with all that a shared object's run depends on: code, a table, a function from elsewhere, a pointer to relocate, memory of its
// own.
constexpr char plain_source[] = R"(
#define PUBLIC extern "C" __attribute__((visibility("default")))
extern "C" double sin(double);
extern "C" double cos(double);
static const double weights[5] = {1.5, 2.5, 3.5, 4.5, 5.5};
static long calls[4];
static double twice(double value) { return 2 * value; }
static double thrice(double value) { return 3 * value; }
static double (*volatile chosen[2])(double) = {twice, thrice};
PUBLIC void ejk_fill(double* out, long n) {
  for (long i = 0; i < n; ++i) {
    const double angle = weights[i % 5] * out[i];
    out[i] = sin(angle) + chosen[i & 1](angle);
  }
  ++calls[n & 3];
}
PUBLIC void ejk_drain(double* out, long n) { out[n] = cos(out[n]); }
)";

std::string with(std::string text, const std::vector<std::pair<std::string, std::string>>& changes) {
  for (const auto& [from, to] : changes) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  }
  return text;
}

class MachineCode : public ::testing::Test {
 protected:
  MachineCode() {
    char pattern[] = "/tmp/ejk-code-XXXXXX";
    folder = mkdtemp(pattern);
  }
  ~MachineCode() override { fs::remove_all(folder); }

  std::string binary(const std::string& source, const std::string& flags = "-g0", const std::string& below = ".",
                     const std::string& file = "source.cpp") const {
    const auto place = folder / below;
    fs::create_directories(place);
    std::ofstream(place / file) << source;
    const auto command = "cd " + place.string() + " && c++ -std=c++20 -O2 -fPIC -shared -fno-builtin -fvisibility=hidden -o binary.so " +
                         flags + " " + (place / file).string() + " > log 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << source;
    std::ifstream stream(place / "binary.so", std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  static std::string hash(const std::string& binary) {
    std::string why_not;
    auto result = machine_code_hash(binary, why_not);
    EXPECT_EQ(why_not, "");
    EXPECT_EQ(result.size(), 16U);
    return result;
  }

  fs::path folder;
};

// The lines of one kind, to see that a change is where the test means it.
std::string lines_of(const std::string& binary, const std::string& beginning) {
  std::istringstream stream(machine_code_lines(binary));
  std::string line, found;
  while (std::getline(stream, line))
    if (line.starts_with(beginning)) found += line + "\n";
  EXPECT_NE(found, "") << beginning;
  return found;
}

std::string refusal(const std::string& binary) {
  std::string why_not;
  EXPECT_EQ(machine_code_hash(binary, why_not), "");
  return why_not;
}

TEST_F(MachineCode, StaysAsItIsWhatNeverRuns) {
  const auto plain = binary(plain_source);
  const auto expected = hash(plain);
  EXPECT_EQ(hash(binary(plain_source, "-g0", "another/folder/with/a/longer/name", "another_name.cpp")), expected) << "its place";
  EXPECT_EQ(hash(binary(plain_source, "-g3")), expected) << "debug information";
  EXPECT_EQ(hash(binary(plain_source, "-g0 -Wl,--build-id=0x0123456789abcdef0123456789abcdef")), expected) << "a build id";
  EXPECT_EQ(hash(binary(plain_source, "-s")), expected) << "no symbol table";
  EXPECT_EQ(hash(binary(with(plain_source, {{"angle", "turned_by"}, {"weights", "w"}, {"twice", "doubled_value"}}))), expected) << "names";
  EXPECT_EQ(hash(binary("// A comment.\n\n\n" + std::string(plain_source))), expected) << "lines";
  EXPECT_NE(binary(plain_source, "-g3"), plain);
}

TEST_F(MachineCode, ChangesWithTheCode) {
  const auto plain = binary(plain_source);
  EXPECT_NE(hash(binary(with(plain_source, {{"i % 5", "(i + 1) % 5"}}))), hash(plain));
  EXPECT_NE(hash(binary(plain_source, "-O1")), hash(plain));
}

TEST_F(MachineCode, ChangesWithTheDataThatTheCodeReads) {
  const auto plain = binary(plain_source), changed = binary(with(plain_source, {{"3.5", "3.75"}}));
  EXPECT_EQ(lines_of(changed, "section .text "), lines_of(plain, "section .text "));
  EXPECT_NE(hash(changed), hash(plain));
  EXPECT_NE(hash(binary(with(plain_source, {{"calls[4]", "calls[8]"}}))), hash(plain)) << "memory of another size";
}

TEST_F(MachineCode, ChangesWithTheFunctionThatACallReaches) {
  // One import each, so that both have the same slot.
  const auto plain = binary(with(plain_source, {{"cos(", "sin("}})), changed = binary(with(plain_source, {{"sin(", "cos("}}));
  EXPECT_EQ(lines_of(changed, "section .text "), lines_of(plain, "section .text "));
  EXPECT_NE(hash(changed), hash(plain));
}

TEST_F(MachineCode, ChangesWithWhatAPointerLeadsTo) {
  const auto plain = binary(plain_source), changed = binary(with(plain_source, {{"{twice, thrice}", "{thrice, twice}"}}));
  EXPECT_EQ(lines_of(changed, "section .text "), lines_of(plain, "section .text "));
  EXPECT_NE(hash(changed), hash(plain));
}

TEST_F(MachineCode, ChangesWithTheEntryThatANameLeadsTo) {
  const auto plain = binary(plain_source);
  const auto changed = binary(with(plain_source, {{"ejk_fill", "ejk_other"}, {"ejk_drain", "ejk_fill"}, {"ejk_other", "ejk_drain"}}));
  EXPECT_EQ(lines_of(changed, "section .text "), lines_of(plain, "section .text "));
  EXPECT_NE(hash(changed), hash(plain));
}

TEST_F(MachineCode, IsNotToldOfOtherFiles) {
  EXPECT_EQ(refusal(""), "it is no 64-bit ELF file");
  EXPECT_EQ(refusal(std::string(4096, 'x')), "it is no 64-bit ELF file");
  const auto whole = binary(plain_source, "-s");
  EXPECT_EQ(refusal(whole.substr(0, sizeof(Elf64_Ehdr))), "its section table ends beyond its 64 bytes: it is truncated");
  auto without = whole;
  const std::uint16_t none = 0;
  std::memcpy(without.data() + offsetof(Elf64_Ehdr, e_shnum), &none, sizeof none);
  std::memcpy(without.data() + offsetof(Elf64_Ehdr, e_shstrndx), &none, sizeof none);
  EXPECT_EQ(refusal(without), "it has no code");
}

TEST_F(MachineCode, EveryTruncationIsRefused) {
  const auto whole = binary(plain_source, "-s");
  for (std::size_t size = 0; size < whole.size(); size += size < 256 ? 1 : 61) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

// Any byte may be anything: a hash or a sentence, no read outside the bytes (under sanitizers), no work without end.
TEST_F(MachineCode, DamagedFilesAreReadSafely) {
  const auto whole = binary(plain_source, "-s");
  const char* seed = std::getenv("EJK_SEED");
  std::mt19937 random(seed ? static_cast<unsigned>(std::atoi(seed)) : 1U);
  const auto table = whole.size() - (whole.size() < 4096 ? whole.size() : 4096);  // the section table is last
  for (int round = 0; round < 3000; ++round) {
    auto bytes = whole;
    for (int i = 0; i < 1 + round % 4; ++i)
      bytes[(round % 2 ? table : 0) + random() % (whole.size() - (round % 2 ? table : 0))] = static_cast<char>(random());
    std::string why_not;
    const auto result = machine_code_hash(bytes, why_not);
    EXPECT_EQ(result.size(), why_not.empty() ? 16U : 0U) << round;
  }
}

// An ELF file whose tables claim more than there is.
class LyingElf {
 public:
  explicit LyingElf(std::uint16_t sections) : headers(sections) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_shnum = sections;
  }
  std::string bytes(const std::string& contents) {
    header.e_shoff = sizeof header + contents.size();
    std::string all(reinterpret_cast<const char*>(&header), sizeof header);
    all += contents;
    all.append(reinterpret_cast<const char*>(headers.data()), headers.size() * sizeof(Elf64_Shdr));
    return all;
  }
  void set(std::size_t index, std::uint32_t type, std::uint64_t size, std::uint32_t link = 0) {
    headers[index] = {};
    headers[index].sh_type = type;
    headers[index].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
    headers[index].sh_offset = sizeof header;
    headers[index].sh_size = size;
    headers[index].sh_link = link;
  }
  Elf64_Ehdr header{};
  std::vector<Elf64_Shdr> headers;
};

TEST(HostileElf, SectionsThatShareTheirBytesAreNotReadForEach) {
  LyingElf elf(60000);
  for (std::size_t i = 0; i < elf.headers.size(); ++i) elf.set(i, SHT_PROGBITS, 4 << 20);
  const auto bytes = elf.bytes(std::string(4 << 20, 'x'));
  EXPECT_EQ(refusal(bytes), "its sections have more than 2 times its " + std::to_string(bytes.size()) + " bytes");
}

TEST(HostileElf, ATableThatAllRelocationsLinkToIsReadOnce) {
  LyingElf elf(60000);
  const std::size_t symbols = 24 << 16;
  for (std::size_t i = 0; i < elf.headers.size(); ++i) elf.set(i, SHT_RELA, sizeof(Elf64_Rela), 1);
  elf.set(1, SHT_DYNSYM, symbols, 2);
  elf.set(2, SHT_PROGBITS, 16);
  std::string why_not;
  EXPECT_EQ(machine_code_hash(elf.bytes(std::string(symbols, '\0')), why_not).size(), 16U) << why_not;
}

TEST(HostileElf, NamesWithoutEndAndTablesOfOtherSizesAreRefused) {
  LyingElf elf(3);
  elf.set(0, SHT_NULL, 0);
  elf.set(1, SHT_PROGBITS, 1024);
  elf.set(2, SHT_PROGBITS, 1024);
  elf.header.e_shstrndx = 1;
  EXPECT_EQ(refusal(elf.bytes(std::string(1024, 'x'))), "a name has no end within 512 bytes");
  elf.header.e_shstrndx = 9;
  EXPECT_EQ(refusal(elf.bytes(std::string(1024, 'x'))), "it names section 9 of 3");
  elf.header.e_shstrndx = 0;
  elf.set(2, SHT_RELA, 1000, 1);
  EXPECT_EQ(refusal(elf.bytes(std::string(1024, '\0'))), "section  has 1000 bytes, no multiple of an entry's 24");
}

}  // namespace
}  // namespace ejk::machine_code_test
