// NVRTC at work: options, program, log, cubin.
#include "backends/cuda/cuda_compile.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/cuda_arch.hpp"
#include "backends/gpu/rtc_program.hpp"

namespace ejk::cuda {
namespace {

constexpr char source_name[] = "source.cu";  // fixed: it shows in messages

// 177: of the vocabulary, a kernel uses a part. No cache: the store is one, and a result out of NVRTC's may lack ptxas' words.
std::vector<std::string> options_for(const Nvrtc& nvrtc, const spec::Image& image) {
  const auto arch = image.arch.substr(image.arch.find(':') + 1);
  std::vector<std::string> options = {"--gpu-architecture=" + arch, "--std=c++20",        "--device-as-default-execution-space",
                                      "--no-source-include",        "--ptxas-options=-v", "--diag-suppress=177"};
  if (nvrtc.caches) options.emplace_back("--no-cache");
  options.insert(options.end(), image.flags.begin(), image.flags.end());
  return options;
}

bool is_transient(int result) {
  return result == nvrtc_out_of_memory || result == nvrtc_program_creation_failure || result == nvrtc_builtin_operation_failure ||
         result == nvrtc_internal_error;
}

}  // namespace

CompileResult compile_cuda_image(const Nvrtc& nvrtc, const spec::Image& image) { return compile_cuda_source(nvrtc, image, image.source); }

CompileResult compile_cuda_source(const Nvrtc& nvrtc, const spec::Image& image, const std::string& source) {
  CompileResult result;
  result.compiler = nvrtc.description;
  if (!nvrtc.found()) {
    result.transient = true;
    result.log = nvrtc.why_not;
    return result;
  }
  const auto options = options_for(nvrtc, image);
  result.command = {"nvrtc"};
  result.command.insert(result.command.end(), options.begin(), options.end());
  result.command.emplace_back(source_name);
  RtcProgram<NvrtcFunctions, Program> program(nvrtc.call, source, source_name);
  const int status = program.compile(options);
  result.log = program.log();
  if (status == nvrtc_success) result.binary = program.binary();
  CubinFacts facts;
  const auto wrong = status == nvrtc_success ? read_cubin(result.binary, facts) : nvrtc.call.error_text(status);
  result.ok = wrong.empty();
  if (result.ok) {
    result.resources = resources_of(result.log, facts);
    result.assembled = entry_times(result.log);
  } else {
    result.transient = is_transient(status);
    result.binary.clear();
    result.log += fmt::format("{}{}: {}", result.log.empty() || result.log.ends_with('\n') ? "" : "\n", nvrtc.description, wrong);
  }
  return result;
}

bool compiles_for(const Nvrtc& nvrtc, const spec::Arch& arch, std::string& why_not) {
  const auto sm = parse_sm(arch.name);
  if (!nvrtc.found())
    why_not = nvrtc.why_not;
  else if (!sm)
    why_not = fmt::format("'{}' is no CUDA arch: expected a name such as sm_80 or sm_90a", arch.name);
  else if (std::ranges::find(nvrtc.archs, sm->number()) == nvrtc.archs.end())
    why_not = fmt::format("{} ({}) does not compile for {}; it does for {}", nvrtc.description, nvrtc.path, arch.name,
                          fmt::join(nvrtc.archs, ", "));
  else
    return true;
  return false;
}

}  // namespace ejk::cuda
