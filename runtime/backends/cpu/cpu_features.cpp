// CPU features from /proc/cpuinfo or CPUID, cut to those whose state the system saves.
#include "backends/cpu/cpu_features.hpp"

#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ejk {
namespace {

// The value of the first "key : value" line.
std::string cpuinfo_value(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(' ', colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return {};
}

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> result;
  for (std::string word; in >> word;) result.insert(word);
  return result;
}

#if defined(__x86_64__)

// XCR0 bits: the register state that a group of features lives in.
constexpr std::uint64_t avx_state = 0x6, avx512_state = 0xe6, amx_state = 0x60000;

std::uint64_t needed_state(const std::string& feature) {
  if (feature.starts_with("amx")) return amx_state;
  if (feature.starts_with("avx512")) return avx512_state;
  static const std::set<std::string> vex = {"fma", "f16c", "vaes", "vpclmulqdq"};
  return feature.starts_with("avx") || vex.contains(feature) ? avx_state : 0;
}

std::uint64_t enabled_state() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

struct CpuidBit {
  const char* name;
  unsigned leaf, subleaf;
  int word;  // eax, ebx, ecx, edx
  int bit;
};

constexpr CpuidBit cpuid_bits[] = {
    {"fma", 1, 0, 2, 12},         {"movbe", 1, 0, 2, 22},    {"f16c", 1, 0, 2, 29},        {"avx", 1, 0, 2, 28},
    {"bmi1", 7, 0, 1, 3},         {"avx2", 7, 0, 1, 5},      {"bmi2", 7, 0, 1, 8},         {"avx512f", 7, 0, 1, 16},
    {"avx512dq", 7, 0, 1, 17},    {"avx512cd", 7, 0, 1, 28}, {"avx512bw", 7, 0, 1, 30},    {"avx512vl", 7, 0, 1, 31},
    {"avx512_vnni", 7, 0, 2, 11}, {"amx_bf16", 7, 0, 3, 22}, {"avx512_fp16", 7, 0, 3, 23}, {"amx_tile", 7, 0, 3, 24},
    {"amx_int8", 7, 0, 3, 25},    {"avx_vnni", 7, 1, 0, 4},  {"avx512_bf16", 7, 1, 0, 5},  {"amx_fp16", 7, 1, 0, 21},
};

void drop_unsaved(std::set<std::string>& features) {
  const auto enabled = enabled_state();
  std::erase_if(features, [&](const auto& name) { return (needed_state(name) & ~enabled) != 0; });
}

#endif

int depth(const spec::Arch& arch, const std::map<std::string, const spec::Arch*>& by_name) {
  int result = 0;
  for (const auto* at = &arch; !at->extends.empty() && result < 64; ++result) {
    const auto parent = by_name.find(at->extends);
    if (parent == by_name.end()) break;
    at = parent->second;
  }
  return result;
}

bool runs(const spec::Arch& arch, const std::map<std::string, const spec::Arch*>& by_name, const std::string& machine,
          const std::set<std::string>& features) {
  const auto* at = &arch;
  for (int steps = 0; at && steps < 64; ++steps) {
    if (!at->machine.empty() && at->machine != machine) return false;
    if (!std::ranges::all_of(at->requires_features, [&](const auto& name) { return features.contains(name); })) return false;
    const auto parent = by_name.find(at->extends);
    at = parent == by_name.end() ? nullptr : parent->second;
  }
  return true;
}

}  // namespace

std::string cpu_machine() {
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

std::string cpu_model() {
  const auto name = cpuinfo_value("model name");
  return name.empty() ? cpu_machine() + " CPU" : name;
}

std::set<std::string> cpuid_features() {
  std::set<std::string> found;
#if defined(__x86_64__)
  for (const auto& row : cpuid_bits) {
    unsigned word[4] = {};
    if (__get_cpuid_count(row.leaf, row.subleaf, &word[0], &word[1], &word[2], &word[3]) && (word[row.word] >> row.bit & 1))
      found.insert(row.name);
  }
  drop_unsaved(found);
#endif
  return found;
}

std::set<std::string> cpu_features() {
#if defined(__x86_64__)
  auto found = words(cpuinfo_value("flags"));  // honours the kernel's clearcpuid, which CPUID does not show
  if (found.empty()) return cpuid_features();
  drop_unsaved(found);
  return found;
#else
  return words(cpuinfo_value("Features"));
#endif
}

bool request_amx() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

std::vector<std::string> runnable_archs(const std::vector<const spec::Arch*>& archs, const std::string& machine,
                                        const std::set<std::string>& features) {
  std::map<std::string, const spec::Arch*> by_name;
  for (const auto* arch : archs) by_name[arch->name] = arch;
  std::vector<std::tuple<bool, int, std::string>> found;  // archs for tests come last: the first is the machine's best
  for (const auto* arch : archs)
    if (runs(*arch, by_name, machine, features)) found.emplace_back(arch->tests_only(), -depth(*arch, by_name), arch->full_name());
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (auto& row : found) names.push_back(std::move(std::get<std::string>(row)));
  return names;
}

}  // namespace ejk
