// Makes one folder hold the files of another, file by file and atomically: readers see the old or the new text of a file.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace ejk::tools {

struct MirrorReport {
  std::size_t written = 0, unchanged = 0, removed = 0;
};

// Files of `from` whose name ends in one of the extensions; others below `to` with such an extension are removed. Equal files are not
// touched. Throws std::runtime_error with the path.
MirrorReport mirror(const std::filesystem::path& from, const std::filesystem::path& to, const std::vector<std::string>& extensions);

}  // namespace ejk::tools
