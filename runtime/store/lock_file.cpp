// Lock files that vanish when they are released: who locks one makes sure that it is still the one of that name.
#include "store/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "backends/process/owner.hpp"

namespace ejk::store {
namespace {

bool still_named(int fd, const HeldFolder& folder, const std::string& name) {
  struct stat open_file {};
  const auto named = folder.facts(name);
  return named && fstat(fd, &open_file) == 0 && open_file.st_ino == named->st_ino && open_file.st_dev == named->st_dev;
}

std::string record_of(int fd) {
  char text[512];
  const auto count = pread(fd, text, sizeof text, 0);
  if (count <= 0) return {};
  const std::string whole(text, static_cast<std::size_t>(count));
  const auto end = whole.find('\n');
  return end == std::string::npos ? "" : whole.substr(0, end);
}

void write_record(int fd) {
  const auto text = ejk::Owner::self().text() + "\n";
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text.data(), text.size(), 0) < 0) {
    // A full disk: the lock holds without the record, only the waiters' message has no name in it.
  }
}

LockAttempt failed(int fd, int error) {
  LockAttempt attempt;
  if (error == EWOULDBLOCK) {
    attempt.outcome = LockAttempt::Outcome::held;
    attempt.holder = record_of(fd);
  } else {
    attempt.outcome = LockAttempt::Outcome::without_locks;
  }
  close(fd);
  return attempt;
}

}  // namespace

LockAttempt try_lock_file(const HeldFolder& folder, const std::string& name) {
  for (;;) {
    std::string ignored;
    auto file = folder.file(name, O_RDWR | O_CREAT, 0600, ignored);  // who can open it can lock it
    if (!file) return {};
    const int fd = file.release();
    int result = 0;
    while ((result = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) continue;
    if (result != 0) return failed(fd, errno);
    if (still_named(fd, folder, name)) {
      write_record(fd);
      return {LockAttempt::Outcome::locked, fd, {}};
    }
    close(fd);  // its holder removed it between our open and our lock
  }
}

void release_lock(int fd, const HeldFolder& folder, const std::string& name) {
  if (still_named(fd, folder, name)) folder.remove(name);
  flock(fd, LOCK_UN);  // also for copies that a forked child has
  close(fd);
}

void remove_dead_lock(const HeldFolder& folder, const std::string& name, const std::string& holder) {
  std::string ignored;
  const Descriptor itself(openat(folder.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!itself || flock(itself.get(), LOCK_EX | LOCK_NB) != 0) return;  // another waiter is at it
  const auto file = folder.file(name, O_RDONLY, 0, ignored);
  if (file && record_of(file.get()) == holder) folder.remove(name);
}

void remove_free_locks(const HeldFolder& folder) {
  for (const auto& name : folder.names()) {
    const auto facts = name.ends_with(".lock") ? folder.facts(name) : std::nullopt;
    if (!facts || !S_ISREG(facts->st_mode)) continue;
    if (const auto attempt = try_lock_file(folder, name); attempt.outcome == LockAttempt::Outcome::locked)
      release_lock(attempt.fd, folder, name);
  }
}

}  // namespace ejk::store
