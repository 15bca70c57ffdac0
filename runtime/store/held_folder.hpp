// A folder held by a descriptor: judged on the way to it, and everything in it is reached from there, so that nobody who renames a folder
// above it changes what is read or written. Links in it are not followed, unless its trust says so: then each step is judged again.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/trust.hpp"

namespace ejk::store {

class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Descriptor();
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }
  explicit operator bool() const { return value_ >= 0; }

 private:
  int value_;
};

class HeldFolder {
 public:
  // Each folder from the root of the file system down to `path` is judged, links on the way too. nullopt with why_not empty: there is no
  // such folder.
  static std::optional<HeldFolder> open(const std::filesystem::path& path, const Trust& trust, std::string& why_not);
  // Makes what is missing, of that mode whatever the umask adds to it. Throws std::runtime_error: "cannot make the folder ...", or a fault.
  static HeldFolder make(const std::filesystem::path& path, const Trust& trust, unsigned mode);

  // The same one step down.
  std::optional<HeldFolder> folder(const std::string& name, std::string& why_not) const;
  HeldFolder make_folder(const std::string& name, unsigned mode) const;

  const std::filesystem::path& path() const { return path_; }  // for words, not for opening
  const Trust& trust() const { return trust_; }
  bool has(const std::string& name) const;  // also a link that leads nowhere
  std::vector<std::string> names() const;   // empty where the folder cannot be listed

  // The whole of a regular file. nullopt with the reason.
  std::optional<std::string> read(const std::string& name, std::size_t limit, std::string& why_not) const;
  // A regular file of this folder, opened with `flags` and no link followed; -1 with the reason. Never waits for a pipe.
  Descriptor file(const std::string& name, int flags, unsigned mode, std::string& why_not) const;
  // The same to be written: made if it is missing, for others to read or for its users alone (who can open a file can lock it), which in a
  // folder shared with a group are the group. One that has a second name is refused: it may be a private file elsewhere.
  enum class Readers { all, users };
  Descriptor writable_file(const std::string& name, int flags, Readers readers, std::string& why_not) const;
  // A new file, on the disk when it returns. Throws std::runtime_error.
  void write(const std::string& name, std::string_view bytes) const;
  // As rename(2): errno is its word.
  bool rename(const std::string& name, const HeldFolder& to, const std::string& new_name) const;
  bool remove(const std::string& name) const;  // a file or a folder with all in it; a link itself
  void sync() const;                           // best effort: some file systems cannot
  std::optional<struct stat> facts(const std::string& name) const;
  bool touch(const std::string& name) const;  // its time becomes now
  // The folder itself becomes the group's, of that mode, if it is this user's own; only who owns it can.
  void share(gid_t group, unsigned mode) const;
  int descriptor() const { return descriptor_.get(); }

 private:
  HeldFolder(Descriptor descriptor, std::filesystem::path path, Trust trust)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), trust_(std::move(trust)) {}
  Descriptor descriptor_;  // O_PATH: also of folders that may be passed through but not listed
  std::filesystem::path path_;
  Trust trust_;
  Descriptor linked_file(const std::string& name, int flags, std::string& why_not) const;
  static constexpr int most_links_ = 8;
  bool exempt_ = false;  // by EJKERNEL_TRUST: nothing in it is judged
  int links_ = 0;        // links that led from file to file up to here
  friend class Walk;
};

}  // namespace ejk::store
