// Reading a cubin's header, sections and .nv.info, with every offset checked.
#include "backends/cubin.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ejk::cuda {
namespace {

constexpr std::uint16_t machine_cuda = 190;
constexpr std::uint32_t fatbin_magic = 0xba55ed50, nv_info = 0x70000000, nv_compat = 0x70000086;
constexpr unsigned first_wide_abi = 8;  // EI_ABIVERSION: from here on (CUDA 13) the SM is in bits 8 to 15 of e_flags, before in 0 to 7
constexpr std::uint8_t word_pair = 0x04, frame_size = 0x11, register_count = 0x2f;  // of .nv.info records

template <class T>
bool read_at(const std::string& bytes, std::uint64_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return true;
}

bool inside(const std::string& bytes, std::uint64_t offset, std::uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

int sm_of(const Elf64_Ehdr& header) {
  return static_cast<int>(header.e_ident[EI_ABIVERSION] >= first_wide_abi ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
}

std::string not_a_cubin(const std::string& bytes, const Elf64_Ehdr& header) {
  std::uint32_t magic = 0;
  if (read_at(bytes, 0, magic) && magic == fatbin_magic) return "it is a fatbin, a container of several cubins; expected one cubin";
  if (bytes.size() < sizeof header) return fmt::format("it has {} bytes, fewer than an ELF header: it is truncated", bytes.size());
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return "it is no 64-bit ELF file";
  if (header.e_machine != machine_cuda) return fmt::format("it is for ELF machine {}, expected {} (CUDA)", header.e_machine, machine_cuda);
  return {};
}

// Records of two words, symbol and value, among others: {format, attribute, size}, then the bytes.
void read_info(const std::string& bytes, const Elf64_Shdr& section, CubinFacts& facts) {
  struct Record {
    std::uint8_t format, attribute;
    std::uint16_t size;
  } record;
  const auto end = section.sh_offset + section.sh_size;
  for (auto at = section.sh_offset; at + sizeof record <= end;) {
    read_at(bytes, at, record);
    at += sizeof record;
    if (record.format != word_pair) continue;  // the other formats hold their value in `size`
    std::uint32_t value = 0;
    if (record.size >= 8 && at + 8 <= end) read_at(bytes, at + 4, value);
    if (record.attribute == register_count) facts.registers = std::max<std::int64_t>(facts.registers, value);
    if (record.attribute == frame_size) facts.stack_bytes = std::max<std::int64_t>(facts.stack_bytes, value);
    at += record.size;
  }
}

}  // namespace

std::string read_cubin(const std::string& bytes, CubinFacts& facts) {
  Elf64_Ehdr header{};
  read_at(bytes, 0, header);
  if (auto wrong = not_a_cubin(bytes, header); !wrong.empty()) return wrong;
  facts = {};
  facts.sm = sm_of(header);
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (header.e_shoff > bytes.size() || !read_at(bytes, header.e_shoff + i * sizeof section, section))
      return fmt::format("its section table ends beyond its {} bytes: it is truncated", bytes.size());
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
    if (!inside(bytes, section.sh_offset, section.sh_size))
      return fmt::format("section {} ends beyond its {} bytes: it is truncated", i, bytes.size());
    if (section.sh_flags & SHF_EXECINSTR) facts.code_bytes += static_cast<std::int64_t>(section.sh_size);
    if (section.sh_type == nv_info) read_info(bytes, section, facts);
  }
  if (facts.code_bytes == 0) return "it has no code";
  return {};
}

std::string compatibility_record(const std::string& bytes) {
  Elf64_Ehdr header{};
  read_at(bytes, 0, header);
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!read_at(bytes, header.e_shoff + i * sizeof section, section)) break;
    if (section.sh_type == nv_compat && inside(bytes, section.sh_offset, section.sh_size))
      return bytes.substr(section.sh_offset, section.sh_size);
  }
  return {};
}

}  // namespace ejk::cuda
