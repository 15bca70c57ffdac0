// Reading a cubin's header, sections and .nv.info.
#include "backends/cuda/cubin.hpp"

#include <algorithm>

#include "backends/gpu/elf_sections.hpp"

namespace ejk::cuda {
namespace {

constexpr std::uint16_t machine_cuda = 190;
constexpr std::uint32_t fatbin_magic = 0xba55ed50, nv_info = 0x70000000, nv_compat = 0x70000086;
constexpr unsigned first_wide_abi = 8;  // EI_ABIVERSION: from here on (CUDA 13) the SM is in bits 8 to 15 of e_flags, before in 0 to 7
constexpr std::uint8_t word_pair = 0x04, frame_size = 0x11, register_count = 0x2f;  // of .nv.info records

int sm_of(const Elf64_Ehdr& header) {
  return static_cast<int>(header.e_ident[EI_ABIVERSION] >= first_wide_abi ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
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
  std::uint32_t magic = 0;
  if (read_at(bytes, 0, magic) && magic == fatbin_magic) return "it is a fatbin, a container of several cubins; expected one cubin";
  Elf64_Ehdr header{};
  if (auto wrong = read_header(bytes, machine_cuda, "CUDA", header); !wrong.empty()) return wrong;
  facts = {};
  facts.sm = sm_of(header);
  return read_sections(bytes, header, facts.code_bytes, [&](const Elf64_Shdr& section) {
    if (section.sh_type == nv_info) read_info(bytes, section, facts);
  });
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
