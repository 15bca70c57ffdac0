// clang at work: candidates, options, code object.
#include "backends/hip/hip_compile.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>

namespace ejk::hip {
namespace {

constexpr int newest_clang = 22, oldest_clang = 16;

std::vector<std::string> candidates() {
  std::vector<std::string> programs;
  if (const auto rocm = environment_variable("ROCM_PATH"); !rocm.empty()) programs.push_back(rocm + "/llvm/bin/clang++");
  programs.emplace_back("amdclang++");
  for (int version = newest_clang; version >= oldest_clang; --version) programs.push_back(fmt::format("clang++-{}", version));
  programs.emplace_back("clang++");
  programs.emplace_back("/opt/rocm/llvm/bin/clang++");
  return programs;
}

// One bare code object, without a random id; version 4 is what ROCm 4.1 and all later ones load.
std::vector<std::string> clang_options(const spec::Image& image) {
  std::vector<std::string> options = {"-x",
                                      "hip",
                                      "--cuda-device-only",
                                      "--no-gpu-bundle-output",
                                      "--offload-arch=" + arch_name(image),
                                      "-nogpulib",
                                      "-nogpuinc",
                                      "-fuse-cuid=none",
                                      "-mcode-object-version=4",
                                      "-std=c++20",
                                      "-O3",
                                      "-ffp-contract=fast",
                                      "-g0"};
  options.insert(options.end(), image.flags.begin(), image.flags.end());
  return options;
}

// It takes what older clangs lack: the arch, its linker, and functions that are for the device without saying so.
spec::Image small_kernel(const std::string& arch) {
  spec::Image image;
  image.id = "a small kernel";
  image.arch = "hip:" + arch;
  image.source =
      "#pragma clang force_cuda_host_device begin\n"
      "static inline int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }\n"
      "extern \"C\" __attribute__((global)) void small(_Float16* a) { a[thread()] = static_cast<_Float16>(__builtin_amdgcn_rcpf(a[0])); "
      "}\n";
  return image;
}

// The first line that has those words, or the first line.
std::string line_with(const std::string& text, const char* words) {
  const auto found = text.find(words);
  const auto newline = found == std::string::npos ? std::string::npos : text.rfind('\n', found);
  const auto first = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(first, text.find('\n', first) - first);
}

// -v: its log begins with its version, which is not worth a process of its own: a clang takes long to start.
CompileResult try_out(const std::string& path, const std::string& arch) {
  auto image = small_kernel(arch);
  image.flags = {"-v"};
  return compile_with_clang({{path}, {}, {}}, image);
}

SystemCompiler search(const std::string& arch) {
  std::string names, complaints;
  for (const auto& candidate : candidates()) {
    names += (names.empty() ? "" : ", ") + candidate;
    const auto path = path_of_program(candidate);
    if (path.empty()) continue;
    const auto trial = try_out(path, arch);
    auto version = line_with(trial.log, " version ");
    if (trial.ok) return {{path}, std::move(version), {}};
    complaints += fmt::format("; {} ({}) does not build a small kernel for {}: {}", path, version, arch, line_with(trial.log, "error"));
  }
  SystemCompiler none;
  none.why_not = fmt::format("no clang that compiles for {}: looked for {} on PATH{}", arch, names, complaints);
  return none;
}

}  // namespace

std::string arch_name(const spec::Image& image) { return image.arch.substr(image.arch.find(':') + 1); }

std::shared_ptr<const SystemCompiler> clang_for(const std::string& arch) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::array<std::string, 3>, std::shared_ptr<const SystemCompiler>>;
  const std::lock_guard lock(mutex);
  auto& clang = known[{arch, environment_variable("ROCM_PATH"), environment_variable("PATH")}];
  if (!clang) clang = std::make_shared<SystemCompiler>(search(arch));
  return clang;
}

spec::Resources resources_of(const CodeObjectFacts& facts) {
  return {{"registers", facts.vgprs},
          {"spill_bytes", facts.spill_bytes},
          {"stack_bytes", facts.stack_bytes},
          {"shared_bytes", facts.shared_bytes},
          {"code_bytes", facts.code_bytes},
          {"vgprs", facts.vgprs},
          {"agprs", facts.agprs},
          {"sgprs", facts.sgprs},
          {"wave_size", facts.wave_size}};
}

void judge_binary(const spec::Image& image, CompileResult& result) {
  CodeObjectFacts facts;
  auto wrong = read_code_object(result.binary, facts);
  if (wrong.empty() && facts.arch != arch_name(image)) wrong = fmt::format("it is for {}, expected {}", facts.arch, arch_name(image));
  result.ok = wrong.empty();
  if (result.ok) {
    result.resources = resources_of(facts);
  } else {
    result.binary.clear();
    result.log += fmt::format("{}{}: what it made is no code object for {}: {}",
                              result.log.empty() || result.log.ends_with('\n') ? "" : "\n", result.compiler, image.arch, wrong);
  }
}

CompileResult compile_with_clang(const SystemCompiler& clang, const spec::Image& image) {
  auto result = run_compiler(clang, image.source, clang_options(image), "source.hip", "binary.hsaco");
  if (result.ok) judge_binary(image, result);
  return result;
}

}  // namespace ejk::hip
