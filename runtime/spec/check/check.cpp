// The whole check of a loaded spec: names first, then its files, then its cases.
#include "spec/check/check.hpp"

#include "spec/call/gradient.hpp"
#include "spec/check/check_cases.hpp"
#include "spec/check/check_names.hpp"
#include "spec/check/check_use.hpp"

namespace ejk::spec {
namespace {

void check_templates(const Spec& spec, const TemplateLibrary& templates, std::vector<Fault>& faults) {
  for (const Variant& variant : spec.variants)
    if (!templates.has(variant.template_file))
      faults.push_back(
          {spec.file, variant.pointer + "/template", "there is no template '" + variant.template_file + "' below " + templates.folders()});
}

}  // namespace

void check_spec(const Spec& spec, const std::map<std::string, Arch>& archs, const TemplateLibrary& templates,
                const std::vector<std::string>& kernel_names, std::vector<Fault>& faults) {
  const std::size_t before = faults.size();
  check_names(spec, archs, faults);
  const bool names_are_sound = faults.size() == before;
  check_gradient(spec, kernel_names, faults);
  check_gradient_calls(spec, spec, faults);  // of itself; the catalogue looks at the others
  check_templates(spec, templates, faults);
  if (names_are_sound && !spec.same_as) check_use(spec, faults);
  if (names_are_sound && !spec.same_as) check_cases(spec, archs, faults);
  as_written(spec, faults, before);
}

}  // namespace ejk::spec
