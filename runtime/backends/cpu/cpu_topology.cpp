// Threads and caches: the affinity mask, the control group's quota, sysfs.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/cpu_features.hpp"

namespace ejk {
namespace {

std::string word_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

int affinity_threads() {
  for (std::size_t cpus = 1024; cpus <= 65536; cpus *= 2) {  // the call fails while the mask is smaller than the machine
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (!set) break;
    const auto bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

// The smallest cpu.max between this process's control group (version 2) and the root, in whole threads; 0: no limit.
int quota_threads() {
  std::ifstream file("/proc/self/cgroup");
  std::string line, group;
  while (std::getline(file, line))
    if (line.starts_with("0::")) group = line.substr(3);
  int smallest = 0;
  for (;;) {
    std::ifstream limits("/sys/fs/cgroup" + group + "/cpu.max");
    std::string quota;
    double period = 0;
    if (limits >> quota >> period && quota != "max" && period > 0) {
      const double threads = std::strtod(quota.c_str(), nullptr) / period;
      const int whole = std::max(1, static_cast<int>(threads + 0.999));
      smallest = smallest ? std::min(smallest, whole) : whole;
    }
    const auto parent = group.rfind('/');
    if (parent == std::string::npos) return smallest;
    group.resize(parent);
  }
}

}  // namespace

int available_threads() {
  const int allowed = std::max(1, affinity_threads()), quota = quota_threads();
  return quota ? std::min(allowed, quota) : allowed;
}

std::int64_t parse_cache_size(const std::string& text) {
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  if (digits == 0 || digits > 12) return 0;
  const std::int64_t number = std::stoll(text.substr(0, digits));
  const auto unit = text.substr(digits);
  return unit.empty() ? number : unit == "K" ? number << 10 : unit == "M" ? number << 20 : 0;
}

std::int64_t cpu_cache_bytes(int level) {
  for (int index = 0; index < 16; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    const auto type = word_in(folder + "/type");
    if (type.empty()) return 0;
    if (type != "Instruction" && word_in(folder + "/level") == std::to_string(level)) return parse_cache_size(word_in(folder + "/size"));
  }
  return 0;
}

}  // namespace ejk
