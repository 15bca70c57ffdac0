// One layout for pack, wheel payload, team share and user cache:
//   <root>/<kernel>/<image id>-<source hash>/{source.cpp, binary.so, image.json}
//   <root>/specs, <root>/templates          the text the images were made from, so that a pack can also compile
// Entries appear by rename of a finished temporary folder; whoever loses the race uses the winner's. A binary is loaded only if its
// sha256, arch and id match image.json; a bad entry is a miss, is set aside (renamed *.bad) where that is allowed, and is rebuilt.
// Everything is reached from a folder that is held by its descriptor and was judged, with all above it (trust.hpp, held_folder.hpp).
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "spec/render/image.hpp"
#include "store/held_folder.hpp"

namespace ejk::store {

std::string sha256_hex(std::string_view bytes);

// Of the text of a *.failed file: the compiler that refused the source. Empty: the file is damaged.
std::string failure_compiler(const std::string& text);

// Renames an entry to *.bad-1 ... *.bad-9; of nine the first gives way. Best effort.
void set_entry_aside(const HeldFolder& kernel, const std::string& entry);

// image.json, typed. schema is checked on read; unknown versions are a miss.
struct ImageInfo {
  std::string id, kernel, arch, source_hash;
  std::string compiler;
  std::vector<std::string> command;
  std::string binary_sha256;
  std::int64_t binary_bytes = 0;
  spec::Resources resources;
  std::string code;  // machine_code_hash of the binary; empty: none can be told, or an older ejk made the entry
};
std::string to_json(const ImageInfo& info);
// An image.json of another version of this layout: no fault of the entry, but of no use here.
struct UnknownSchema : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Throws std::runtime_error that says what is wrong (not JSON, missing field, wrong type; UnknownSchema).
ImageInfo parse_image_info(const std::string& text);

enum class Verdict { hit, miss, bad };
struct Found {
  Verdict verdict = Verdict::miss;
  std::filesystem::path binary;  // where it lies, for words
  std::string bytes;             // of the binary: those that were hashed, and so those to load
  ImageInfo info;
  std::string why;  // for miss and bad: what was looked for, what is wrong with it
};

// One root. Never creates anything until publish().
class Store {
 public:
  explicit Store(std::filesystem::path root, bool writable, Trust trust = Trust::pack());
  const std::filesystem::path& root() const { return root_; }
  bool writable() const { return writable_; }
  std::filesystem::path entry_path(const spec::Image& image) const;  // computed, never scanned for; for words
  static std::string entry_name(const spec::Image& image);
  // Holds the folder of a kernel's entries. nullopt with why_not empty: there is none.
  std::optional<HeldFolder> folder_of(const std::string& kernel, std::string& why_not) const;
  HeldFolder make_folder_of(const std::string& kernel) const;  // throws std::runtime_error
  // Why nothing of that kernel is taken from here: its folder, or one above it, is in the hands of others. "": nothing is wrong.
  std::string distrust(const std::string& kernel) const;
  Found find(const spec::Image& image, const std::string& source_extension, const std::string& binary_extension) const;
  // The hash of its machine code, as the entry says it; of one that an older ejk made, by its binary. "": no entry, or none can be told.
  std::string code_of(const spec::Image& image, const std::string& source_extension, const std::string& binary_extension) const;
  // Writes the entry or takes the one that got there first. Throws std::runtime_error (full disk, read-only, ownership).
  Found publish(const spec::Image& image, const CompileResult& result, const std::string& source_extension,
                const std::string& binary_extension) const;
  void set_aside(const spec::Image& image) const;  // best effort
  // The entry's own time becomes now, so that pruning knows what is in use; its files keep theirs. Best effort, once an hour.
  void mark_used(const spec::Image& image) const;

  // Whether the entry's source file is the image's text; find() does not read it.
  bool source_intact(const spec::Image& image, const std::string& source_extension) const;

  // Writes the image's text in place of a source file that is not it; the entry's binary stays what it is. Best effort.
  void restore_source(const spec::Image& image, const std::string& source_extension) const;

  // Failed builds, so that a broken source is not compiled again by every process: <entry>.failed holds the compiler's name and its
  // words, after a line with their sha256: a damaged one counts for nothing. It counts for that source and that compiler only; a publish()
  // of the image forgets it. Best effort.
  std::optional<std::string> failed_log(const spec::Image& image, const std::string& compiler) const;
  void remember_failure(const spec::Image& image, const std::string& compiler, const std::string& log) const;

  // Removes what killed processes left beside a kernel's entries: temporary folders whose process is gone, locks that nobody holds.
  void remove_leftovers(const std::string& kernel) const;

 private:
  std::filesystem::path root_;
  bool writable_;
  Trust trust_;
};

// One build of an image a machine: holds <root>/<kernel>/<entry>.lock while it lives, and removes it at the end. Waiters poll, and tell
// `progress` at most once a second. A holder's death frees the lock; where a child of the dead holder keeps it, the owner record in
// the file (boot, pid, start time) shows the death and the lock is taken over, within a second. File systems without locks: everybody
// builds.
class BuildLock {
 public:
  // Twice a compile's time limit: a holder that lives but does not move (stopped, or in a debugger) blocks nobody for longer.
  static constexpr std::chrono::milliseconds patience = std::chrono::minutes(10);
  // Empty if the place is not writable, or the holder has not finished in time (then build for yourself).
  static std::optional<BuildLock> acquire(const Store& store, const spec::Image& image,
                                          const std::function<void(const std::string& line)>& progress = {},
                                          std::chrono::milliseconds longest_wait = patience);
  // Does not wait: empty if another process or thread builds the image.
  static std::optional<BuildLock> try_acquire(const Store& store, const spec::Image& image);
  BuildLock(BuildLock&&) noexcept;
  BuildLock& operator=(BuildLock&&) = delete;
  ~BuildLock();

 private:
  BuildLock(int fd, HeldFolder folder, std::string name) : fd_(fd), folder_(std::move(folder)), name_(std::move(name)) {}
  int fd_ = -1;  // -1: the file system has no locks, or the lock was moved from
  HeldFolder folder_;
  std::string name_;
};

// $EJKERNEL_CACHE_DIR, else $XDG_CACHE_HOME/ejk, else ~/.cache/ejk, made with mode 0700 if it is missing; nullopt with the reason if
// that fails, or if it is not ours, or others can write to it or put another folder in its place.
std::optional<std::filesystem::path> user_cache_dir(std::string& why_not);
// Why a pack is not used: its folder, one above it, or something in its specs and templates, which is compiled and run, is in the hands of
// others. "": nothing is wrong.
std::string pack_fault(const std::filesystem::path& root);

// Look-up is a union: the user's cache first, then packs in order.
struct Places {
  std::optional<Store> user;
  std::vector<Store> packs;
  std::string why_no_user;
  // Of the first place that has the image; as Store::code_of.
  std::string code_of(const spec::Image& image, const std::string& source_extension, const std::string& binary_extension) const;
};

}  // namespace ejk::store
