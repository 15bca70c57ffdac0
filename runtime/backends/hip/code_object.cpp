// Reading a code object's header, sections and metadata note (LLVM, "User Guide for AMDGPU Backend", Code Object V3 and later).
#include "backends/hip/code_object.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backends/gpu/elf_sections.hpp"

namespace ejk::hip {
namespace {

using nlohmann::json;
constexpr std::uint16_t machine_amdgpu = 224;
constexpr std::uint32_t metadata_note = 32;  // NT_AMDGPU_METADATA, by "AMDGPU"
constexpr char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__", compressed_magic[] = "CCOB";

// EF_AMDGPU_MACH, the low byte of e_flags, for the archs that ejk knows.
struct Machine {
  unsigned number;
  const char* arch;
};
constexpr Machine machines[] = {{0x2f, "gfx906"},  {0x30, "gfx908"},  {0x3f, "gfx90a"},  {0x40, "gfx940"},
                                {0x4c, "gfx942"},  {0x36, "gfx1030"}, {0x41, "gfx1100"}, {0x46, "gfx1101"},
                                {0x47, "gfx1102"}, {0x48, "gfx1200"}, {0x4e, "gfx1201"}};

// The contents of the metadata note within a section of notes; empty: none is there.
std::string metadata_in(const std::string& bytes, const Elf64_Shdr& section) {
  const auto aligned = [](std::uint64_t size) { return (size + 3) / 4 * 4; };
  const auto end = section.sh_offset + section.sh_size;
  Elf64_Nhdr note;
  for (auto at = section.sh_offset; at + sizeof note <= end;) {
    if (!read_at(bytes, at, note)) return {};
    const auto name = at + sizeof note, contents = name + aligned(note.n_namesz);
    at = contents + aligned(note.n_descsz);
    if (at > end || !inside(bytes, contents, note.n_descsz)) return {};
    if (note.n_type == metadata_note && bytes.compare(name, note.n_namesz, std::string("AMDGPU", 7)) == 0)
      return bytes.substr(contents, note.n_descsz);
  }
  return {};
}

std::int64_t number(const json& kernel, const char* name) {
  const auto found = kernel.find(name);
  return found != kernel.end() && found->is_number_integer() ? std::max<std::int64_t>(found->get<std::int64_t>(), 0) : 0;
}

void read_kernel(const json& kernel, CodeObjectFacts& facts) {
  const auto most = [&](std::int64_t& of_all, std::int64_t value) { of_all = std::max(of_all, value); };
  facts.kernels.push_back(kernel.value(".name", std::string()));
  most(facts.vgprs, number(kernel, ".vgpr_count"));
  most(facts.agprs, number(kernel, ".agpr_count"));
  most(facts.sgprs, number(kernel, ".sgpr_count"));
  most(facts.spill_bytes, 4 * std::min<std::int64_t>(number(kernel, ".vgpr_spill_count"), 1 << 20));
  most(facts.stack_bytes, number(kernel, ".private_segment_fixed_size"));
  most(facts.shared_bytes, number(kernel, ".group_segment_fixed_size"));
  most(facts.wave_size, number(kernel, ".wavefront_size"));
}

// "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-"
std::string arch_of(const std::string& target) {
  const auto name = target.rfind("--") == std::string::npos ? target : target.substr(target.rfind("--") + 2);
  return name.substr(0, name.find(':'));
}

// The parser recurses: lists within lists, deeper than metadata has them, end it before it uses up the stack.
class DepthGuard : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ < deepest; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return ++depth_ < deepest; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr int deepest = 16;
  int depth_ = 0;
};

std::string read_metadata(const std::string& note, CodeObjectFacts& facts) {
  DepthGuard guard;
  if (!json::sax_parse(note, &guard, json::input_format_t::msgpack)) return "its metadata note is no msgpack";
  const auto metadata = json::from_msgpack(note, true, false);
  const auto kernels = metadata.is_object() ? metadata.find("amdhsa.kernels") : metadata.end();
  if (!metadata.is_object() || kernels == metadata.end() || !kernels->is_array()) return "its metadata note lists no kernels";
  for (const auto& kernel : *kernels) {
    if (!kernel.is_object() || !kernel.contains(".name") || !kernel[".name"].is_string())
      return "its metadata note has a kernel without a name";
    read_kernel(kernel, facts);
  }
  if (const auto target = metadata.find("amdhsa.target"); target != metadata.end() && target->is_string())
    facts.arch = arch_of(target->get<std::string>());
  return {};
}

std::string arch_of_header(const Elf64_Ehdr& header) {
  const auto* found = std::ranges::find(machines, header.e_flags & 0xff, &Machine::number);
  return found == std::end(machines) ? "" : found->arch;
}

}  // namespace

std::string read_code_object(const std::string& bytes, CodeObjectFacts& facts) {
  if (bytes.starts_with(bundle_magic) || bytes.starts_with(compressed_magic))
    return "it is an offload bundle, a container of code objects for several archs; expected one code object (clang: "
           "--no-gpu-bundle-output)";
  Elf64_Ehdr header{};
  auto wrong = read_header(bytes, machine_amdgpu, "AMD GPUs", header);
  if (!wrong.empty()) return wrong;
  facts = {};
  std::string note;
  wrong = read_sections(bytes, header, facts.code_bytes, [&](const Elf64_Shdr& section) {
    if (section.sh_type == SHT_NOTE && note.empty()) note = metadata_in(bytes, section);
  });
  if (!wrong.empty()) return wrong;
  if (note.empty()) return "it has no metadata note (NT_AMDGPU_METADATA), which tells its kernels";
  wrong = read_metadata(note, facts);
  if (!wrong.empty()) return wrong;
  const auto of_header = arch_of_header(header);
  if (facts.arch.empty()) facts.arch = of_header;
  if (facts.arch.empty()) return fmt::format("it tells no arch: its header's machine is {:#x}", header.e_flags & 0xff);
  if (!of_header.empty() && of_header != facts.arch) return fmt::format("its header is for {}, its metadata for {}", of_header, facts.arch);
  return {};
}

}  // namespace ejk::hip
