// Appending and replacing under flock. Where a file system has no locks, O_APPEND alone keeps lines whole.
#include "select/locked_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "common/guard.hpp"
#include "ejk/tuning.hpp"
#include "store/files.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;

bool still_named(int fd, const store::HeldFolder& folder, const std::string& name) {
  struct stat open_file {};
  const auto named = folder.facts(name);
  return named && fstat(fd, &open_file) == 0 && open_file.st_ino == named->st_ino && open_file.st_dev == named->st_dev;
}

store::HeldFolder folder_of(const std::string& path) {
  try {
    const auto folder = fs::path(path).parent_path();
    return store::HeldFolder::make(folder.empty() ? fs::path(".") : folder, store::Trust::named(), 0755);
  } catch (const std::runtime_error& error) {
    throw CodedError(ErrorCode::io, fmt::format("cannot make the folder of {}: {}", path, error.what()));
  }
}

// Whether a line without an end is the beginning of a record, as to_json() writes its first words.
bool begins_record(std::string_view line) {
  for (const std::string_view first : {R"({"alternatives":)", R"({"baseline":)"})
    if (line.starts_with(first) || first.starts_with(line)) return true;
  return false;
}

// false: errno says why; EWOULDBLOCK: somebody holds it all that time, which anybody can who can read the file.
bool lock(int fd, std::chrono::milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
    if (std::chrono::steady_clock::now() >= end) return errno = EWOULDBLOCK, false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// The last line that is a record is looked for first: it is where appending ended.
bool holds_records(std::string_view text) {
  while (!text.empty()) {
    const auto end = text.find_last_not_of('\n');
    if (end == std::string_view::npos) return false;
    const auto begin = text.rfind('\n', end);
    const auto line =
        text.substr(begin == std::string_view::npos ? 0 : begin + 1, end - (begin == std::string_view::npos ? 0 : begin + 1) + 1);
    if (record_from_json(line)) return true;
    text = begin == std::string_view::npos ? std::string_view{} : text.substr(0, begin);
  }
  return false;
}

}  // namespace

void LockedFile::fail(const char* what) const {
  throw CodedError(ErrorCode::io, fmt::format("cannot {} {}: {}", what, path_, std::strerror(errno)));
}

LockedFile::LockedFile(const std::string& path, std::chrono::milliseconds at_most)
    : folder_(folder_of(path)), name_(fs::path(path).filename()), path_(path), at_most_(at_most) {
  open_and_lock();
}

LockedFile::LockedFile(store::HeldFolder folder, const std::string& name, std::chrono::milliseconds at_most)
    : folder_(std::move(folder)), name_(name), path_((folder_.path() / name).string()), at_most_(at_most) {
  open_and_lock();
}

void LockedFile::open_and_lock() {
  for (;;) {
    std::string why_not;
    fd_ = folder_.writable_file(name_, O_RDWR | O_APPEND, store::HeldFolder::Readers::all, why_not)
              .release();  // no device: its name would become a file's
    if (fd_ < 0) throw CodedError(ErrorCode::io, fmt::format("cannot open {}", why_not));
    if (!lock(fd_, at_most_)) {
      const int why = errno;
      close(fd_);
      if (why == EWOULDBLOCK)
        throw CodedError(ErrorCode::io,
                         fmt::format("{} has been locked by another process for more than {} s", path_, at_most_.count() / 1000.0));
      errno = why;
      fail("lock");
    }
    if (still_named(fd_, folder_, name_)) return;
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

std::string LockedFile::text() const {
  std::string why_not;
  if (lseek(fd_, 0, SEEK_SET) != 0) fail("read");
  auto text = store::read_open_file(fd_, path_, store::lines_limit, why_not);
  if (!text) throw CodedError(ErrorCode::io, "cannot read " + why_not);
  return std::move(*text);
}

// Whoever named a file here that holds no record: it is something else.
std::string LockedFile::text_of_records() const {
  auto whole = text();
  const bool first_line = whole.find('\n') == std::string::npos;
  if (!whole.empty() && !holds_records(whole) && !(first_line && begins_record(whole)))
    throw CodedError(ErrorCode::bad_input,
                     fmt::format("{} holds no records, and is left as it is; name another folder, or remove it", path_));
  return whole;
}

void LockedFile::mend_end() const {
  const auto whole = text_of_records();
  const auto end = whole.rfind('\n');
  const auto tail = std::string_view(whole).substr(end == std::string::npos ? 0 : end + 1);
  if (tail.empty()) return;
  if (begins_record(tail) && !record_from_json(tail)) {
    if (ftruncate(fd_, static_cast<off_t>(whole.size() - tail.size())) != 0) fail("mend");
  } else {
    write_all(fd_, "\n", "write");
  }
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
  (void)text_of_records();
  const auto fresh = name_ + ".new";  // one name, under the lock: what a killed writer left goes first
  folder_.remove(fresh);
  try {
    folder_.write(fresh, bytes);
    std::string why_not;
    (void)folder_.writable_file(fresh, O_RDWR, store::HeldFolder::Readers::all, why_not);  // a group's folder: the group's mode
  } catch (const std::runtime_error& error) {
    folder_.remove(fresh);
    throw CodedError(ErrorCode::io, fmt::format("cannot rewrite {}: {}", path_, error.what()));
  }
  if (folder_.rename(fresh, folder_, name_)) return;
  const int why = errno;
  folder_.remove(fresh);
  errno = why;
  fail("rewrite");
}

void LockedFile::remove() const {
  (void)text_of_records();
  if (!folder_.remove(name_)) fail("remove");
}

}  // namespace ejk
