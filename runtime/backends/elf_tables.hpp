// The tables of an ELF file: sections with their names, symbols, relocations. Of a file that others may have written: every offset is
// checked, and reading takes time and memory in proportion to the file, whatever its tables say.
#pragma once
#include <elf.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ejk {

struct ElfSection {
  std::string_view name;
  std::string_view bytes;  // none of one that only has a size in memory (SHT_NOBITS)
  Elf64_Shdr header;
};

struct ElfRelocation {
  std::uint64_t offset = 0;
  std::uint32_t type = 0, symbol = 0;  // symbol: an index in the table that the section of relocations links to
  std::int64_t addend = 0;             // 0 where the section has none
};

// Views of a binary, which must outlive them. Everything here throws std::runtime_error that says what is wrong with the file.
class ElfTables {
 public:
  explicit ElfTables(const std::string& binary);
  const Elf64_Ehdr& header() const { return header_; }
  const std::vector<ElfSection>& sections() const { return sections_; }
  const ElfSection& section(std::uint64_t index) const;
  std::vector<Elf64_Sym> symbols(const ElfSection& table) const;
  std::string_view symbol_name(const ElfSection& table, const Elf64_Sym& symbol) const;
  // Of a section of either type, SHT_RELA or SHT_REL.
  std::vector<ElfRelocation> relocations(const ElfSection& section) const;

 private:
  void read_sections(const std::string& binary);
  Elf64_Ehdr header_{};
  std::vector<ElfSection> sections_;
};

}  // namespace ejk
