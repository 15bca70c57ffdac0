// dlopen over candidates.
#include "backends/gpu/vendor_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

namespace ejk {
namespace {

namespace fs = std::filesystem;

std::string canonical(const char* path) {
  std::error_code error;
  const auto file = fs::canonical(path, error);
  return error ? path : file.string();
}

std::string loaded_path(void* handle, const std::string& candidate) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && *map->l_name ? canonical(map->l_name) : candidate;
}

// Worth telling: a file that is there but does not load. That a name is nowhere is said by "looked for".
bool is_absence(const std::string& candidate, const std::string& words) {
  std::error_code error;
  if (candidate.find('/') != std::string::npos) return !fs::exists(candidate, error);
  return words.find("cannot open shared object file: No such file") != std::string::npos && words.starts_with(candidate);
}

}  // namespace

VendorLibrary open_first(const std::vector<std::string>& candidates) {
  VendorLibrary library;
  std::string names, complaints;
  for (const auto& candidate : candidates) {
    library.handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle) {
      library.path = loaded_path(library.handle, candidate);
      return library;
    }
    const char* words = dlerror();
    if (words && !is_absence(candidate, words)) complaints += std::string("; ") + words;
    names += (names.empty() ? "" : ", ") + candidate;
  }
  library.why_not = names.empty() ? "nowhere to look" : "looked for " + names + complaints;
  return library;
}

std::string file_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) && info.dli_fname ? canonical(info.dli_fname) : "";
}

void* SymbolReader::find(const char* name) {
  void* symbol = dlsym(library_, name);
  if (!symbol) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
  return symbol;
}

}  // namespace ejk
