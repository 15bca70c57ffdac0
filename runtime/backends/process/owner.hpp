// Which process made a file: enough to tell, later and from another process, whether that process still lives.
#pragma once
#include <optional>
#include <string>

namespace ejk {

// A process is named by boot, pid namespace, pid and start time: a pid alone is reused, and means nothing in another container.
struct Owner {
  std::string host;  // only to be shown and to tell an earlier boot of this machine from another machine
  std::string boot;  // /proc/sys/kernel/random/boot_id
  std::string pid_namespace;
  long pid = 0;
  unsigned long long start = 0;  // clock ticks after boot

  static const Owner& self();  // follows fork()
  std::string text() const;    // one line
  static std::optional<Owner> parse(const std::string& line);
  // True only if it is sure: the process ran on this machine, in this pid namespace (or before the last boot), and is gone.
  bool dead() const;
};

// Names of temporary folders: "<prefix><host>-<boot>-<namespace>-<pid>-<start>-<random>", each field made safe for a file name.
std::string owned_name(const std::string& prefix);
// Whether a folder of such a name may be removed: its owner is dead, or cannot be judged and the folder is older than a day.
bool abandoned(const std::string& path, const std::string& prefix);

}  // namespace ejk
