// Examples of a kernel's page: a call of the smallest of the spec's cases, in each language.
#pragma once
#include <string>

#include "spec/model.hpp"

namespace ejk::generator {

// Markdown: a block of code a language. Empty if no case has sizes alone (no case, or only such that must be given data).
std::string reference_examples(const spec::Spec& spec);

}  // namespace ejk::generator
