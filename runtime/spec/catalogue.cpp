// Folders of specs, archs and templates, read at once or kernel by kernel.
#include "spec/catalogue.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include "spec/archs.hpp"
#include "spec/check.hpp"
#include "spec/check_names.hpp"
#include "spec/gradient.hpp"
#include "spec/json_node.hpp"
#include "spec/loader.hpp"

namespace ejk::spec {
namespace {

std::vector<std::string> kernels_in(const std::filesystem::path& specs) {
  std::vector<std::string> names;
  for (const std::filesystem::path& file : json_files(specs)) names.push_back(file.stem().string());
  return names;
}

// The spec of one file, which must bear its kernel's name.
std::optional<Spec> read_kernel(const std::filesystem::path& path, std::vector<Fault>& faults) {
  const std::string file = path.generic_string();
  std::optional<Spec> spec = load_spec(file, read_text(path), faults);
  if (spec && spec->kernel != path.stem().string()) {
    faults.push_back(
        {file, "/kernel", "the kernel '" + spec->kernel + "' is in a file of another name; name the file " + spec->kernel + ".json"});
    return std::nullopt;
  }
  return spec;
}

}  // namespace

struct Catalogue::State {
  State(std::vector<std::filesystem::path> specs_folders, std::vector<std::filesystem::path> templates_folders)
      : specs(std::move(specs_folders)), templates(std::move(templates_folders)) {}

  // Where the spec of a kernel is; empty: nowhere.
  std::filesystem::path file_of(const std::string& kernel) const {
    std::error_code error;
    for (const auto& folder : specs)
      if (auto file = folder / (kernel + ".json"); std::filesystem::is_regular_file(file, error)) return file;
    return {};
  }

  std::vector<std::filesystem::path> specs;
  TemplateLibrary templates;
  std::map<std::string, Arch> archs;
  std::mutex mutex;  // of kernels
  std::map<std::string, std::shared_ptr<const Spec>> kernels;
};

Catalogue Catalogue::load(const std::filesystem::path& specs, const std::filesystem::path& templates) {
  Catalogue catalogue;
  catalogue.state_ = std::make_shared<State>(std::vector{specs}, std::vector{templates});
  State& state = *catalogue.state_;
  std::vector<Fault> faults;
  state.archs = load_archs(specs / "arch", faults);
  const bool archs_are_sound = faults.empty();
  const std::vector<std::string> names = kernels_in(specs);
  for (const std::string& name : names) {
    std::optional<Spec> spec = read_kernel(specs / (name + ".json"), faults);
    if (!spec) continue;
    if (archs_are_sound) check_spec(*spec, state.archs, state.templates, names, faults);
    state.kernels[name] = std::make_shared<const Spec>(*std::move(spec));
  }
  for (const auto& [name, spec] : state.kernels)
    for (const std::string& target : gradient_kernels(*spec))
      if (const auto found = state.kernels.find(target); target != name && found != state.kernels.end())
        check_gradient_calls(*spec, *found->second, faults);
  if (!faults.empty()) throw SpecError(std::move(faults));
  return catalogue;
}

Catalogue Catalogue::open(const std::filesystem::path& specs, const std::filesystem::path& templates) {
  return open(std::vector<Folders>{{specs, templates}});
}

Catalogue Catalogue::open(const std::vector<Folders>& folders) {
  std::vector<std::filesystem::path> specs, templates;
  for (const auto& each : folders) specs.push_back(each.specs), templates.push_back(each.templates);
  Catalogue catalogue;
  catalogue.state_ = std::make_shared<State>(std::move(specs), std::move(templates));
  std::vector<Fault> faults;
  std::error_code error;
  for (const auto& folder : catalogue.state_->specs)
    if (folders.size() == 1 || std::filesystem::is_directory(folder / "arch", error))
      catalogue.state_->archs.merge(load_archs(folder / "arch", faults));
  if (!faults.empty()) throw SpecError(std::move(faults));
  return catalogue;
}

std::shared_ptr<const Spec> Catalogue::kernel(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  if (const auto known = state_->kernels.find(name); known != state_->kernels.end()) return known->second;
  if (bad_file_name(name)) return nullptr;
  const std::filesystem::path file = state_->file_of(name);
  if (file.empty()) return nullptr;
  std::vector<Fault> faults;
  std::optional<Spec> spec = read_kernel(file, faults);
  if (spec) check_names(*spec, state_->archs, faults);
  if (!faults.empty()) throw SpecError(std::move(faults));
  return state_->kernels[name] = std::make_shared<const Spec>(*std::move(spec));
}

std::vector<std::string> Catalogue::kernel_names() const {
  std::set<std::string> names;
  for (const auto& folder : state_->specs)
    for (auto& name : kernels_in(folder)) names.insert(std::move(name));
  return {names.begin(), names.end()};
}

const std::map<std::string, Arch>& Catalogue::archs() const { return state_->archs; }

const Arch* Catalogue::arch(const std::string& full_name) const {
  const auto found = state_->archs.find(full_name);
  return found == state_->archs.end() ? nullptr : &found->second;
}

const TemplateLibrary& Catalogue::templates() const { return state_->templates; }

std::vector<const Arch*> Catalogue::archs_of(const Variant& variant) const { return archs_covered(variant.archs, state_->archs); }

}  // namespace ejk::spec
