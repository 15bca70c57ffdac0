// Finding libnvrtc and its builtins.
#include "backends/cuda/nvrtc.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "backends/gpu/vendor_library.hpp"

namespace ejk::cuda {
namespace {

namespace fs = std::filesystem;
constexpr const char* names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

void look_in(std::vector<std::string>& candidates, const fs::path& toolkit) {
  std::error_code error;
  for (const char* folder : {"lib64", "lib"})
    for (const char* name : names)
      if (const auto file = toolkit / folder / name; fs::exists(file, error)) candidates.push_back(file.string());
}

// /usr/local/cuda, then cuda-13.0, cuda-12.9, ...: by number, not by text.
std::vector<fs::path> installed_toolkits() {
  std::vector<std::pair<double, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry("/usr/local", error), end; !error && entry != end; entry.increment(error))
    if (const auto name = entry->path().filename().string(); name.starts_with("cuda-"))
      found.emplace_back(-std::strtod(name.c_str() + 5, nullptr), entry->path());
  std::ranges::sort(found);
  std::vector<fs::path> toolkits = {"/usr/local/cuda"};
  for (auto& [version, path] : found) toolkits.push_back(std::move(path));
  return toolkits;
}

std::string resolve(void* library, NvrtcFunctions& call) {
  SymbolReader read(library);
  read("nvrtcVersion", call.version);
  read("nvrtcGetNumSupportedArchs", call.arch_count);
  read("nvrtcGetSupportedArchs", call.archs);
  read("nvrtcGetErrorString", call.error_text);
  read("nvrtcCreateProgram", call.create);
  read("nvrtcCompileProgram", call.compile);
  read("nvrtcDestroyProgram", call.destroy);
  read("nvrtcGetProgramLogSize", call.log_size);
  read("nvrtcGetProgramLog", call.log);
  read("nvrtcGetCUBINSize", call.binary_size);
  read("nvrtcGetCUBIN", call.binary);
  return read.missing();
}

// NVRTC dlopens its builtins by name, which finds them only on the loader's path, or where they are loaded already.
void load_builtins(const fs::path& library, int major, int minor) {
  const auto file = library.parent_path() / fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);  // if that fails, the first compile tells
}

std::mutex added_mutex;

std::vector<fs::path>& added_toolkits() {
  static auto& toolkits = *new std::vector<fs::path>;
  return toolkits;
}

}  // namespace

void add_toolkit(const std::string& path) {
  const std::lock_guard lock(added_mutex);
  added_toolkits().emplace_back(path);
}

std::vector<std::string> nvrtc_candidates() {
  std::vector<std::string> candidates;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* toolkit = std::getenv(variable); toolkit && *toolkit) look_in(candidates, toolkit);
  candidates.insert(candidates.end(), std::begin(names), std::end(names));
  {
    const std::lock_guard lock(added_mutex);
    for (const auto& toolkit : added_toolkits()) look_in(candidates, toolkit);
  }
  for (const auto& toolkit : installed_toolkits()) look_in(candidates, toolkit);
  return candidates;
}

Nvrtc load_nvrtc(const std::vector<std::string>& candidates) {
  Nvrtc nvrtc;
  const auto library = open_first(candidates);
  if (!library.handle) {
    nvrtc.why_not = "no CUDA compiler (NVRTC): " + library.why_not +
                    ". It is part of the CUDA toolkit 12 or 13, looked for in $CUDA_HOME, $CUDA_PATH, on the loader's path, in toolkits "
                    "that were added (ejk_add_toolkit) and in /usr/local/cuda*";
    return nvrtc;
  }
  nvrtc.path = library.path;
  if (const auto missing = resolve(library.handle, nvrtc.call); !missing.empty()) {
    nvrtc.why_not = fmt::format("{} has no {}: NVRTC 12.0 or newer is needed", nvrtc.path, missing);
    return nvrtc;
  }
  int major = 0, minor = 0, count = 0;
  nvrtc.call.version(&major, &minor);
  nvrtc.caches = major > 12 || (major == 12 && minor >= 9);
  nvrtc.description = fmt::format("NVRTC {}.{}", major, minor);
  if (major < 12) nvrtc.why_not = fmt::format("{} is {}: 12.0 or newer is needed", nvrtc.path, nvrtc.description);
  if (nvrtc.call.arch_count(&count) == nvrtc_success && count > 0) {
    nvrtc.archs.resize(static_cast<std::size_t>(count));
    nvrtc.call.archs(nvrtc.archs.data());
  }
  load_builtins(nvrtc.path, major, minor);
  return nvrtc;
}

const Nvrtc& nvrtc() {
  static const auto* found = new Nvrtc(load_nvrtc(nvrtc_candidates()));
  return *found;
}

}  // namespace ejk::cuda
