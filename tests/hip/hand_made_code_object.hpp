// A code object of one kernel, byte by byte, as clang lays it out: header, code, metadata note, section table.
#pragma once
#include <elf.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

namespace ejk::hip {

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// machine: EF_AMDGPU_MACH of the header, 0x3f for gfx90a; arch: what the metadata says.
inline std::string hand_made_code_object(const std::string& arch = "gfx90a", unsigned machine = 0x3f, const std::string& kernel = "fill") {
  constexpr std::size_t code_bytes = 64;
  const nlohmann::json metadata = {{"amdhsa.target", "amdgcn-amd-amdhsa--" + arch},
                                   {"amdhsa.kernels",
                                    {{{".name", kernel},
                                      {".vgpr_count", 40},
                                      {".agpr_count", 8},
                                      {".sgpr_count", 20},
                                      {".vgpr_spill_count", 3},
                                      {".private_segment_fixed_size", 16},
                                      {".group_segment_fixed_size", 1024},
                                      {".wavefront_size", 64}}}}};
  const auto packed = nlohmann::json::to_msgpack(metadata);
  std::string note;
  append(note, Elf64_Nhdr{7, static_cast<Elf64_Word>(packed.size()), 32});
  note.append("AMDGPU\0\0", 8);
  note.append(packed.begin(), packed.end());
  note.resize((note.size() + 3) / 4 * 4);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 64;
  header.e_type = ET_DYN;
  header.e_machine = 224;
  header.e_flags = machine;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shoff = sizeof header + code_bytes + note.size();
  Elf64_Shdr none{}, code{}, notes{};
  code.sh_type = SHT_PROGBITS;
  code.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  code.sh_offset = sizeof header;
  code.sh_size = code_bytes;
  notes.sh_type = SHT_NOTE;
  notes.sh_offset = sizeof header + code_bytes;
  notes.sh_size = note.size();
  std::string bytes;
  append(bytes, header);
  bytes += std::string(code_bytes, '\x01') + note;
  for (const auto& section : {none, code, notes}) append(bytes, section);
  return bytes;
}

}  // namespace ejk::hip
