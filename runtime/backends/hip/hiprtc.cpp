// Finding hipRTC, and it at work.
#include "backends/hip/hiprtc.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "backends/gpu/rtc_program.hpp"
#include "backends/gpu/vendor_library.hpp"
#include "backends/hip/hip_compile.hpp"
#include "backends/hip/hip_driver.hpp"

namespace ejk::hip {
namespace {

constexpr int success_result = 0, out_of_memory_result = 1, program_creation_failure = 2, internal_error = 11;
constexpr char source_name[] = "source.hip";  // fixed: it shows in messages

std::string resolve(void* library, HiprtcFunctions& call) {
  SymbolReader read(library);
  read("hiprtcGetErrorString", call.error_text);
  read("hiprtcCreateProgram", call.create);
  read("hiprtcCompileProgram", call.compile);
  read("hiprtcDestroyProgram", call.destroy);
  read("hiprtcGetProgramLogSize", call.log_size);
  read("hiprtcGetProgramLog", call.log);
  read("hiprtcGetCodeSize", call.binary_size);
  read("hiprtcGetCode", call.binary);
  return read.missing();
}

std::vector<std::string> hiprtc_options(const spec::Image& image) {
  std::vector<std::string> options = {"--offload-arch=" + arch_name(image), "-std=c++20", "-O3", "-ffp-contract=fast",
                                      "-mcode-object-version=4"};
  options.insert(options.end(), image.flags.begin(), image.flags.end());
  return options;
}

bool is_transient(int result) { return result == out_of_memory_result || result == program_creation_failure || result == internal_error; }

// Of HIP, which hipRTC is a part of or lies beside.
int release_of(void* library) {
  using Version = int (*)(int*);
  const auto version = reinterpret_cast<Version>(dlsym(library, "hipRuntimeGetVersion"));
  int number = 0;
  if (version) return version(&number) == success_result ? number / 100000 * 100 : 0;
  const auto driver = load_driver(driver_candidates());
  return driver.found() ? driver.version / 100000 * 100 : 0;
}

}  // namespace

std::vector<std::string> known_archs(int release) {
  struct Row {
    int first_release;
    const char* arch;
  };
  // 50200: tried. Later ones: when ROCm's release notes first name the arch's hardware as supported.
  static constexpr Row rows[] = {{50200, "gfx906"},  {50200, "gfx908"}, {50200, "gfx90a"}, {50200, "gfx1030"},
                                 {50700, "gfx1100"}, {60000, "gfx942"}, {60400, "gfx1200"}};
  std::vector<std::string> archs;
  for (const auto& row : rows)
    if (release >= row.first_release) archs.emplace_back(row.arch);
  return archs;
}

std::vector<std::string> hiprtc_candidates() {
  auto candidates = driver_candidates();
  std::vector<std::string> own;
  for (auto candidate : candidates) {
    candidate.replace(candidate.find("libamdhip64"), std::string("libamdhip64").size(), "libhiprtc");
    own.push_back(candidate);
  }
  own.insert(own.end(), candidates.begin(), candidates.end());
  return own;
}

Hiprtc load_hiprtc(const std::vector<std::string>& candidates) {
  Hiprtc hiprtc;
  const auto library = open_first(candidates);
  if (!library.handle) {
    hiprtc.why_not = "no hipRTC: " + library.why_not;
    return hiprtc;
  }
  hiprtc.path = library.path;
  if (const auto missing = resolve(library.handle, hiprtc.call); !missing.empty()) {
    hiprtc.why_not = fmt::format("{} has no {}", hiprtc.path, missing);
    return hiprtc;
  }
  const int release = release_of(library.handle);
  hiprtc.description = fmt::format("hipRTC of HIP {}.{}", release / 10000, release / 100 % 100);
  hiprtc.archs = known_archs(release);
  if (hiprtc.archs.empty()) hiprtc.why_not = fmt::format("{} is {}: 5.2 or newer is needed", hiprtc.path, hiprtc.description);
  return hiprtc;
}

const Hiprtc& hiprtc() {
  static const Hiprtc found = load_hiprtc(hiprtc_candidates());
  return found;
}

CompileResult compile_with_hiprtc(const Hiprtc& hiprtc, const spec::Image& image) {
  CompileResult result;
  result.compiler = hiprtc.description;
  if (!hiprtc.found() || std::ranges::find(hiprtc.archs, arch_name(image)) == hiprtc.archs.end()) {
    result.transient = true;
    result.log = hiprtc.found() ? fmt::format("{} ({}) is not asked for {}: it is known to compile for {}", hiprtc.description, hiprtc.path,
                                              arch_name(image), fmt::join(hiprtc.archs, ", "))
                                : hiprtc.why_not;
    return result;
  }
  const auto options = hiprtc_options(image);
  result.command = {"hiprtc"};
  result.command.insert(result.command.end(), options.begin(), options.end());
  result.command.emplace_back(source_name);
  RtcProgram<HiprtcFunctions, Program> program(hiprtc.call, image.source, source_name);
  const int status = program.compile(options);
  result.log = program.log();
  if (status == success_result) {
    result.binary = program.binary();
    judge_binary(image, result);
  } else {
    result.transient = is_transient(status);
    result.log += fmt::format("{}{}: {}", result.log.empty() || result.log.ends_with('\n') ? "" : "\n", hiprtc.description,
                              hiprtc.call.error_text(status));
  }
  return result;
}

}  // namespace ejk::hip
