// Files of a store, by system calls: their errors name the file.
#include "store/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "store/held_folder.hpp"

namespace ejk::store {

void fail_by_errno(const char* what, const std::filesystem::path& path) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

std::optional<std::string> read_file(const std::filesystem::path& path, std::size_t limit, std::string& why_not) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe in its place must not hang us
  if (file) return read_open_file(file.get(), path, limit, why_not);
  why_not = path.string() + ": " + std::strerror(errno);
  return std::nullopt;
}

std::optional<std::string> read_open_file(int descriptor, const std::filesystem::path& path, std::size_t limit, std::string& why_not) {
  const auto refuse = [&](const std::string& reason) {
    why_not = path.string() + ": " + reason;
    return std::nullopt;
  };
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) return refuse("not a regular file");
  const auto size = static_cast<std::size_t>(facts.st_size);
  if (size > limit) return refuse(fmt::format("{} bytes, expected at most {}", size, limit));
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const auto count = read(descriptor, bytes.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return refuse(std::strerror(errno));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

void write_synced(const std::filesystem::path& path, std::string_view bytes) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) fail_by_errno("create", path);
  while (!bytes.empty()) {
    const auto count = write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_by_errno("write", path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (fsync(file.get()) != 0 && errno != EINVAL && errno != ENOSYS) fail_by_errno("write", path);
}

void sync_folder(const std::filesystem::path& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) (void)fsync(folder.get());
}

void make_folders(const std::filesystem::path& path, unsigned mode) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0) {
    errno = ENOTDIR;
    if (!S_ISDIR(facts.st_mode)) fail_by_errno("make the folder", path);
    return;
  }
  const auto parent = path.parent_path();
  if (!parent.empty() && parent != path) make_folders(parent, mode);
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) fail_by_errno("make the folder", path);
}

}  // namespace ejk::store
