// Copying a tree of small text files.
#include "store/mirror.hpp"

#include <algorithm>
#include <stdexcept>

#include "backends/process/owner.hpp"
#include "backends/process/temporary_folder.hpp"
#include "store/files.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

constexpr char temporary_prefix[] = ".mirror-";
constexpr std::size_t longest_file = std::size_t{1} << 26;

// Paths relative to the root, sorted.
std::vector<fs::path> files_below(const fs::path& root, const std::vector<std::string>& extensions) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file() && std::find(extensions.begin(), extensions.end(), entry.path().extension().string()) != extensions.end())
      files.push_back(entry.path().lexically_relative(root));
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_whole(const fs::path& path) {
  std::string why;
  auto bytes = store::read_file(path, longest_file, why);
  if (!bytes) throw std::runtime_error(path.string() + ": " + why);
  return std::move(*bytes);
}

bool holds(const fs::path& path, const std::string& bytes) {
  std::string why;
  const auto found = store::read_file(path, longest_file, why);
  return found && *found == bytes;
}

// `temporary`: on the same file system, without an extension that anybody looks for.
void replace(const fs::path& path, const std::string& bytes, const fs::path& temporary) {
  store::make_folders(path.parent_path());
  store::write_synced(temporary, bytes);
  fs::rename(temporary, path);
}

}  // namespace

MirrorReport mirror(const fs::path& from, const fs::path& to, const std::vector<std::string>& extensions) {
  if (!fs::is_directory(from)) throw std::runtime_error(from.string() + ": no such folder");
  MirrorReport report;
  store::make_folders(to);
  if (fs::equivalent(from, to)) return report;
  remove_abandoned(to, temporary_prefix);  // of killed processes
  const TemporaryFolder folder(to / owned_name(temporary_prefix));
  const auto wanted = files_below(from, extensions);
  for (const auto& file : wanted) {
    const auto bytes = read_whole(from / file);
    const bool equal = holds(to / file, bytes);
    if (!equal) replace(to / file, bytes, folder.path() / "new");
    ++(equal ? report.unchanged : report.written);
  }
  for (const auto& file : files_below(to, extensions)) {
    if (std::binary_search(wanted.begin(), wanted.end(), file)) continue;
    fs::remove(to / file);
    ++report.removed;
  }
  return report;
}

}  // namespace ejk::tools
