// Appending and replacing under flock. Where a file system has no locks, O_APPEND alone keeps lines whole.
#include "select/locked_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ejk/tuning.hpp"
#include "execute/guard.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;

bool is_regular(int fd) {
  struct stat facts {};
  return fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
}

bool still_named(int fd, const std::string& path) {
  struct stat open_file {
  }, named{};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

bool lock(int fd) {
  while (flock(fd, LOCK_EX) != 0)
    if (errno != EINTR) return errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
  return true;
}

}  // namespace

void LockedFile::fail(const char* what) const {
  throw CodedError(ErrorCode::io, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
}

LockedFile::LockedFile(const std::string& path) : path_(path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) throw CodedError(ErrorCode::io, fmt::format("cannot make the folder of {}: {}", path, error.message()));
  for (;;) {
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("open");
    if (!is_regular(fd_)) {  // a device's name, such as /dev/null, would become a file's
      close(fd_);
      throw CodedError(ErrorCode::io, fmt::format("{} is not a regular file; name another", path));
    }
    if (!lock(fd_)) {
      const int why = errno;
      close(fd_);
      errno = why;
      fail("lock");
    }
    if (still_named(fd_, path)) return;
    close(fd_);  // replaced between our open and our lock
  }
}

LockedFile::~LockedFile() {
  flock(fd_, LOCK_UN);  // also for copies that a forked child has
  close(fd_);
}

void LockedFile::write_all(int fd, std::string_view bytes, const char* what) const {
  while (!bytes.empty()) {
    const auto count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(what);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void LockedFile::mend_end() const {
  const auto size = lseek(fd_, 0, SEEK_END);
  if (size < 0) fail("read");
  std::string tail;  // from the last line end to the end of the file
  for (off_t at = size; at > 0;) {
    char block[4096];
    const auto length = std::min<off_t>(at, sizeof block);
    if (pread(fd_, block, static_cast<std::size_t>(length), at - length) != length) fail("read");
    at -= length;
    const std::string_view view(block, static_cast<std::size_t>(length));
    const auto end = view.rfind('\n');
    tail.insert(0, view.substr(end == std::string_view::npos ? 0 : end + 1));
    if (end != std::string_view::npos) break;
  }
  if (tail.empty()) return;
  if (record_from_json(tail))
    write_all(fd_, "\n", "write");
  else if (ftruncate(fd_, size - static_cast<off_t>(tail.size())) != 0)
    fail("mend");
}

void LockedFile::append_line(std::string_view line) const {
  mend_end();
  const auto before = lseek(fd_, 0, SEEK_END);
  try {
    write_all(fd_, std::string(line) + "\n", "append to");
    if (fdatasync(fd_) != 0 && errno != EINVAL && errno != ENOSYS) fail("append to");
  } catch (...) {
    if (before < 0 || ftruncate(fd_, before) != 0) throw;  // what is left of the line, the next append cuts off
    throw;
  }
}

void LockedFile::replace(std::string_view bytes) const {
  const auto temporary = path_ + ".new";  // one name: what a killed writer left is overwritten
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("rewrite");
  try {
    write_all(fd, bytes, "rewrite");
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOSYS) fail("rewrite");
    if (rename(temporary.c_str(), path_.c_str()) != 0) fail("rewrite");
  } catch (...) {
    close(fd);
    unlink(temporary.c_str());
    throw;
  }
  close(fd);
}

}  // namespace ejk
