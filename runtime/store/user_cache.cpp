// The user's cache folder: where it is, and whether it can be trusted.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "store/store.hpp"

namespace ejk::store {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path wanted_folder() {
  if (const auto own = variable("EJKERNEL_CACHE_DIR"); !own.empty()) return own;
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) return fs::path(cache) / "ejk";  // a relative one is void
  if (const auto home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "ejk";
  return {};
}

// Missing folders down to `path`, each for this user alone. False: errno says why.
bool make_private(const fs::path& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0) return true;
  const auto parent = path.parent_path();
  if (!parent.empty() && parent != path && !make_private(parent)) return false;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

}  // namespace

std::optional<fs::path> user_cache_dir(std::string& why_not) {
  const auto path = wanted_folder();
  if (path.empty()) {
    why_not = "none of EJKERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
    return std::nullopt;
  }
  std::error_code error;
  const auto whole = fs::absolute(path, error);
  struct stat facts {};
  if (error || !make_private(whole) || stat(whole.c_str(), &facts) != 0) {
    why_not = fmt::format("cannot make the cache folder {}: {}", path.string(), error ? error.message() : std::strerror(errno));
  } else if (!S_ISDIR(facts.st_mode)) {
    why_not = fmt::format("the cache folder {} is not a folder", path.string());
  } else if (facts.st_uid != geteuid()) {
    why_not = fmt::format("the cache folder {} belongs to user {}, expected {}: binaries of others are not loaded", path.string(),
                          facts.st_uid, geteuid());
  } else if (facts.st_mode & 022) {
    why_not =
        fmt::format("the cache folder {} is writable by others (mode {:o}): run chmod go-w on it", path.string(), facts.st_mode & 07777);
  } else {
    return whole;
  }
  return std::nullopt;
}

}  // namespace ejk::store
