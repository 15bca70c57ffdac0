// Owner records: made from /proc, compared to tell a live process from a dead one.
#include "backends/process/owner.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <vector>

namespace ejk {
namespace {

constexpr std::time_t unknown_owner_lifetime_s = 24 * 3600;  // far longer than any compile

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Fields are joined by '-' and spaces: keep only letters and digits.
std::string plain(std::string text, std::size_t limit) {
  std::erase_if(text, [](unsigned char c) { return !std::isalnum(c); });
  if (text.size() > limit) text.resize(limit);
  return text.empty() ? "unknown" : text;
}

std::string own_host() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return plain(name, 32);
}

std::string own_pid_namespace() {
  char link[64] = {};
  return readlink("/proc/self/ns/pid", link, sizeof(link) - 1) > 0 ? plain(link, 32) : "unknown";
}

// Field 22 of /proc/<pid>/stat, counted after the last ')' because the program's name may hold spaces. 0: no such process.
unsigned long long start_time(long pid) {
  const auto stat = first_line("/proc/" + std::to_string(pid) + "/stat");
  const auto end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return fields ? std::strtoull(field.c_str(), nullptr, 10) : 0;
}

Owner make_self() {
  return {own_host(), plain(first_line("/proc/sys/kernel/random/boot_id"), 12), own_pid_namespace(), getpid(), start_time(getpid())};
}

}  // namespace

const Owner& Owner::self() {
  static std::mutex mutex;
  static Owner owner;  // a forked child has another pid: made again
  const std::lock_guard lock(mutex);
  if (owner.pid != getpid()) owner = make_self();
  return owner;
}

std::string Owner::text() const {
  std::ostringstream out;
  out << host << '-' << boot << '-' << pid_namespace << '-' << pid << '-' << start;
  return out.str();
}

std::optional<Owner> Owner::parse(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '-');) fields.push_back(field);
  if (fields.size() < 5) return std::nullopt;
  Owner owner{fields[0], fields[1], fields[2], std::strtol(fields[3].c_str(), nullptr, 10), std::strtoull(fields[4].c_str(), nullptr, 10)};
  if (owner.pid <= 0) return std::nullopt;
  return owner;
}

bool Owner::dead() const {
  const auto& me = self();
  if (boot == "unknown" || host != me.host) return false;
  if (boot != me.boot) return true;
  if (pid_namespace != me.pid_namespace) return false;
  if (kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  const auto now = start_time(pid);
  return now != 0 && start != 0 && now != start;
}

std::string owned_name(const std::string& prefix) {
  static std::atomic<unsigned> count{0};
  std::random_device random;
  std::ostringstream out;
  out << prefix << Owner::self().text() << '-' << std::hex << random() << count++;
  return out.str();
}

bool abandoned(const std::string& path, const std::string& prefix) {
  const auto name = path.substr(path.rfind('/') + 1);
  if (!name.starts_with(prefix)) return false;
  const auto owner = Owner::parse(name.substr(prefix.size()));
  if (owner && owner->dead()) return true;
  if (owner && owner->host == Owner::self().host && owner->boot == Owner::self().boot &&
      owner->pid_namespace == Owner::self().pid_namespace)
    return false;  // judged, and alive
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && std::time(nullptr) - facts.st_mtime > unknown_owner_lifetime_s;
}

}  // namespace ejk
