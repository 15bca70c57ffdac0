// What a well-formed spec can still get wrong: names, types and variants judged against archs, templates and the spec's own cases.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"
#include "spec/render/template.hpp"

namespace ejk::spec {

// Adds a fault for: an unknown name in an expression (with what is known there), a varying attribute used where it may not be, an arch or
// template that does not exist, a tensor or attribute that a variant neither uses nor refuses (check_use.hpp), a config space that is empty
// after `valid` for every case it supports, a heuristic that picks an invalid config or one outside the space, a case no variant supports
// (with each variant's refusal), a case that breaks a `requires`, a variant that no case reaches, two images with one id, an unknown
// gradient kernel, an unknown type. Images are not rendered here: the generator finds template faults.
void check_spec(const Spec& spec, const std::map<std::string, Arch>& archs, const TemplateLibrary& templates,
                const std::vector<std::string>& kernel_names, std::vector<Fault>& faults);

}  // namespace ejk::spec
