// The lock and the failure note of an agreement folder.
#include "select/agreement.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "store/files.hpp"

namespace ejk {

Agreement::Agreement(const std::string& folder, const Invocation& invocation, const std::string& key)
    : stem_(fmt::format("{}/{}/.{}-{:016x}", folder, invocation.device, invocation.kernel, XXH3_64bits(key.data(), key.size()))) {}

Agreement::~Agreement() {
  if (fd_ < 0) return;
  flock(fd_, LOCK_UN);  // also for copies that a forked child has
  close(fd_);
}

std::string Agreement::wait(std::chrono::seconds at_most) {
  const auto path = stem_ + ".lock";
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) return fmt::format("{} cannot be made: {}", path, std::strerror(errno));
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fmt::format("{} cannot be locked: {}", path, std::strerror(errno));
    if (std::chrono::steady_clock::now() >= end)
      return fmt::format("another process has been measuring this call for more than {} s ({} is locked; EJKERNEL_AGREEMENT_TIMEOUT)",
                         at_most.count(), path);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

std::optional<std::string> Agreement::failure() const {
  std::string why_not;
  return store::read_file(stem_ + ".failed", store::info_limit, why_not);
}

void Agreement::note_failure(const std::string& reason) const { std::ofstream(stem_ + ".failed") << reason; }

}  // namespace ejk
