// A minimal NVTX 3 client. The tool's InitializeInjectionNvtx2 is given a function that hands out tables; through them it asks for slots
// of functions by module and number, and writes its own into those it listens to. Layouts and numbers are those of NVTX's public ABI,
// which its tools keep stable (NVIDIA/NVTX, nvtxTypes.h).
#include "backends/cuda/nvtx.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "backends/gpu/vendor_library.hpp"

namespace ejk {
namespace {

using AnyFunction = void (*)();
constexpr std::uint32_t callbacks_table = 1, version_table = 3;
constexpr int core_module = 1;
constexpr unsigned push_number = 9, pop_number = 11, core_functions = 16;
constexpr std::uint32_t nvtx_version = 3;

struct Callbacks {
  std::size_t size;
  int (*functions_of)(int module, AnyFunction*** table, unsigned* count);
};
struct Version {
  std::size_t size;
  std::uint32_t version, reserved;
  void (*set_tool_version)(std::uint32_t version);
};
using ExportTable = const void* (*)(std::uint32_t id);
using Initialize = int (*)(ExportTable);

// What the tool writes to; it may keep the addresses, so they live for ever.
AnyFunction written[core_functions] = {};
AnyFunction* slots[core_functions] = {};

int functions_of(int module, AnyFunction*** table, unsigned* count) {
  if (module != core_module) return 0;
  for (unsigned i = 1; i < core_functions; ++i) slots[i] = &written[i];  // number 0 is none
  if (table) *table = slots;
  if (count) *count = core_functions;
  return 1;
}

const void* export_table(std::uint32_t id) {
  static const Callbacks callbacks{sizeof(Callbacks), functions_of};
  static const Version version{sizeof(Version), nvtx_version, 0, [](std::uint32_t) {}};
  if (id == callbacks_table) return &callbacks;
  return id == version_table ? &version : nullptr;
}

ProfilerRanges from_tool(const std::string& path) {
  ProfilerRanges ranges;
  const auto name = "NVTX_INJECTION64_PATH=" + path;
  void* library = dlopen(path.c_str(), RTLD_LAZY);
  const auto initialize = library ? reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2")) : nullptr;
  if (!initialize) {
    const char* words = dlerror();
    ranges.why_not = name + ": " + (words ? words : "no InitializeInjectionNvtx2");
  } else if (!initialize(export_table)) {
    ranges.why_not = name + ": the tool refused";
  } else if (!written[push_number] || !written[pop_number]) {
    ranges.why_not = name + ": the tool does not listen to ranges";
  } else {
    ranges.push = reinterpret_cast<int (*)(const char*)>(written[push_number]);
    ranges.pop = reinterpret_cast<int (*)()>(written[pop_number]);
    ranges.found = name;
  }
  return ranges;
}

ProfilerRanges from_library() {
  ProfilerRanges ranges;
  const auto library = open_first({"libnvToolsExt.so.1", "libnvToolsExt.so"});
  if (!library.handle) {
    ranges.why_not = "NVTX_INJECTION64_PATH is not set; " + library.why_not;
    return ranges;
  }
  SymbolReader read(library.handle);
  read("nvtxRangePushA", ranges.push);
  read("nvtxRangePop", ranges.pop);
  if (read.missing().empty())
    ranges.found = library.path;
  else
    ranges.why_not = library.path + " lacks " + read.missing();
  return ranges;
}

}  // namespace

const ProfilerRanges& profiler_ranges() {
  static const auto* ranges = [] {
    const char* tool = std::getenv("NVTX_INJECTION64_PATH");
    return new ProfilerRanges(tool && *tool ? from_tool(tool) : from_library());
  }();
  return *ranges;
}

}  // namespace ejk
