// Looks for ejk where builds and installs put it.
#include "tune/worker_program.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace ejk {
namespace {

namespace fs = std::filesystem;

fs::path this_program() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

fs::path this_library() {
  Dl_info info{};
  std::error_code error;
  if (!dladdr(reinterpret_cast<const void*>(&this_library), &info) || !info.dli_fname) return {};
  auto path = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : path;
}

}  // namespace

std::string WorkerProgram::why_not() const {
  return path.empty() ? fmt::format("no worker program: looked for {}", fmt::join(looked, ", ")) : "";
}

WorkerProgram find_worker(const std::string& named) {
  WorkerProgram found;
  const auto look = [&](const fs::path& path) {
    if (!found.path.empty() || path.empty()) return;
    for (const auto& before : found.looked)
      if (before == path.string()) return;
    found.looked.push_back(path.string());
    std::error_code error;
    if (fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0) found.path = path.string();
  };
  if (!named.empty()) {
    look(named);
    return found;
  }
  if (this_program().filename() == "ejk") look(this_program());
  for (const auto& file : {this_library(), this_program()}) {
    if (file.empty()) continue;
    look(file.parent_path() / "ejk");
    look(file.parent_path().parent_path() / "bin" / "ejk");
  }
  return found;
}

}  // namespace ejk
