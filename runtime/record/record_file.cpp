// Appends lines to the file of EJKERNEL_OPS_RECORD, each with one write().
#include <fcntl.h>
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

// Whether a file ends within a line: its last writer was cut off.
bool ends_within_line(int fd) {
  struct stat facts {};
  char last = '\n';
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) return false;
  return pread(fd, &last, 1, facts.st_size - 1) == 1 && last != '\n';
}

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
  if (!error_.empty()) return;
  if (!line) {
    error_ = line.error().message;
    return log_line("a call is not recorded: " + error_);
  }
  if (!seen_.insert(XXH3_64bits(line->data(), line->size())).second) return;
  if (!opened_) open();
  if (fd_ >= 0) write_line(*line);
}

void RecordFile::open() {
  opened_ = true;
  fd_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);  // a pipe, or a file that may only be written
  if (fd_ < 0) return fail("cannot be opened", errno);
  torn_ = ends_within_line(fd_);
}

// One write at the end of the file, so that lines of several processes do not mix. Of a line cut short (the disk is full) the rest is
// not written after it, where another process's line may lie by then: readers name the piece and pass over it.
void RecordFile::write_line(const std::string& line) {
  const auto text = (torn_ ? "\n" : "") + line + "\n";
  const auto written = ::write(fd_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) {
    torn_ = false;
    ++lines_;
    return;
  }
  fail("cannot be written", written < 0 ? errno : ENOSPC);
}

void RecordFile::fail(const std::string& what, int error) {
  error_ = fmt::format("EJKERNEL_OPS_RECORD: '{}' {}: {}; calls are no longer recorded", path_, what, std::strerror(error));
  log_line(error_);
}

RecordingStatus RecordFile::status() const {
  const std::lock_guard lock(mutex_);
  return {path_, lines_, error_};
}

RecordingStatus recording_status() {
  try {
    if (const auto* file = RecordFile::of_process()) return file->status();
    return {};
  } catch (...) {
    return {{}, 0, current_error().message};
  }
}

}  // namespace ejk
