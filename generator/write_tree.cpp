// Bringing a folder to the state of a tree, and telling how it differs from one.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "generator/tree.hpp"
#include "spec/render/banner.hpp"

namespace ejk::generator {
namespace {

namespace fs = std::filesystem;

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

bool carries_mark(const fs::path& path) {
  const File file(path, O_RDONLY);
  char head[1024];
  const ssize_t size = file.fd() < 0 ? 0 : ::read(file.fd(), head, sizeof head);
  return size > 0 && std::string_view(head, static_cast<std::size_t>(size)).find(spec::generated_mark) != std::string_view::npos;
}

// Folders that held nothing but what was removed.
void remove_empty_parents(fs::path folder, const fs::path& out) {
  std::error_code error;
  while (folder != out && fs::is_empty(folder, error) && !error) {
    if (!fs::remove(folder, error)) return;
    folder = folder.parent_path();
  }
}

std::map<std::string, std::string> lock_lines(const std::string& text) {
  std::map<std::string, std::string> lines;  // id → hash
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const std::size_t space = line.find(' ');
    if (!line.empty()) lines[line.substr(0, space)] = space == std::string::npos ? "" : line.substr(space + 1);
    at = end + 1;
  }
  return lines;
}

void lock_differences(const std::string& found_text, const std::string& made_text, std::vector<std::string>& list) {
  const auto found = lock_lines(found_text), made = lock_lines(made_text);
  const std::size_t before = list.size();
  for (const auto& [id, hash] : made) {
    const auto old = found.find(id);
    if (old == found.end()) {
      list.push_back(fmt::format("kernels.lock: {} is missing", id));
    } else if (old->second != hash) {
      list.push_back(fmt::format("kernels.lock: {} has hash {}, its source now has {}", id, old->second, hash));
    }
  }
  for (const auto& [id, hash] : found)
    if (!made.count(id)) list.push_back(fmt::format("kernels.lock: {} is not made any more", id));
  if (list.size() == before && found_text != made_text) list.push_back("kernels.lock: not as it is written (order or stray text)");
}

}  // namespace

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

std::vector<std::string> stale_files(const fs::path& out, const Tree& tree) {
  std::vector<std::string> stale;
  for (const char* folder : {"src", "include/ejk", "python"}) {
    std::error_code error;
    for (fs::recursive_directory_iterator at(out / folder, error), end; !error && at != end; at.increment(error)) {
      if (!at->is_regular_file() || at->is_symlink()) continue;
      const std::string name = at->path().lexically_relative(out).generic_string();
      if (!tree.count(name) && carries_mark(at->path())) stale.push_back(name);
    }
  }
  std::sort(stale.begin(), stale.end());
  return stale;
}

WriteReport write_tree(const fs::path& out, const Tree& tree) {
  WriteReport report;
  std::string old;
  fs::path made;  // the last folder made: files come sorted, so folders repeat
  for (const auto& [name, bytes] : tree) {
    const fs::path path = out / name;
    if (read_file(path, old) && old == bytes) {
      ++report.unchanged;
      continue;
    }
    if (path.parent_path() != made) fs::create_directories(made = path.parent_path());
    write_file(path, bytes);
    ++report.written;
  }
  for (const std::string& name : stale_files(out, tree)) {
    fs::remove(out / name);
    remove_empty_parents((out / name).parent_path(), out);
    ++report.removed;
  }
  return report;
}

std::vector<std::string> differences(const fs::path& out, const Tree& tree) {
  std::vector<std::string> list;
  std::string found;
  for (const auto& [name, bytes] : tree) {
    found.clear();
    const bool exists = read_file(out / name, found);
    if (name == "kernels.lock") {
      lock_differences(found, bytes, list);
    } else if (exists && found != bytes) {
      list.push_back(fmt::format("{}: differs from what the specs make", name));
    }
  }
  for (const std::string& name : stale_files(out, tree)) list.push_back(fmt::format("{}: is not made any more", name));
  return list;
}

}  // namespace ejk::generator
