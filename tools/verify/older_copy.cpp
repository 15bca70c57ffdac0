// Byte by byte, file by file: of a spec, of its variants' templates, and of what those may include.
#include "verify/older_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "spec/read/files.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Files below both folders that differ, by their path in them.
void add_differences(const fs::path& used, const fs::path& here, const fs::path& below, std::vector<fs::path>& found) {
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(here / below, error)) {
    const auto path = fs::relative(entry.path(), here, error);
    if (!is_file(entry.path()) || !is_file(used / path)) continue;
    if (spec::read_text(entry.path()) != spec::read_text(used / path)) found.push_back(path);
  }
}

// The folders of templates that a kernel's variants are made of.
std::set<fs::path> template_folders(const spec::Spec& spec) {
  std::set<fs::path> folders{fs::path("templates") / "device"};
  for (const auto& variant : spec.server().variants) folders.insert((fs::path("templates") / variant.template_file).parent_path());
  return folders;
}

// "b/specs/k.json is older than specs/k.json", with what else differs, and what to do.
std::string sentence(const std::string& kernel, const fs::path& root, const fs::path& folder, const std::vector<fs::path>& found) {
  std::error_code error;
  const auto& first = found.front();
  const bool older = fs::last_write_time(root / first, error) < fs::last_write_time(folder / first, error);
  const auto more = found.size() > 1 ? fmt::format(" (and {} more)", found.size() - 1) : "";
  return fmt::format(
      "{}: the store's {} is used, which is {} than {} here{}: {}", kernel, (root / first).string(), older ? "OLDER" : "newer",
      first.string(), more,
      older
          ? fmt::format("run `ejk-gen specs --out generated` and `ejk build generated --store {}`, or verify these files with `--store .`",
                        root.string())
          : "to verify these files, give `--store .`");
}

}  // namespace

std::vector<std::string> other_copies(const std::vector<const KernelHandle*>& kernels, const fs::path& folder) {
  std::vector<std::string> sentences;
  std::error_code error;
  for (const auto* kernel : kernels) {
    const fs::path file = kernel->spec->file, name = fs::path("specs") / file.filename(), root = file.parent_path().parent_path();
    if (!is_file(folder / name) || fs::equivalent(root, folder, error)) continue;
    std::vector<fs::path> found;
    if (spec::read_text(folder / name) != spec::read_text(root / name)) found.push_back(name);
    for (const auto& templates : template_folders(*kernel->spec)) add_differences(root, folder, templates, found);
    if (!found.empty()) sentences.push_back(sentence(kernel->name, root, folder, found));
  }
  return sentences;
}

}  // namespace ejk::tools
