// The whole check of a loaded spec: names first, then its files, then its cases.
#include "spec/check.hpp"

#include <algorithm>

#include "spec/check_cases.hpp"
#include "spec/check_names.hpp"
#include "spec/suggest.hpp"

namespace ejk::spec {
namespace {

void check_gradient(const Spec& spec, const std::vector<std::string>& kernels, std::vector<Fault>& faults) {
  if (spec.gradient.empty() || std::find(kernels.begin(), kernels.end(), spec.gradient) != kernels.end()) return;
  faults.push_back({spec.file, "/gradient/kernel", "unknown kernel '" + spec.gradient + "'" + suggestion(spec.gradient, kernels)});
}

void check_templates(const Spec& spec, const TemplateLibrary& templates, std::vector<Fault>& faults) {
  for (const Variant& variant : spec.variants)
    if (!templates.has(variant.template_file))
      faults.push_back({spec.file, variant.pointer + "/template",
                        "there is no template '" + variant.template_file + "' below " + templates.root().generic_string()});
}

}  // namespace

void check_spec(const Spec& spec, const std::map<std::string, Arch>& archs, const TemplateLibrary& templates,
                const std::vector<std::string>& kernel_names, std::vector<Fault>& faults) {
  const std::size_t before = faults.size();
  check_names(spec, archs, faults);
  const bool names_are_sound = faults.size() == before;
  check_gradient(spec, kernel_names, faults);
  check_templates(spec, templates, faults);
  if (names_are_sound) check_cases(spec, archs, faults);
}

}  // namespace ejk::spec
