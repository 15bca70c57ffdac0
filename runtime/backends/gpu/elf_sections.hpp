// ELF files that compilers make: header and sections, with every offset checked.
#pragma once
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace ejk {

// False: there are fewer bytes.
template <class T>
bool read_at(const std::string& bytes, std::uint64_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return true;
}

bool inside(const std::string& bytes, std::uint64_t offset, std::uint64_t size);

bool is_elf64(const Elf64_Ehdr& header);
// Reads the header. Empty: it is of a 64-bit ELF file for the machine, which messages call by its name; else what is wrong.
std::string read_header(const std::string& bytes, std::uint16_t machine, const char* name, Elf64_Ehdr& header);

// Shows every section that has bytes, in order, and counts those that are code. Empty, or what is wrong; it is wrong to have no code.
std::string read_sections(const std::string& bytes, const Elf64_Ehdr& header, std::int64_t& code_bytes,
                          const std::function<void(const Elf64_Shdr&)>& show);

}  // namespace ejk
