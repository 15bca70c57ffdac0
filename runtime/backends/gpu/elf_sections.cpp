// Reading ELF headers and sections.
#include "backends/gpu/elf_sections.hpp"

#include <fmt/format.h>

namespace ejk {

bool inside(const std::string& bytes, std::uint64_t offset, std::uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

bool is_elf64(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64;
}

std::string read_header(const std::string& bytes, std::uint16_t machine, const char* name, Elf64_Ehdr& header) {
  if (!read_at(bytes, 0, header)) return fmt::format("it has {} bytes, fewer than an ELF header: it is truncated", bytes.size());
  if (!is_elf64(header)) return "it is no 64-bit ELF file";
  if (header.e_machine != machine) return fmt::format("it is for ELF machine {}, expected {} ({})", header.e_machine, machine, name);
  return {};
}

std::string read_sections(const std::string& bytes, const Elf64_Ehdr& header, std::int64_t& code_bytes,
                          const std::function<void(const Elf64_Shdr&)>& show) {
  code_bytes = 0;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    if (header.e_shoff > bytes.size() || !read_at(bytes, header.e_shoff + i * sizeof section, section))
      return fmt::format("its section table ends beyond its {} bytes: it is truncated", bytes.size());
    if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
    if (!inside(bytes, section.sh_offset, section.sh_size))
      return fmt::format("section {} ends beyond its {} bytes: it is truncated", i, bytes.size());
    if (section.sh_flags & SHF_EXECINSTR) code_bytes += static_cast<std::int64_t>(section.sh_size);
    show(section);
  }
  return code_bytes == 0 ? "it has no code" : "";
}

}  // namespace ejk
