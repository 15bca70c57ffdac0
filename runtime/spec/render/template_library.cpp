// Parsed templates of some folders: each file is read and parsed once, whatever thread asks first.
#include <map>

#include "spec/read/files.hpp"
#include "spec/render/template.hpp"

namespace ejk::spec {

struct TemplateLibrary::Cache {
  std::mutex mutex;
  std::map<std::string, Template> parsed;  // nodes of a map stay where they are, so get() may hand out references
};

namespace {

// A name from a spec must stay below the folder.
bool is_inside(const std::string& name) {
  const std::filesystem::path path(name);
  if (name.empty() || path.is_absolute()) return false;
  for (const auto& part : path)
    if (part == "..") return false;
  return true;
}

}  // namespace

TemplateLibrary::TemplateLibrary(std::vector<std::filesystem::path> roots) : roots_(std::move(roots)), cache_(std::make_shared<Cache>()) {}

std::filesystem::path TemplateLibrary::path_of(const std::string& name) const {
  std::error_code error;
  for (const auto& root : roots_)
    if (std::filesystem::is_regular_file(root / name, error)) return root / name;
  return roots_.front() / name;
}

std::string TemplateLibrary::folders() const {
  std::string text;
  for (const auto& root : roots_) text += (text.empty() ? "" : ", ") + root.generic_string();
  return text;
}

bool TemplateLibrary::has(const std::string& name) const {
  std::error_code error;
  return is_inside(name) && std::filesystem::is_regular_file(path_of(name), error);
}

const Template& TemplateLibrary::get(const std::string& name) const {
  const std::lock_guard lock(cache_->mutex);
  if (const auto found = cache_->parsed.find(name); found != cache_->parsed.end()) return found->second;
  const auto path = path_of(name);
  const std::string shown = path.string();
  if (!has(name)) throw SpecError({{shown, "0", "there is no such template"}});
  std::vector<Fault> faults;
  const auto text = read_text(path, faults, longest_template);
  if (!text) throw SpecError(std::move(faults));
  return cache_->parsed.emplace(name, Template::parse(shown, *text)).first->second;
}

}  // namespace ejk::spec
