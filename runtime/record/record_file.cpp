// Appends lines to the file of EJKERNEL_OPS_RECORD, each with one write().
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "describe/values.hpp"
#include "record/recorder.hpp"

namespace ejk {
namespace {

// Whether a regular file ends within a line: its last writer was cut off. It is open for writing only.
bool ends_within_line(const std::string& path, int writing) {
  struct stat written {
  }, named{};
  if (fstat(writing, &written) != 0 || !S_ISREG(written.st_mode) || written.st_size == 0) return false;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return false;  // one that may only be written
  char last = '\n';
  const bool same = fstat(fd, &named) == 0 && named.st_ino == written.st_ino && named.st_dev == written.st_dev;
  const bool torn = same && pread(fd, &last, 1, written.st_size - 1) == 1 && last != '\n';
  ::close(fd);
  return torn;
}

bool is_pipe(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISFIFO(facts.st_mode);
}

// While it lives, a write to a pipe without a reader is an error of this thread instead of the signal that ends a program.
class SilentPipe {
 public:
  SilentPipe() {
    sigset_t pending;
    sigemptyset(&only_);
    sigaddset(&only_, SIGPIPE);
    before_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &only_, &mask_);
  }
  ~SilentPipe() {
    const int kept = errno;
    const timespec none{};
    if (!before_)
      while (sigtimedwait(&only_, nullptr, &none) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    errno = kept;
  }
  SilentPipe(const SilentPipe&) = delete;
  SilentPipe& operator=(const SilentPipe&) = delete;

 private:
  sigset_t only_, mask_;
  bool before_;  // one was waiting already: it is the program's
};

}  // namespace

RecordFile* RecordFile::of_process() {
  static auto* file = [] {
    const auto& path = Library::instance().parts().environment.record;
    return path.empty() ? nullptr : new RecordFile(path);
  }();
  return file;
}

void RecordFile::add(const RecordedInvocation& recorded) {
  const auto line = to_json(recorded);
  const std::lock_guard lock(mutex_);
  if (!line) {
    ++lost_;
    return miss("a call is not recorded: " + line.error().message);
  }
  const auto hash = XXH3_64bits(line->data(), line->size());
  if (!seen_.insert(hash).second) return;
  if (fd_ < 0 && !stopped_) open();
  if (fd_ >= 0 && !stopped_ && write_line(*line)) return;
  ++lost_;
  if (!stopped_) seen_.erase(hash);  // it may come again, and a reader with it
}

void RecordFile::open() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (fd_ >= 0) {
    torn_ = ends_within_line(path_, fd_);
    return;
  }
  const int error = errno;
  if (error == ENXIO && is_pipe(path_)) return miss(fmt::format("EJKERNEL_OPS_RECORD: nobody reads the pipe '{}'", path_));
  fail("cannot be opened", error);
}

// One write at the end of the file, so that lines of several processes do not mix. Of a line cut short (the disk is full, the pipe had room
// for a part) the rest is not written after it, where another process's line may lie by then: readers name the piece and pass over it.
bool RecordFile::write_line(const std::string& line) {
  const auto text = (torn_ ? "\n" : "") + line + "\n";
  const SilentPipe silent;
  const auto written = ::write(fd_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) {
    torn_ = false;
    error_.clear();
    ++lines_;
    return true;
  }
  torn_ = torn_ || written > 0;
  not_written(written < 0 ? errno : written > 0 && is_pipe(path_) ? EAGAIN : ENOSPC);
  return false;
}

void RecordFile::not_written(int error) {
  if (error == EAGAIN)
    return miss(fmt::format("EJKERNEL_OPS_RECORD: '{}' is full: its reader is slower than the calls, which do not wait", path_));
  if (error != EPIPE) return fail("cannot be written", error);
  ::close(fd_);
  fd_ = -1;  // a new reader is looked for with the next line
  torn_ = false;
  miss(fmt::format("EJKERNEL_OPS_RECORD: the reader of the pipe '{}' has gone", path_));
}

void RecordFile::fail(const std::string& what, int error) {
  stopped_ = true;
  miss(fmt::format("EJKERNEL_OPS_RECORD: '{}' {}: {}; calls are no longer recorded", path_, what, std::strerror(error)));
}

void RecordFile::miss(std::string why) {
  if (error_ == why) return;
  error_ = std::move(why);
  log_line(error_);
}

RecordingStatus RecordFile::status() const {
  const std::lock_guard lock(mutex_);
  return {path_, lines_, lost_, error_};
}

RecordingStatus recording_status() {
  try {
    if (const auto* file = RecordFile::of_process()) return file->status();
    return {};
  } catch (...) {
    return {{}, 0, 0, current_error().message};
  }
}

}  // namespace ejk
