// Folders of specs, archs and templates, read at once or kernel by kernel.
#include "spec/read/catalogue.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include "spec/call/gradient.hpp"
#include "spec/check/check.hpp"
#include "spec/check/check_cases.hpp"
#include "spec/check/check_names.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/files.hpp"
#include "spec/read/json_node.hpp"
#include "spec/read/loader.hpp"
#include "spec/read/same_as.hpp"

namespace ejk::spec {
namespace {

std::vector<std::string> kernels_in(const std::filesystem::path& specs, std::vector<Fault>& passed_over) {
  std::vector<std::string> names;
  auto found = json_files(specs);
  for (const std::filesystem::path& file : found.files) names.push_back(file.stem().string());
  for (Fault& each : found.passed_over) passed_over.push_back(std::move(each));
  return names;
}

// Whether a spec was read, and is in the file of its kernel's name.
bool has_its_name(const std::optional<Spec>& spec, const std::filesystem::path& path, std::vector<Fault>& faults) {
  if (!spec || spec->kernel == path.stem().string()) return spec.has_value();
  faults.push_back(
      {spec->file, "/kernel", "the kernel '" + spec->kernel + "' is in a file of another name; name the file " + spec->kernel + ".json"});
  return false;
}

std::optional<Spec> read_kernel(const std::filesystem::path& path, std::vector<Fault>& faults) {
  const auto text = read_text(path, faults);
  std::optional<Spec> spec = text ? load_spec(path.generic_string(), *text, faults) : std::nullopt;
  if (!has_its_name(spec, path, faults)) return std::nullopt;
  return spec;
}

// What calls need, judged; a process that calls on CPUs alone reads no more. The faults are those of the whole but for its cases.
std::optional<Spec> read_for_calls(const std::filesystem::path& path, const Judge& judge, std::vector<Fault>& faults) {
  const auto text = read_text(path, faults);
  std::optional<Spec> spec;
  for (const Later later : {Later::cases_and_gpus, Later::cases}) {
    if (!text || (spec && spec->variants.is_whole())) break;
    faults.clear();
    spec = load_spec(path.generic_string(), *text, faults, later, judge);
    if (!has_its_name(spec, path, faults)) return std::nullopt;
    judge(*spec, faults);
    if (faults.empty()) break;
  }
  return spec;
}

// Gives the kernels that others serve their variants, and checks their cases.
void serve_kernels(std::map<std::string, std::shared_ptr<const Spec>>& kernels, const std::map<std::string, Arch>& archs,
                   const std::vector<std::string>& names, std::vector<Fault>& faults) {
  for (auto& [name, spec] : kernels) {
    if (!spec->same_as) continue;
    const std::size_t before = faults.size();
    const std::string& other = spec->same_as->kernel;
    const auto found = kernels.find(other);
    if (found != kernels.end())
      check_same_as(*spec, *found->second, faults);
    else if (std::find(names.begin(), names.end(), other) == names.end())
      faults.push_back({spec->file, "/same_as/kernel", "unknown kernel '" + other + "'" + suggestion(other, names)});
    if (found == kernels.end() || faults.size() > before) continue;
    Spec served = *spec;
    serve(served, found->second);
    check_cases(served, archs, faults);
    spec = std::make_shared<const Spec>(std::move(served));
  }
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
  std::shared_ptr<std::map<std::string, Arch>> archs = std::make_shared<std::map<std::string, Arch>>();  // read once; specs share them
  std::vector<Fault> odd_archs;  // files passed over in the folders of archs
  std::mutex mutex;              // of kernels
  std::map<std::string, std::shared_ptr<const Spec>> kernels;

  // Under the mutex. served: the kernel that this one is to serve; such a one is itself served by none, so there are no circles.
  std::shared_ptr<const Spec> kernel(const std::string& name, const Spec* served = nullptr) {
    if (const auto known = kernels.find(name); known != kernels.end()) return known->second;
    if (bad_file_name(name)) return nullptr;
    const std::filesystem::path file = file_of(name);
    if (file.empty()) return nullptr;
    std::vector<Fault> faults;
    const Judge judge = [known = archs](const Spec& read, std::vector<Fault>& found) { check_names(read, *known, found); };
    std::optional<Spec> spec = read_for_calls(file, judge, faults);
    if (faults.empty() && spec->same_as && served)
      faults.push_back({served->file, "/same_as/kernel", name + " has no variants of its own; name " + spec->same_as->kernel});
    else if (faults.empty() && spec->same_as)
      serve_one(*spec, faults);
    if (!faults.empty()) throw SpecError(std::move(faults));
    return kernels[name] = std::make_shared<const Spec>(*std::move(spec));
  }

  void serve_one(Spec& spec, std::vector<Fault>& faults) {
    const std::string& other = spec.same_as->kernel;
    auto server = other == spec.kernel ? nullptr : kernel(other, &spec);
    if (!server) return faults.push_back({spec.file, "/same_as/kernel", "unknown kernel '" + other + "'"});
    check_same_as(spec, *server, faults);
    if (faults.empty()) serve(spec, std::move(server));
  }
};

Catalogue Catalogue::load(const std::filesystem::path& specs, const std::filesystem::path& templates) {
  Catalogue catalogue;
  catalogue.state_ = std::make_shared<State>(std::vector{specs}, std::vector{templates});
  State& state = *catalogue.state_;
  std::vector<Fault> faults;
  *state.archs = load_archs(specs / "arch", faults, faults);
  const bool archs_are_sound = faults.empty();
  const std::vector<std::string> names = kernels_in(specs, faults);
  for (const std::string& name : names) {
    std::optional<Spec> spec = read_kernel(specs / (name + ".json"), faults);
    if (!spec) continue;
    if (archs_are_sound) check_spec(*spec, *state.archs, state.templates, names, faults);
    state.kernels[name] = std::make_shared<const Spec>(*std::move(spec));
  }
  if (faults.empty()) serve_kernels(state.kernels, *state.archs, names, faults);
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
      catalogue.state_->archs->merge(load_archs(folder / "arch", faults, catalogue.state_->odd_archs));
  if (!faults.empty()) throw SpecError(std::move(faults));
  return catalogue;
}

std::shared_ptr<const Spec> Catalogue::kernel(const std::string& name) const {
  const std::lock_guard lock(state_->mutex);
  return state_->kernel(name);
}

std::vector<std::string> Catalogue::kernel_names() const {
  std::set<std::string> names;
  std::vector<Fault> untold;
  for (const auto& folder : state_->specs)
    for (auto& name : kernels_in(folder, untold)) names.insert(std::move(name));
  return {names.begin(), names.end()};
}

std::vector<Fault> Catalogue::passed_over() const {
  std::vector<Fault> list = state_->odd_archs;
  for (const auto& folder : state_->specs) kernels_in(folder, list);
  return list;
}

const std::map<std::string, Arch>& Catalogue::archs() const { return *state_->archs; }

const Arch* Catalogue::arch(const std::string& full_name) const {
  const auto found = state_->archs->find(full_name);
  return found == state_->archs->end() ? nullptr : &found->second;
}

const TemplateLibrary& Catalogue::templates() const { return state_->templates; }

std::vector<const Arch*> Catalogue::archs_of(const Variant& variant) const { return archs_covered(variant.archs, *state_->archs); }

}  // namespace ejk::spec
