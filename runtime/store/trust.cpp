// Judging owners and modes.
#include "store/trust.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "backends/process/user.hpp"

namespace ejk::store {
namespace {

namespace fs = std::filesystem;

// The file (library or program) that holds this code: its owner, and a group that can write it, run code in this process already.
const std::optional<struct stat>& own_file() {
  static const auto facts = []() -> std::optional<struct stat> {
    Dl_info info{};
    struct stat found {};
    const bool named = dladdr(reinterpret_cast<const void*>(&own_file), &info) && info.dli_fname && stat(info.dli_fname, &found) == 0;
    if (named || stat("/proc/self/exe", &found) == 0) return found;
    return std::nullopt;
  }
  ();
  return facts;
}

bool member_of(gid_t group) {
  if (group == getegid()) return true;
  std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, getgroups(0, nullptr))));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  return count > 0 && std::find(groups.begin(), groups.begin() + count, group) != groups.begin() + count;
}

template <class T>
bool contains(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool below(const fs::path& folder, const fs::path& top) {
  const auto [end, rest] = std::mismatch(top.begin(), top.end(), folder.begin(), folder.end());
  return end == top.end() || (std::next(end) == top.end() && end->empty());  // a path may end in '/'
}

}  // namespace

Trust::Trust(Kind kind) : kind_(kind) {
  const auto& own = own_file();
  if (!own) return;
  owners_.push_back(own->st_uid);
  if (own->st_mode & S_IWGRP) groups_.push_back(own->st_gid);
}

Trust Trust::cache() { return Trust(Kind::cache); }

Trust Trust::pack() {
  Trust trust(Kind::pack);
  trust.follows_links_ = true;
  return trust;
}

Trust Trust::agreement(const struct stat& facts) {
  Trust trust(Kind::agreement);
  trust.shared_ = (facts.st_mode & S_IWGRP) && member_of(facts.st_gid);
  if (!trust.shared_) return trust;
  trust.owners_.push_back(facts.st_uid);
  trust.groups_.push_back(facts.st_gid);
  return trust;
}

Trust Trust::named() {
  Trust trust(Kind::named);
  trust.follows_links_ = true;
  return trust;
}

bool Trust::owned(const struct stat& facts, Where where) const {
  if (facts.st_uid == geteuid()) return true;
  if (kind_ == Kind::cache && where != Where::above) return false;
  if (shared_ && where == Where::inside) return true;  // any member's: the folder's mode says who could make it
  return facts.st_uid == 0 || facts.st_uid == unmapped_owner() || contains(owners_, facts.st_uid);
}

bool Trust::closed(const struct stat& facts, Where where) const {
  if (S_ISLNK(facts.st_mode)) return true;
  if (where == Where::above && (facts.st_mode & S_ISVTX)) return true;  // what lies in it, only its owner can rename
  if (facts.st_mode & S_IWOTH) return false;
  if (!(facts.st_mode & S_IWGRP)) return true;
  if (kind_ == Kind::cache && where != Where::above) return false;
  return private_group(facts.st_gid) || contains(groups_, facts.st_gid);
}

std::string Trust::subject(const fs::path& path, Where where) const {
  static constexpr const char* nouns[] = {"cache folder", "store", "agreement folder"};
  const auto noun = nouns[static_cast<int>(kind_)];
  if (where == Where::above) return fmt::format("{}, above the {},", path.string(), noun);
  return where == Where::at ? fmt::format("the {} {}", noun, path.string()) : fmt::format("{}, in the {},", path.string(), noun);
}

std::string Trust::advice(Where where) const {
  static constexpr const char* variables[] = {"EJKERNEL_CACHE_DIR", "", "EJKERNEL_AGREEMENT"};
  const auto trust = "or, to use it whoever can write there, name it in EJKERNEL_TRUST";
  if (kind_ == Kind::pack) return fmt::format("binaries of others are not loaded; install it as root or as this user, {}", trust);
  const auto elsewhere = fmt::format("name another folder in {}", variables[static_cast<int>(kind_)]);
  if (where == Where::above) return fmt::format("who owns it can put another folder in its place; {}, {}", elsewhere, trust);
  return kind_ == Kind::cache ? "binaries of others are not loaded; " + elsewhere : elsewhere;
}

bool Trust::accepts(const struct stat& facts, Where where) const {
  return kind_ == Kind::named || (owned(facts, where) && closed(facts, where));
}

std::string Trust::fault(const struct stat& facts, const fs::path& path, Where where) const {
  if (accepts(facts, where)) return {};
  const bool kernels = kind_ == Kind::cache && where == Where::inside && S_ISDIR(facts.st_mode);  // a cache folder like its root
  const auto told = subject(path, kernels ? Where::at : where);
  if (!owned(facts, where)) return fmt::format("{} belongs to user {}, expected {}: {}", told, facts.st_uid, geteuid(), advice(where));
  if (!closed(facts, where))
    return fmt::format("{} is writable by others (mode {:o}): run chmod {} on it{}", told, facts.st_mode & 07777,
                       !shared_                  ? "go-w"
                       : facts.st_mode & S_IWOTH ? "o-w"
                                                 : "g-w",
                       kind_ == Kind::pack ? ", or name the store in EJKERNEL_TRUST" : "");
  return {};
}

bool Trust::exempt(const fs::path& folder) {
  const char* text = secure_getenv("EJKERNEL_TRUST");
  std::string_view rest = text ? text : "";
  std::error_code error;
  const auto real = rest.empty() ? fs::path() : fs::weakly_canonical(folder, error);
  if (error) return false;
  while (!rest.empty()) {
    const auto one = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (one.empty()) continue;
    if (const auto top = fs::weakly_canonical(one, error); !error && below(real, top)) return true;  // one that leads nowhere hides none
  }
  return false;
}

}  // namespace ejk::store
