// Temporary folders, and the removal of those that killed processes left.
#include "backends/temporary_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "backends/owner.hpp"

namespace ejk {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(fs::path path) : path_(std::move(path)) {
  if (mkdir(path_.c_str(), 0700) != 0)
    throw std::runtime_error(fmt::format("cannot make the temporary folder {}: {}", path_.string(), std::strerror(errno)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

void remove_abandoned(const fs::path& folder, const char* prefix) {
  std::error_code error;
  std::vector<fs::path> gone;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (abandoned(entry->path().string(), prefix)) gone.push_back(entry->path());
  for (const auto& path : gone) fs::remove_all(path, error);
}

fs::path work_folder_name() {
  static constexpr char prefix[] = "ejk-compile-";
  static std::once_flag once;
  const char* chosen = std::getenv("TMPDIR");
  const fs::path root = chosen && *chosen ? chosen : "/tmp";
  std::call_once(once, [&] { remove_abandoned(root, prefix); });
  return root / owned_name(prefix);
}

}  // namespace ejk
