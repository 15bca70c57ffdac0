// Lock files that vanish when they are released: who locks one makes sure that it is still the one of that name.
#include "store/lock_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "backends/owner.hpp"

namespace ejk::store {
namespace {

namespace fs = std::filesystem;

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

bool still_named(int fd, const fs::path& path) {
  struct stat open_file {
  }, named{};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
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

LockAttempt try_lock(const fs::path& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return {};
    int result = 0;
    while ((result = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) continue;
    if (result != 0) return failed(fd, errno);
    if (still_named(fd, path)) {
      write_record(fd);
      return {LockAttempt::Outcome::locked, fd, {}};
    }
    close(fd);  // its holder removed it between our open and our lock
  }
}

void release_lock(int fd, const fs::path& path) {
  if (still_named(fd, path)) unlink(path.c_str());
  flock(fd, LOCK_UN);  // also for copies that a forked child has
  close(fd);
}

void remove_dead_lock(const fs::path& path, const std::string& holder) {
  const Descriptor folder{open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.value < 0 || flock(folder.value, LOCK_EX | LOCK_NB) != 0) return;  // another waiter is at it
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value >= 0 && record_of(file.value) == holder) unlink(path.c_str());
}

void remove_free_locks(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> locks;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".lock" && entry->is_regular_file(error)) locks.push_back(entry->path());
  for (const auto& path : locks)
    if (const auto attempt = try_lock(path); attempt.outcome == LockAttempt::Outcome::locked) release_lock(attempt.fd, path);
}

}  // namespace ejk::store
