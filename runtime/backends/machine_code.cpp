// Lists what a binary's run depends on, and hashes the list.
#include "backends/machine_code.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "backends/elf_tables.hpp"
#include "spec/render/sha256.hpp"

namespace ejk {
namespace {

constexpr std::uint16_t machine_of_cubins = 190, machine_of_code_objects = 224;
constexpr std::size_t most_text = 16 << 20;  // of the lines; a binary of ejk's has some kilobytes

// In memory, but not what a kernel computes with: filled in by the loader, which relocations tell, or read by unwinders alone.
constexpr std::string_view not_code[] = {".eh_frame", ".eh_frame_hdr", ".got", ".got.plt", ".interp", ".relro_padding"};
constexpr std::string_view of_a_cubin[] = {".nv.constant", ".nv.global", ".nv.shared"};

bool is_code(const ElfSection& section) { return (section.header.sh_flags & SHF_EXECINSTR) != 0; }

class CodeLines {
 public:
  explicit CodeLines(const std::string& binary) : file_(binary) {
    for (const auto& section : file_.sections())
      if ((section.header.sh_flags & SHF_ALLOC) != 0) by_address_.insert_or_assign(section.header.sh_addr, &section);
  }

  std::string text() {
    list_sections();
    for (const auto& section : file_.sections()) {
      const auto type = section.header.sh_type;
      if (type == SHT_RELA || type == SHT_REL) list_relocations(section);
      if (type == SHT_DYNSYM && !is_cubin()) list_entries(section);
      if (is_cubin() && section.name == ".nv.info") list_registers(section);
    }
    std::sort(lines_.begin(), lines_.end());
    return fmt::format("{}", fmt::join(lines_, ""));
  }

 private:
  void line(std::string text) {
    text += '\n';
    if ((size_ += text.size()) > most_text) throw std::runtime_error("its tables say more than machine code of this kind does");
    lines_.push_back(std::move(text));
  }

  bool is_cubin() const { return file_.header().e_machine == machine_of_cubins; }
  bool has_addresses() const { return file_.header().e_type == ET_DYN; }  // else places are given as a section and an offset in it

  bool counts(const ElfSection& section) const {
    const auto& [type, flags] = std::pair(section.header.sh_type, section.header.sh_flags);
    const auto begins = [&](std::string_view prefix) { return section.name.starts_with(prefix); };
    if (is_cubin()) return is_code(section) || std::any_of(std::begin(of_a_cubin), std::end(of_a_cubin), begins);
    const bool in_memory = (flags & SHF_ALLOC) != 0 && (type == SHT_PROGBITS || type == SHT_NOBITS);
    return in_memory && std::find(std::begin(not_code), std::end(not_code), section.name) == std::end(not_code);
  }

  void list_sections() {
    const auto settled = settled_bytes();
    bool any_code = false;
    for (const auto& section : file_.sections()) {
      if (!counts(section)) continue;
      any_code = any_code || (is_code(section) && !section.bytes.empty());
      const auto known = settled.find(&section);
      const auto bytes = known == settled.end() ? section.bytes : std::string_view(known->second);
      line(fmt::format("section {} {} {}", section.name, section.header.sh_size, bytes.empty() ? "" : spec::sha256_hex(bytes)));
    }
    if (!any_code) throw std::runtime_error("it has no code");
  }

  // By section, the bytes of those that hold something of the file's layout, without it.
  using SettledBytes = std::map<const ElfSection*, std::string>;
  static constexpr std::uint64_t word_bytes = 8;

  static bool clear_word(SettledBytes& settled, const ElfSection& section, std::uint64_t at) {
    if (section.bytes.size() < word_bytes || at > section.bytes.size() - word_bytes) return false;
    settled.try_emplace(&section, section.bytes).first->second.replace(at, word_bytes, word_bytes, '\0');
    return true;
  }

  SettledBytes settled_bytes() {
    SettledBytes settled;
    for (const auto& section : file_.sections()) {
      if (file_.header().e_machine == machine_of_code_objects && section.header.sh_type == SHT_DYNSYM) clear_distances(settled, section);
      if (file_.header().e_machine == EM_X86_64 && section.header.sh_type == SHT_RELA) clear_relocated(settled, section);
    }
    return settled;
  }

  // Each kernel descriptor's distance to its kernel's code (LLVM, "User Guide for AMDGPU Backend", Kernel Descriptor).
  void clear_distances(SettledBytes& settled, const ElfSection& table) {
    constexpr std::uint64_t distance_at = 16;
    for (const auto& symbol : symbols_of(table)) {
      if (!is_entry(table, symbol) || ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT) continue;
      const auto& section = file_.section(symbol.st_shndx);
      if (!clear_word(settled, section, symbol.st_value - section.header.sh_addr + distance_at))
        throw std::runtime_error("a kernel descriptor ends beyond its section");
    }
  }

  // Words that the loader writes, whatever they hold in the file: linkers leave addresses there.
  void clear_relocated(SettledBytes& settled, const ElfSection& section) {
    for (const auto& relocation : file_.relocations(section)) {
      const auto type = relocation.type;
      const bool of_a_word = type == R_X86_64_64 || type == R_X86_64_RELATIVE || type == R_X86_64_IRELATIVE;
      if (const auto [target, offset] = located(relocation.offset); of_a_word && has_addresses() && target)
        clear_word(settled, *target, offset);
    }
  }

  // Read once, however many sections link to it.
  const std::vector<Elf64_Sym>& symbols_of(const ElfSection& table) {
    const auto [known, fresh] = symbols_.try_emplace(&table);
    if (fresh) known->second = file_.symbols(table);
    return known->second;
  }

  // A function that is exported, or its descriptor.
  bool is_entry(const ElfSection& table, const Elf64_Sym& symbol) const {
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= file_.sections().size()) return false;
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    return type == STT_FUNC || (type == STT_OBJECT && file_.symbol_name(table, symbol).ends_with(".kd"));
  }

  void list_entries(const ElfSection& table) {
    for (const auto& symbol : symbols_of(table))
      if (is_entry(table, symbol)) line(fmt::format("entry {} {}", file_.symbol_name(table, symbol), place_of(symbol, 0)));
  }

  std::string place_of(const Elf64_Sym& symbol, std::int64_t addend) const {
    const auto& section = file_.section(symbol.st_shndx);
    return place_in(section, symbol.st_value - section.header.sh_addr + static_cast<std::uint64_t>(addend));
  }
  static std::string place_in(const ElfSection& section, std::uint64_t offset) { return fmt::format("{}+{:#x}", section.name, offset); }

  // The section that begins nearest below an address, and the offset in it; nullptr: there is none.
  std::pair<const ElfSection*, std::uint64_t> located(std::uint64_t address) const {
    const auto above = by_address_.upper_bound(address);
    if (above == by_address_.begin()) return {nullptr, address};
    const auto& [begin, section] = *std::prev(above);
    return {section, address - begin};
  }
  std::string place_at(std::uint64_t address) const {
    const auto [section, offset] = located(address);
    return section ? place_in(*section, offset) : fmt::format("{:#x}", address);
  }

  void list_relocations(const ElfSection& section) {
    if (section.bytes.empty()) return;
    const auto* target = has_addresses() ? nullptr : &file_.section(section.header.sh_info);
    if (target && !counts(*target)) return;
    const auto& table = file_.section(section.header.sh_link);
    const auto& symbols = symbols_of(table);
    for (const auto& relocation : file_.relocations(section))
      line(fmt::format("relocation {} {} {}", target ? place_in(*target, relocation.offset) : place_at(relocation.offset), relocation.type,
                       value_of(relocation, table, symbols)));
  }

  std::string value_of(const ElfRelocation& relocation, const ElfSection& table, const std::vector<Elf64_Sym>& symbols) const {
    if (relocation.symbol == 0 && has_addresses()) return place_at(static_cast<std::uint64_t>(relocation.addend));
    if (relocation.symbol >= symbols.size())
      throw std::runtime_error(fmt::format("a relocation names symbol {} of {}", relocation.symbol, symbols.size()));
    const auto& symbol = symbols[relocation.symbol];
    if (symbol.st_shndx == SHN_UNDEF) return fmt::format("{}{:+}", file_.symbol_name(table, symbol), relocation.addend);
    if (symbol.st_shndx >= SHN_LORESERVE) return fmt::format("{:#x}{:+}", symbol.st_value, relocation.addend);
    return place_of(symbol, relocation.addend);
  }

  // Records {format, attribute, size} of .nv.info, those of two words: the symbol of a kernel, and its registers.
  void list_registers(const ElfSection& section) {
    constexpr std::uint8_t word_pair = 0x04, register_count = 0x2f;
    struct Record {
      std::uint8_t format, attribute;
      std::uint16_t size;
      std::uint32_t symbol, value;
    } record;
    const auto& symbols = symbols_of(file_.section(section.header.sh_link));
    for (std::size_t at = 0; at + 4 <= section.bytes.size();) {
      std::memcpy(&record, section.bytes.data() + at, std::min(sizeof record, section.bytes.size() - at));
      const bool whole = record.format == word_pair && record.size >= 8 && at + sizeof record <= section.bytes.size();
      if (whole && record.attribute == register_count && record.symbol < symbols.size())
        line(fmt::format("registers {} {}", file_.section(symbols[record.symbol].st_shndx).name, record.value));
      at += 4 + (record.format == word_pair ? record.size : 0);  // the other formats hold their value in `size`
    }
  }

  const ElfTables file_;
  std::vector<std::string> lines_;
  std::size_t size_ = 0;
  std::map<std::uint64_t, const ElfSection*> by_address_;
  std::map<const ElfSection*, std::vector<Elf64_Sym>> symbols_;
};

}  // namespace

std::string machine_code_lines(const std::string& binary) { return CodeLines(binary).text(); }

std::string machine_code_hash(const std::string& binary, std::string& why_not) {
  try {
    return spec::sha256_hex(machine_code_lines(binary)).substr(0, 16);
  } catch (const std::runtime_error& wrong) {
    why_not = wrong.what();
    return {};
  }
}

}  // namespace ejk
