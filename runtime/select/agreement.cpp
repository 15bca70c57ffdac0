// The lock and the failure note of an agreement folder.
#include "select/agreement.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "store/files.hpp"

namespace ejk {

namespace {

constexpr unsigned of_group = 02770, of_user = 0700;  // who can read a file there can lock it

// The folder may not be there yet: then it is made by this user, for this user.
store::Trust trust_of(const std::string& folder) {
  struct stat facts {};
  (void)::stat(folder.c_str(), &facts);
  return store::Trust::agreement(facts);
}

}  // namespace

store::HeldFolder make_agreement_folder(const std::string& folder, const std::string& device) {
  const auto trust = trust_of(folder);
  const auto top = store::HeldFolder::make(folder, trust, of_user);
  auto held = top.make_folder(device, trust.shared() ? of_group : of_user);
  struct stat facts {};
  if (trust.shared() && ::fstat(top.descriptor(), &facts) == 0) held.share(facts.st_gid, of_group);  // whatever the umask took away
  return held;
}

std::optional<store::HeldFolder> open_agreement_folder(const std::string& folder, const std::string& device, std::string& why_not) {
  const auto top = store::HeldFolder::open(folder, trust_of(folder), why_not);
  return top ? top->folder(device, why_not) : std::nullopt;
}

Agreement::Agreement(const std::string& folder, const Invocation& invocation, const std::string& key)
    : folder_(folder),
      device_(invocation.device),
      stem_(fmt::format(".{}-{:016x}", invocation.kernel, XXH3_64bits(key.data(), key.size()))) {}

Agreement::~Agreement() {
  if (fd_ < 0) return;
  flock(fd_, LOCK_UN);  // also for copies that a forked child has
  close(fd_);
}

std::string Agreement::wait(std::chrono::seconds at_most) {
  try {
    held_ = make_agreement_folder(folder_, device_);
  } catch (const std::runtime_error& refused) {
    return refused.what();
  }
  const auto name = stem_ + ".lock", path = (held_->path() / name).string();
  std::string why_not;
  fd_ = held_->writable_file(name, O_RDWR, store::HeldFolder::Readers::users, why_not).release();
  if (fd_ < 0) return why_not;
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
  return held_ ? held_->read(stem_ + ".failed", store::info_limit, why_not) : std::nullopt;
}

// Under the lock, so that one name serves: what a killed process left of it goes first. What is there is replaced, never written into.
void Agreement::note_failure(const std::string& reason) const {
  if (!held_) return;  // wait() failed: there is no lock
  const auto fresh = stem_ + ".failed-new";
  try {
    held_->remove(fresh);
    held_->write(fresh, reason);
    held_->rename(fresh, *held_, stem_ + ".failed");
  } catch (const std::runtime_error&) {
    // Then the next process measures, and fails, by itself.
  }
}

}  // namespace ejk
