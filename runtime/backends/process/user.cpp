// The user, by /proc and by owners and modes of folders.
#include "backends/process/user.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace ejk {

namespace fs = std::filesystem;

uid_t unmapped_owner() {
  static const auto owner = [] {
    constexpr auto none = static_cast<uid_t>(-1);
    uid_t overflow = none;
    if (std::ifstream file("/proc/sys/kernel/overflowuid"); !(file >> overflow)) return none;
    std::ifstream map("/proc/self/uid_map");
    for (unsigned long first = 0, outside = 0, count = 0; map >> first >> outside >> count;)
      if (overflow >= first && overflow - first < count) return none;
    return overflow;
  }();
  return owner;
}

bool private_group(gid_t group) { return group != 0 && group == geteuid() && group == getegid(); }

std::string why_exchangeable(const fs::path& folder) {
  std::error_code error;
  const auto real = fs::canonical(folder, error);
  if (error) return fmt::format("{}: {}", folder.string(), error.message());
  fs::path step;
  for (const auto& name : real) {
    step /= name;
    struct stat facts {};
    if (lstat(step.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return step.string() + " is no folder";
    const bool trusted = facts.st_uid == geteuid() || facts.st_uid == 0 || facts.st_uid == unmapped_owner();
    if (!trusted) return fmt::format("{} belongs to user {}", step.string(), facts.st_uid);
    const bool open = (facts.st_mode & S_IWOTH) || ((facts.st_mode & S_IWGRP) && !private_group(facts.st_gid));
    if (open && !(facts.st_mode & S_ISVTX))
      return fmt::format("{} is writable by others (mode {:o})", step.string(), facts.st_mode & 07777);
  }
  return {};
}

}  // namespace ejk
