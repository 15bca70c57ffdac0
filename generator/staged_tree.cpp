// Staging beside the files' places, on the same file system, so that a rename is all that is left to do.
#include "generator/staged_tree.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <stdexcept>

#include "generator/files.hpp"

namespace ejk::generator {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view staging_prefix = ".staging.";

void remove_abandoned(const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator at(out, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    pid_t owner = 0;
    if (!name.starts_with(staging_prefix)) continue;
    const auto [rest, fault] = std::from_chars(name.data() + staging_prefix.size(), name.data() + name.size(), owner);
    if (fault != std::errc{} || rest != name.data() + name.size() || owner <= 0) continue;
    if (::kill(owner, 0) != 0 && errno == ESRCH) abandoned.push_back(at->path());
  }
  for (const auto& folder : abandoned) fs::remove_all(folder, error);
}

fs::path first_missing(fs::path folder) {
  fs::path missing;
  for (; !folder.empty() && !fs::exists(folder); folder = folder.parent_path()) missing = folder;
  return missing;
}

bool same_bytes(const fs::path& a, const fs::path& b) {
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  std::string one(1 << 16, '\0'), other(one.size(), '\0');
  const auto size = static_cast<std::streamsize>(one.size());
  while (first && second) {
    first.read(one.data(), size);
    second.read(other.data(), size);
    if (first.gcount() != second.gcount() ||
        one.compare(0, static_cast<std::size_t>(first.gcount()), other, 0, static_cast<std::size_t>(first.gcount())) != 0)
      return false;
  }
  return first.eof() && second.eof();
}

// By pieces: a file with a line an image may be long.
Hash128 hash_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string piece(1 << 20, '\0');
  Hash128 hash;
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    hash = hash_of(to_text(hash) + to_text(hash_of(std::string_view(piece).substr(0, static_cast<std::size_t>(in.gcount())))));
  return hash;
}

[[noreturn]] void cannot_write(const fs::path& path) { throw std::runtime_error(fmt::format("{}: cannot be written", path.string())); }

}  // namespace

StagedTree::StagedTree(fs::path out)
    : out_(std::move(out)), staging_(out_ / fmt::format("{}{}", staging_prefix, ::getpid())), first_made_(first_missing(out_)) {
  remove_abandoned(out_);
}

StagedTree::~StagedTree() {
  std::error_code error;
  long_files_.clear();
  fs::remove_all(staging_, error);
  if (first_made_.empty()) return;
  for (auto folder = out_; fs::remove(folder, error) && !error && folder != first_made_;) folder = folder.parent_path();
}

fs::path StagedTree::staged(const std::string& name) {
  auto path = staging_ / name;
  if (path.parent_path() != last_folder_) fs::create_directories(last_folder_ = path.parent_path());
  return path;
}

void StagedTree::note(const std::string& name, const Hash128& bytes) {
  names_.push_back(hash_of(name));
  fingerprint_.add(name, bytes);
}

void StagedTree::file(const std::string& name, const std::string& bytes) {
  note(name, hash_of(bytes));
  std::string old;
  if (read_file(out_ / name, old) && old == bytes) {
    ++report_.unchanged;
    return;
  }
  const auto path = staged(name);
  std::ofstream to(path, std::ios::binary | std::ios::trunc);
  if (!to.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush()) cannot_write(path);
  ++report_.written;
}

void StagedTree::append(const std::string& name, std::string_view bytes) {
  auto& to = long_files_[name];
  if (!to.is_open()) to.open(staged(name), std::ios::binary | std::ios::trunc);
  if (!to.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) cannot_write(staging_ / name);
}

void StagedTree::finish_long_files() {
  for (auto& [name, to] : long_files_) {
    to.close();
    if (!to) cannot_write(staging_ / name);
    note(name, hash_of_file(staging_ / name));
    const bool same = same_bytes(staging_ / name, out_ / name);
    ++(same ? report_.unchanged : report_.written);
    if (same) fs::remove(staging_ / name);
  }
  long_files_.clear();
}

void StagedTree::move_into_place() {
  if (!fs::exists(staging_)) return;
  fs::path made;
  for (const auto& entry : fs::recursive_directory_iterator(staging_)) {
    if (!entry.is_regular_file()) continue;
    const auto to = out_ / entry.path().lexically_relative(staging_);
    if (to.parent_path() != made) fs::create_directories(made = to.parent_path());
    fs::rename(entry.path(), to);
  }
  fs::remove_all(staging_);
}

void StagedTree::remove_stale() {
  std::sort(names_.begin(), names_.end());
  std::vector<std::string> stale;
  for_each_marked_file(out_, [&](const std::string& name) {
    if (!std::binary_search(names_.begin(), names_.end(), hash_of(name))) stale.push_back(name);
  });
  for (const auto& name : stale) {
    fs::remove(out_ / name);
    remove_empty_parents((out_ / name).parent_path(), out_);
  }
  report_.removed = stale.size();
}

WriteReport StagedTree::commit() {
  finish_long_files();
  move_into_place();
  remove_stale();
  return report_;
}

std::string fingerprint_of(const fs::path& out) {
  Fingerprint fingerprint;
  std::string bytes;
  for_each_marked_file(out, [&](const std::string& name) {
    if (read_file(out / name, bytes)) fingerprint.add(name, hash_of(bytes));
  });
  for (const auto* name : long_files)
    if (fs::is_regular_file(out / name)) fingerprint.add(name, hash_of_file(out / name));
  return fingerprint.text();
}

}  // namespace ejk::generator
