// Agreement of the processes of one job on one key: a lock that one of them holds while it measures, and word of a failure.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "ejk/kernel.hpp"

namespace ejk {

// Files <folder>/<device>/.<kernel>-<hash of the key>.lock and .failed beside the records. The lock goes with its process.
class Agreement {
 public:
  Agreement(const std::string& folder, const Invocation& invocation, const std::string& key);
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;
  ~Agreement();
  // "" once the lock is held; otherwise why not: the time is up, or the folder cannot be written.
  std::string wait(std::chrono::seconds at_most);
  std::optional<std::string> failure() const;  // what another process said of its attempt
  void note_failure(const std::string& reason) const;

 private:
  std::string stem_;
  int fd_ = -1;
};

}  // namespace ejk
