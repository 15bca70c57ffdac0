// A cubin of one entry, byte by byte, as NVRTC 13 lays it out: header, code, .nv.info, section table.
#pragma once
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace ejk::cuda {

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string hand_made_cubin(unsigned sm) {
  constexpr std::size_t code_bytes = 64;
  std::string info;
  for (const auto& [attribute, value] : {std::pair<std::uint8_t, std::uint32_t>{0x2f, 40}, {0x11, 16}}) {
    append(info, std::uint8_t{4});
    append(info, attribute);
    append(info, std::uint16_t{8});
    append(info, std::uint32_t{1});  // symbol
    append(info, value);
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 65;
  header.e_ident[EI_ABIVERSION] = 8;
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_flags = 0x06000004 | sm << 8;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shoff = sizeof header + code_bytes + info.size();
  Elf64_Shdr none{}, code{}, facts{};
  code.sh_type = SHT_PROGBITS;
  code.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  code.sh_offset = sizeof header;
  code.sh_size = code_bytes;
  facts.sh_type = 0x70000000;
  facts.sh_offset = sizeof header + code_bytes;
  facts.sh_size = info.size();
  std::string bytes;
  append(bytes, header);
  bytes += std::string(code_bytes, '\x01') + info;
  for (const auto& section : {none, code, facts}) append(bytes, section);
  return bytes;
}

}  // namespace ejk::cuda
