// The user's cache folder: where it is, and whether it can be trusted.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "store/files.hpp"
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

constexpr char elsewhere[] = "; name another folder in EJKERNEL_CACHE_DIR";

}  // namespace

std::string distrust(const fs::path& folder) {
  struct stat facts {};
  if (stat(folder.c_str(), &facts) != 0) return {};
  if (!S_ISDIR(facts.st_mode)) return fmt::format("the cache folder {} is not a folder{}", folder.string(), elsewhere);
  if (facts.st_uid != geteuid())
    return fmt::format("the cache folder {} belongs to user {}, expected {}: binaries of others are not loaded{}", folder.string(),
                       facts.st_uid, geteuid(), elsewhere);
  if (facts.st_mode & 022)
    return fmt::format("the cache folder {} is writable by others (mode {:o}): run chmod go-w on it", folder.string(),
                       facts.st_mode & 07777);
  return {};
}

std::optional<fs::path> user_cache_dir(std::string& why_not) {
  const auto path = wanted_folder();
  if (path.empty()) {
    why_not = "none of EJKERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set: name a folder in one, to keep what is compiled";
    return std::nullopt;
  }
  std::error_code error;
  const auto whole = fs::absolute(path, error);
  try {
    make_folders(whole, 0700);
  } catch (const std::runtime_error& problem) {
    why_not = fmt::format("{}{}", problem.what(), elsewhere);
    return std::nullopt;
  }
  why_not = distrust(whole);
  return why_not.empty() ? std::optional(whole) : std::nullopt;
}

}  // namespace ejk::store
