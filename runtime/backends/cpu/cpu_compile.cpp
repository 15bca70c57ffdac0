// One rendered source to one shared object.
#include "backends/cpu/cpu_compile.hpp"

#include "backends/cpu/shared_object.hpp"

namespace ejk {
namespace {

// --as-needed and no build id: nothing in the file that is not used. Of libgcc only what is used, so that an older one need not have it.
const std::vector<std::string>& shared_object_flags() {
  static const auto* flags =
      new std::vector<std::string>{// never destroyed, as all that a thread uses which compiles while the process ends
                                   "-std=c++20",
                                   "-fno-math-errno",
                                   "-fno-trapping-math",
                                   "-fno-exceptions",
                                   "-fno-rtti",
                                   "-fvisibility=hidden",
                                   "-g0",
                                   "-fPIC",
                                   "-shared",
                                   "-static-libgcc",
                                   "-Wl,--build-id=none,--as-needed,-z,noexecstack"};
  return *flags;
}

// No -ffast-math: NaN and infinities mean what docs/semantics.md says.
const std::vector<std::string>& cpu_flags() {
  static const auto* flags = new std::vector<std::string>{"-O3", "-ffp-contract=fast"};
  return *flags;
}

}  // namespace

CompileResult compile_cpu_image(const SystemCompiler& compiler, const spec::Image& image) {
  return compile_shared_object(compiler, image, cpu_flags());
}

CompileResult compile_shared_object(const SystemCompiler& compiler, const spec::Image& image, const std::vector<std::string>& flags) {
  std::vector<std::string> options;
  for (const auto* part : {&shared_object_flags(), &flags, &image.flags}) options.insert(options.end(), part->begin(), part->end());
  auto result = run_compiler(compiler, image.source, options, "source.cpp", "binary.so");
  if (result.ok) result.resources = {{"code_bytes", elf_code_bytes(result.binary)}};
  return result;
}

}  // namespace ejk
