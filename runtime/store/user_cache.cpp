// The user's cache folder: where it is, and whether it can be trusted; whether a pack can.
#include <fcntl.h>

#include <cstdlib>
#include <stdexcept>

#include "store/store.hpp"

namespace ejk::store {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path wanted_folder() {
  if (const auto own = variable("EJKERNEL_CACHE_DIR"); !own.empty()) return own;
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.starts_with('/')) return fs::path(cache) / "ejk";  // a relative one is void
  if (const auto home = variable("HOME"); home.starts_with('/')) return fs::path(home) / ".cache" / "ejk";
  return {};
}

constexpr int deepest = 32;  // folders in a pack's specs and templates
constexpr char elsewhere[] = "; name another folder in EJKERNEL_CACHE_DIR";

}  // namespace

std::optional<fs::path> user_cache_dir(std::string& why_not) {
  const auto path = wanted_folder();
  if (path.empty()) {
    why_not = "none of EJKERNEL_CACHE_DIR, XDG_CACHE_HOME and HOME is set: name a folder in one, to keep what is compiled";
    if (!variable("HOME").empty()) why_not += "; HOME is '" + variable("HOME") + "', which is no absolute path";
    return std::nullopt;
  }
  std::error_code error;
  const auto whole = fs::absolute(path, error);
  try {
    (void)HeldFolder::make(whole, Trust::cache(), 0700);
    return whole;
  } catch (const std::runtime_error& problem) {
    why_not = problem.what();
    if (why_not.starts_with("cannot")) why_not += elsewhere;
    return std::nullopt;
  }
}

namespace {

// Something in a pack's specs or templates. A link that leads nowhere is nothing; others lead to what is judged step by step.
std::string fault_inside(const HeldFolder& folder, int depth) {
  for (const auto& name : folder.names()) {
    std::string why;
    struct stat target {};
    const auto facts = folder.facts(name);
    if (!facts || depth > deepest || ::fstatat(folder.descriptor(), name.c_str(), &target, 0) != 0) continue;
    if (S_ISDIR(target.st_mode)) {
      const auto inner = folder.folder(name, why);
      if (inner) why = fault_inside(*inner, depth + 1);
    } else if (S_ISLNK(facts->st_mode)) {
      if (S_ISREG(target.st_mode)) (void)folder.file(name, O_RDONLY, 0, why);
    } else if (!folder.trust().accepts(*facts, Trust::Where::inside)) {
      why = folder.trust().fault(*facts, folder.path() / name, Trust::Where::inside);
    }
    if (!why.empty()) return why;
  }
  return {};
}

}  // namespace

std::string pack_fault(const fs::path& root) {
  std::string why;
  if (Trust::exempt(root)) return {};
  const auto pack = HeldFolder::open(root, Trust::pack(), why);
  if (!pack) return why;
  for (const char* texts : {"specs", "templates"})
    if (const auto folder = pack->folder(texts, why))
      if (why = fault_inside(*folder, 0); !why.empty()) return why;
  return why;
}

}  // namespace ejk::store
