// Files of a folder that is held: read, written, renamed and removed from its descriptor.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "store/files.hpp"
#include "store/held_folder.hpp"

namespace ejk::store {
namespace {

// Opened to be listed or synced, which O_PATH does not allow.
Descriptor opened(int folder) { return Descriptor(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }

std::vector<std::string> names_in(Descriptor folder) {
  std::vector<std::string> names;
  DIR* const list = folder ? ::fdopendir(folder.get()) : nullptr;
  if (!list) return names;
  folder.release();
  while (const auto* entry = ::readdir(list))
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  ::closedir(list);
  return names;
}

bool remove_below(int folder, const std::string& name, int depth) {
  if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return true;
  if ((errno != EISDIR && errno != EPERM) || depth > 64) return false;
  Descriptor inner(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inner) return false;
  const int descriptor = inner.get();
  for (const auto& each : names_in(opened(descriptor))) remove_below(descriptor, each, depth + 1);
  return ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0;
}

}  // namespace

std::optional<struct stat> HeldFolder::facts(const std::string& name) const {
  struct stat facts {};
  if (::fstatat(descriptor(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return facts;
}

bool HeldFolder::has(const std::string& name) const { return facts(name).has_value(); }

std::vector<std::string> HeldFolder::names() const { return names_in(opened(descriptor())); }

std::optional<std::string> HeldFolder::read(const std::string& name, std::size_t limit, std::string& why_not) const {
  const auto found = file(name, O_RDONLY, 0, why_not);
  if (!found) return std::nullopt;
  return read_open_file(found.get(), path_ / name, limit, why_not);
}

Descriptor HeldFolder::writable_file(const std::string& name, int flags, Readers readers, std::string& why_not) const {
  const unsigned mode = (trust_.shared() ? 0660 : 0600) | (readers == Readers::all ? 0044 : 0);
  auto found = file(name, flags | O_CREAT, mode, why_not);
  struct stat facts {};
  if (!found || ::fstat(found.get(), &facts) != 0) return found;
  if (facts.st_nlink > 1) {
    why_not = (path_ / name).string() + ": it has another name elsewhere, and so is not written into; remove it here";
    return Descriptor();
  }
  if (trust_.shared() && facts.st_uid == ::geteuid() && (facts.st_mode & mode) != mode) (void)::fchmod(found.get(), mode);
  return found;
}

void HeldFolder::write(const std::string& name, std::string_view bytes) const {
  const Descriptor file(::openat(descriptor(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) fail_by_errno("create", path_ / name);
  while (!bytes.empty()) {
    const auto count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_by_errno("write", path_ / name);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOSYS) fail_by_errno("write", path_ / name);
}

bool HeldFolder::rename(const std::string& name, const HeldFolder& to, const std::string& new_name) const {
  return ::renameat(descriptor(), name.c_str(), to.descriptor(), new_name.c_str()) == 0;
}

bool HeldFolder::remove(const std::string& name) const { return remove_below(descriptor(), name, 0); }

void HeldFolder::sync() const {
  if (const auto folder = opened(descriptor())) (void)::fsync(folder.get());
}

// By a descriptor of the folder: its name may by now be a link of somebody else's to another folder of ours.
void HeldFolder::share(gid_t group, unsigned mode) const {
  const auto itself = opened(descriptor());
  struct stat facts {};
  if (!itself || ::fstat(itself.get(), &facts) != 0 || facts.st_uid != ::geteuid()) return;
  if (facts.st_gid != group) (void)::fchown(itself.get(), static_cast<uid_t>(-1), group);
  if ((facts.st_mode & mode) != mode) (void)::fchmod(itself.get(), mode);
}

bool HeldFolder::touch(const std::string& name) const { return ::utimensat(descriptor(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0; }

}  // namespace ejk::store
