// NVRTC for the emulator: asked for PTX, which goes into an ELF file, as the CUDA backend expects binaries to be.
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <cstring>

#include "emulator/ptx/device/driver.hpp"

namespace ejk::ptx {
namespace {

constexpr std::uint16_t machine_cuda = 190;
constexpr unsigned char abi_version = 8;
constexpr std::uint32_t sm_of_flags = 90u << 8 | 4;
constexpr char mark[] = "ejk PTX of the emulator";  // ahead of the text

struct Real {
  cuda::Nvrtc nvrtc;
  int (*ptx_size)(cuda::Program, std::size_t*) = nullptr;
  int (*ptx)(cuda::Program, char*) = nullptr;
};

Real& real() {
  static auto& found = *new Real;
  return found;
}

std::string around(const std::string& text) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB, header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_ABIVERSION] = abi_version;
  header.e_type = ET_EXEC, header.e_machine = machine_cuda, header.e_flags = sm_of_flags;
  header.e_ehsize = sizeof header, header.e_shentsize = sizeof(Elf64_Shdr), header.e_shnum = 2;
  header.e_shoff = sizeof header;
  Elf64_Shdr none{}, code{};
  code.sh_type = SHT_PROGBITS, code.sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  code.sh_offset = sizeof header + 2 * sizeof(Elf64_Shdr), code.sh_size = sizeof mark + text.size() + 1;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (const auto& section : {none, code}) bytes.append(reinterpret_cast<const char*>(&section), sizeof section);
  bytes.append(mark, sizeof mark);
  bytes += text;
  return bytes + '\0';
}

std::string text_of(cuda::Program program) {
  std::size_t size = 0;
  if (real().ptx_size(program, &size) != 0 || size == 0) return {};
  std::string text(size, '\0');
  if (real().ptx(program, text.data()) != 0) return {};
  return text.substr(0, text.find('\0'));
}

int compile(cuda::Program program, int count, const char* const* options) {
  std::vector<std::string> words;
  constexpr std::string_view arch = "--gpu-architecture=sm_";
  for (int i = 0; i < count; ++i) {
    const std::string_view word = options[i];
    if (word.starts_with("--ptxas-options")) continue;
    words.push_back(word.starts_with(arch) ? fmt::format("--gpu-architecture=compute_{}", word.substr(arch.size())) : std::string(word));
  }
  std::vector<const char*> pointers;
  for (const auto& word : words) pointers.push_back(word.c_str());
  return real().nvrtc.call.compile(program, static_cast<int>(pointers.size()), pointers.data());
}

int binary_size(cuda::Program program, std::size_t* size) {
  const auto text = text_of(program);
  *size = text.empty() ? 0 : around(text).size();
  return text.empty() ? cuda::nvrtc_internal_error : cuda::nvrtc_success;
}

int binary(cuda::Program program, char* bytes) {
  const auto file = around(text_of(program));
  std::memcpy(bytes, file.data(), file.size());
  return cuda::nvrtc_success;
}

cuda::Nvrtc make() {
  real().nvrtc = cuda::nvrtc();
  auto made = real().nvrtc;
  if (!made.found()) return made;
  auto* const library = dlopen(made.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto read = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library ? dlsym(library, name) : nullptr);
  };
  read("nvrtcGetPTXSize", real().ptx_size), read("nvrtcGetPTX", real().ptx);
  if (!real().ptx_size || !real().ptx) made.why_not = made.path + " has no nvrtcGetPTX";
  made.call.compile = compile, made.call.binary_size = binary_size, made.call.binary = binary;
  made.description += ", PTX alone";  // tells its files from cubins in caches
  return made;
}

}  // namespace

const cuda::Nvrtc& compiler() {
  static const auto& made = *new cuda::Nvrtc(make());
  return made;
}

std::string ptx_of(const void* cubin) {
  Elf64_Ehdr header;
  std::memcpy(&header, cubin, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_shnum != 2 || header.e_shoff != sizeof header) return {};
  Elf64_Shdr code;
  std::memcpy(&code, static_cast<const char*>(cubin) + header.e_shoff + sizeof code, sizeof code);
  const char* const text = static_cast<const char*>(cubin) + code.sh_offset;
  if (code.sh_size <= sizeof mark || std::memcmp(text, mark, sizeof mark) != 0) return {};
  return {text + sizeof mark, code.sh_size - sizeof mark - 1};
}

}  // namespace ejk::ptx
