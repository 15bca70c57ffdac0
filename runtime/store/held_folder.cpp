// The way to a folder, step by step, each step judged by its descriptor.
#include "store/held_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace ejk::store {

namespace fs = std::filesystem;

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

// One walk: a descriptor of where it is, and the names still to go, the next one last.
class Walk {
 public:
  enum class Missing { stop, make };
  Walk(const Trust& trust, bool exempt, Missing missing, unsigned mode) : trust_(trust), exempt_(exempt), missing_(missing), mode_(mode) {}

  // Where the walk goes on from: "/" or a folder that is held.
  void start_at_root() {
    here_ = Descriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    at_ = "/";
    inside_ = false;
  }
  void start_in(const HeldFolder& folder) {
    here_ = Descriptor(::fcntl(folder.descriptor(), F_DUPFD_CLOEXEC, 0));
    at_ = folder.path();
    inside_ = true;
  }

  void push(const fs::path& path) {
    std::vector<std::string> names;
    for (const auto& part : path)
      if (const auto name = part.string(); !name.empty() && name != "/" && name != ".") names.push_back(name);
    rest_.insert(rest_.end(), names.rbegin(), names.rend());
  }

  // false with why(): empty where a step is missing.
  bool run(bool links) {
    if (!here_) return stop(fmt::format("{}: {}", at_.string(), std::strerror(errno)));
    while (!rest_.empty())
      if (!step(links)) return false;
    return true;
  }

  HeldFolder result(const fs::path& path) {
    HeldFolder folder(std::move(here_), path, trust_);
    folder.exempt_ = exempt_;
    return folder;
  }
  const std::string& why() const { return why_; }

 private:
  bool stop(std::string why) {
    why_ = std::move(why);
    return false;
  }

  bool step(bool links) {
    const auto name = std::move(rest_.back());
    rest_.pop_back();
    const auto path = name == ".." ? at_.parent_path() : at_ / name;
    Descriptor next(::openat(here_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!next && errno == ENOENT && missing_ == Missing::make) {
      if (::mkdirat(here_.get(), name.c_str(), mode_) != 0 && errno != EEXIST) return cannot_make(path);
      next = Descriptor(::openat(here_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    }
    if (!next) return missing_ == Missing::make ? cannot_make(path) : stop(errno == ENOENT ? "" : words(path, errno));
    struct stat facts {};
    if (::fstat(next.get(), &facts) != 0) return stop(words(path, errno));
    if (!exempt_)
      if (auto fault = trust_.fault(facts, path, where(name)); !fault.empty()) return stop(std::move(fault));
    if (S_ISLNK(facts.st_mode)) return follow(next, path, links);
    if (!S_ISDIR(facts.st_mode)) {
      errno = ENOTDIR;
      return missing_ == Missing::make ? cannot_make(path) : stop(words(path, ENOTDIR));
    }
    here_ = std::move(next);
    at_ = path;
    return true;
  }

  Trust::Where where(const std::string& name) const {
    if (inside_ && name != "..") return Trust::Where::inside;
    return rest_.empty() && name != ".." ? Trust::Where::at : Trust::Where::above;
  }

  bool follow(const Descriptor& link, const fs::path& path, bool links) {
    char target[4096];
    const auto length = ::readlinkat(link.get(), "", target, sizeof target - 1);
    if (!links) return stop(path.string() + ": a symbolic link, which is not followed here");
    if (length < 0 || ++followed_ > most_links) return stop(words(path, length < 0 ? errno : ELOOP));
    target[length] = '\0';
    if (target[0] == '/') start_at_root();
    push(target);
    return static_cast<bool>(here_) || stop(words("/", errno));
  }

  static std::string words(const fs::path& path, int error) { return fmt::format("{}: {}", path.string(), std::strerror(error)); }
  bool cannot_make(const fs::path& path) { return stop(fmt::format("cannot make the folder {}: {}", path.string(), std::strerror(errno))); }

  static constexpr int most_links = 40;  // as the system's own
  const Trust& trust_;
  const bool exempt_;
  const Missing missing_;
  const unsigned mode_;
  bool inside_ = false;
  Descriptor here_;
  fs::path at_;
  std::vector<std::string> rest_;
  int followed_ = 0;
  std::string why_;
};

namespace {

Walk walk_to(const fs::path& path, const Trust& trust, Walk::Missing missing, unsigned mode) {
  Walk walk(trust, Trust::exempt(path), missing, mode);
  walk.start_at_root();
  walk.push(path);
  return walk;
}

}  // namespace

std::optional<HeldFolder> HeldFolder::open(const fs::path& path, const Trust& trust, std::string& why_not) {
  std::error_code error;
  auto walk = walk_to(fs::absolute(path, error), trust, Walk::Missing::stop, 0);
  if (walk.run(true)) return walk.result(path);
  why_not = walk.why();
  return std::nullopt;
}

HeldFolder HeldFolder::make(const fs::path& path, const Trust& trust, unsigned mode) {
  std::error_code error;
  auto walk = walk_to(fs::absolute(path, error), trust, Walk::Missing::make, mode);
  if (!walk.run(true)) throw std::runtime_error(walk.why());
  return walk.result(path);
}

std::optional<HeldFolder> HeldFolder::folder(const std::string& name, std::string& why_not) const {
  Walk walk(trust_, exempt_, Walk::Missing::stop, 0);
  walk.start_in(*this);
  walk.push(name);
  if (walk.run(trust_.follows_links())) return walk.result(path_ / name);
  why_not = walk.why();
  return std::nullopt;
}

HeldFolder HeldFolder::make_folder(const std::string& name, unsigned mode) const {
  Walk walk(trust_, exempt_, Walk::Missing::make, mode);
  walk.start_in(*this);
  walk.push(name);
  if (!walk.run(trust_.follows_links())) throw std::runtime_error(walk.why());
  return walk.result(path_ / name);
}

Descriptor HeldFolder::file(const std::string& name, int flags, unsigned mode, std::string& why_not) const {
  const auto refuse = [&](const std::string& reason) {
    why_not = (path_ / name).string() + ": " + reason;
    return Descriptor();
  };
  Descriptor found(::openat(descriptor(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
  if (!found && errno == ELOOP) {
    const auto entry = facts(name);
    if (!entry || !S_ISLNK(entry->st_mode) || !trust_.follows_links() || (flags & O_CREAT))
      return refuse("a symbolic link, which is not followed here");
    return linked_file(name, flags, why_not);
  }
  struct stat facts {};
  if (!found || ::fstat(found.get(), &facts) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) return refuse("not a regular file");
  if (!exempt_)
    if (auto fault = trust_.fault(facts, path_ / name, Trust::Where::inside); !fault.empty()) {
      why_not = std::move(fault);
      return Descriptor();
    }
  return found;
}

// The link's target, from the folder that holds it.
Descriptor HeldFolder::linked_file(const std::string& name, int flags, std::string& why_not) const {
  char target[4096];
  const auto length = ::readlinkat(descriptor(), name.c_str(), target, sizeof target - 1);
  const fs::path path(std::string(target, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
  Walk walk(trust_, exempt_, Walk::Missing::stop, 0);
  path.is_absolute() ? walk.start_at_root() : walk.start_in(*this);
  walk.push(path.parent_path());
  if (!path.has_filename() || !walk.run(true)) {
    why_not = fmt::format("{}, a link to {}: {}", (path_ / name).string(), path.string(),
                          walk.why().empty() ? "No such file or directory" : walk.why());
    return Descriptor();
  }
  HeldFolder parent = walk.result(path.is_absolute() ? path.parent_path() : path_ / path.parent_path());
  parent.links_ = links_ + 1;
  if (parent.links_ <= most_links_) return parent.file(path.filename(), flags, 0, why_not);
  why_not = (path_ / name).string() + ": " + std::strerror(ELOOP);
  return Descriptor();
}

}  // namespace ejk::store
