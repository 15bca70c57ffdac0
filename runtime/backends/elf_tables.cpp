// Reading the tables of an ELF file.
#include "backends/elf_tables.hpp"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "backends/gpu/elf_sections.hpp"

namespace ejk {
namespace {

constexpr std::size_t longest_name = 512;  // of a section or symbol; longer ones would let few bytes stand for much work
// Sections of cubins share bytes; more than that would let few bytes stand for many.
constexpr std::uint64_t most_shared = 2;

[[noreturn]] void bad_elf(const std::string& sentence) { throw std::runtime_error(sentence); }

// The text at an offset of a table of names.
std::string_view name_at(std::string_view names, std::uint64_t offset) {
  if (offset >= names.size()) bad_elf(fmt::format("a name is at {} of its table's {} bytes", offset, names.size()));
  const auto rest = names.substr(offset, longest_name);
  const auto end = rest.find('\0');
  if (end == std::string_view::npos) bad_elf(fmt::format("a name has no end within {} bytes", rest.size()));
  return rest.substr(0, end);
}

template <class Entry, class Use>
void each_entry(const ElfSection& section, Use use) {
  if (section.bytes.size() % sizeof(Entry) != 0)
    bad_elf(fmt::format("section {} has {} bytes, no multiple of an entry's {}", section.name, section.bytes.size(), sizeof(Entry)));
  Entry entry;
  for (std::size_t at = 0; at < section.bytes.size(); at += sizeof entry) {
    std::memcpy(&entry, section.bytes.data() + at, sizeof entry);
    use(entry);
  }
}

template <class Entry>
ElfRelocation relocation_of(const Entry& entry, std::int64_t addend) {
  return {entry.r_offset, static_cast<std::uint32_t>(ELF64_R_TYPE(entry.r_info)), static_cast<std::uint32_t>(ELF64_R_SYM(entry.r_info)),
          addend};
}

}  // namespace

ElfTables::ElfTables(const std::string& binary) {
  if (!read_at(binary, 0, header_) || !is_elf64(header_)) bad_elf("it is no 64-bit ELF file");
  if (header_.e_ident[EI_DATA] != ELFDATA2LSB) bad_elf("it is no little-endian ELF file");
  read_sections(binary);
  if (header_.e_shstrndx == SHN_UNDEF) return;  // its sections have no names
  const auto names = section(header_.e_shstrndx).bytes;
  for (auto& section : sections_) section.name = name_at(names, section.header.sh_name);
}

void ElfTables::read_sections(const std::string& binary) {
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < header_.e_shnum; ++i) {
    ElfSection section{};
    if (header_.e_shoff > binary.size() || !read_at(binary, header_.e_shoff + i * sizeof section.header, section.header))
      bad_elf(fmt::format("its section table ends beyond its {} bytes: it is truncated", binary.size()));
    const auto& [offset, size] = std::pair(section.header.sh_offset, section.header.sh_size);
    if (section.header.sh_type != SHT_NOBITS && section.header.sh_type != SHT_NULL) {
      if (!inside(binary, offset, size)) bad_elf(fmt::format("section {} ends beyond its {} bytes: it is truncated", i, binary.size()));
      total += size;
      section.bytes = std::string_view(binary).substr(offset, size);
    }
    if (total > most_shared * binary.size())
      bad_elf(fmt::format("its sections have more than {} times its {} bytes", most_shared, binary.size()));
    sections_.push_back(section);
  }
}

const ElfSection& ElfTables::section(std::uint64_t index) const {
  if (index >= sections_.size()) bad_elf(fmt::format("it names section {} of {}", index, sections_.size()));
  return sections_[index];
}

std::vector<Elf64_Sym> ElfTables::symbols(const ElfSection& table) const {
  std::vector<Elf64_Sym> result;
  each_entry<Elf64_Sym>(table, [&](const Elf64_Sym& symbol) { result.push_back(symbol); });
  return result;
}

std::string_view ElfTables::symbol_name(const ElfSection& table, const Elf64_Sym& symbol) const {
  return name_at(section(table.header.sh_link).bytes, symbol.st_name);
}

std::vector<ElfRelocation> ElfTables::relocations(const ElfSection& section) const {
  std::vector<ElfRelocation> result;
  if (section.header.sh_type == SHT_RELA)
    each_entry<Elf64_Rela>(section, [&](const Elf64_Rela& entry) { result.push_back(relocation_of(entry, entry.r_addend)); });
  else
    each_entry<Elf64_Rel>(section, [&](const Elf64_Rel& entry) { result.push_back(relocation_of(entry, 0)); });
  return result;
}

}  // namespace ejk
