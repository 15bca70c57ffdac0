// Temporary folders, and the removal of those that killed processes left.
#include "backends/process/temporary_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "backends/process/owner.hpp"
#include "backends/process/user.hpp"

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
    if (struct stat facts{};
        lstat(entry->path().c_str(), &facts) == 0 && facts.st_uid == geteuid() && abandoned(entry->path().string(), prefix))
      gone.push_back(entry->path());
  for (const auto& path : gone) fs::remove_all(path, error);
}

namespace {

// "" or why not. What is compiled there is loaded: nobody else may put another folder in the place of ours.
std::string why_no_work_in(const fs::path& folder) {
  struct stat facts {};
  if (stat(folder.c_str(), &facts) != 0) return fmt::format("{}: {}", folder.string(), std::strerror(errno));
  if (!S_ISDIR(facts.st_mode)) return folder.string() + " is no folder";
  if (access(folder.c_str(), W_OK | X_OK) != 0) return fmt::format("{}: {}", folder.string(), std::strerror(errno));
  return why_exchangeable(folder);
}

fs::path work_root() {
  const char* chosen = std::getenv("TMPDIR");
  std::string reasons;
  for (const char* root : {chosen ? chosen : "", "/tmp", "/var/tmp"}) {
    if (!*root) continue;
    const auto why_not = why_no_work_in(root);
    if (why_not.empty()) return root;
    reasons += (reasons.empty() ? "" : "; ") + why_not;
  }
  throw std::runtime_error("there is no folder for compilers to work in: " + reasons + "; name one of this user's own in TMPDIR");
}

}  // namespace

fs::path work_folder_name() {
  static constexpr char prefix[] = "ejk-compile-";
  static std::once_flag once;
  const auto root = work_root();
  std::call_once(once, [&] { remove_abandoned(root, prefix); });
  return root / owned_name(prefix);
}

}  // namespace ejk
