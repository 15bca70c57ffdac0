// Reading and writing by descriptors, so that what went wrong can be told.
#include "generator/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "spec/render/banner.hpp"

namespace ejk::generator {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t head_bytes = 1024;  // of a file, where its mark is

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  throw std::runtime_error(fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

}  // namespace

bool carries_mark(std::string_view bytes) { return bytes.substr(0, head_bytes).find(spec::generated_mark) != std::string_view::npos; }

bool file_carries_mark(const fs::path& path) {
  const File file(path, O_RDONLY);
  char head[head_bytes];
  const ssize_t size = file.fd() < 0 ? 0 : ::read(file.fd(), head, sizeof head);
  return size > 0 && carries_mark(std::string_view(head, static_cast<std::size_t>(size)));
}

void for_each_marked_file(const fs::path& out, const std::function<void(const std::string& name)>& visit) {
  for (const char* folder : {"src", "include/ejk", "python"}) {
    std::error_code error;
    for (fs::recursive_directory_iterator at(out / folder, error), end; !error && at != end; at.increment(error)) {
      if (!at->is_regular_file() || at->is_symlink()) continue;
      if (file_carries_mark(at->path())) visit(at->path().lexically_relative(out).generic_string());
    }
  }
}

void remove_empty_parents(fs::path folder, const fs::path& out) {
  std::error_code error;
  while (folder != out && fs::is_empty(folder, error) && !error) {
    if (!fs::remove(folder, error)) return;
    folder = folder.parent_path();
  }
}

bool read_file(const fs::path& path, std::string& bytes) {
  const File file(path, O_RDONLY);
  if (file.fd() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail(path, "cannot be read");
  }
  struct stat status;
  if (::fstat(file.fd(), &status) != 0) fail(path, "cannot be read");
  bytes.resize(static_cast<std::size_t>(status.st_size));
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(file.fd(), bytes.data() + at, bytes.size() - at);
    if (got < 0) fail(path, "cannot be read");
    if (got == 0) break;
    at += static_cast<std::size_t>(got);
  }
  bytes.resize(at);
  return true;
}

void write_file(const fs::path& path, const std::string& bytes) {
  const fs::path temporary = path.parent_path() / fmt::format(".{}.tmp.{}", path.filename().string(), ::getpid());
  const auto give_up = [&] {
    const int error = errno;
    ::unlink(temporary.c_str());
    errno = error;
    fail(path, "cannot be written");
  };
  File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.fd() < 0) fail(path, "cannot be written");
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t put = ::write(file.fd(), bytes.data() + at, bytes.size() - at);
    if (put < 0) give_up();
    at += static_cast<std::size_t>(put);
  }
  if (file.close() != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) give_up();
}

}  // namespace ejk::generator
