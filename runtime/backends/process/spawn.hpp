// What every program that ejk starts gets: a process group of its own, and signals as a fresh program expects them.
#pragma once
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

namespace ejk {

struct Descriptor {
  int value = -1;
  explicit Descriptor(int value_ = -1) : value(value_) {}
  Descriptor(Descriptor&& other) noexcept : value(std::exchange(other.value, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { close_now(); }
  void close_now() {
    if (value >= 0) close(value);
    value = -1;
  }
};

// For posix_spawn; the texts must outlive it.
inline std::vector<char*> spawn_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// A fresh process group, no blocked signals, default handlers for what hosts like to ignore.
struct SpawnAttributes {
  posix_spawnattr_t value;
  SpawnAttributes() {
    posix_spawnattr_init(&value);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (int signal : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD, SIGXFSZ}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigmask(&value, &none);
    posix_spawnattr_setsigdefault(&value, &defaults);
    posix_spawnattr_setflags(&value, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  ~SpawnAttributes() { posix_spawnattr_destroy(&value); }
};

}  // namespace ejk
