// The Python function of a kernel, made from its spec: python/ejk/_functions/<kernel>.py and .pyi.
#pragma once
#include <string>
#include <vector>

#include "spec/model.hpp"

namespace ejk::generator {

std::string python_api(const spec::Spec& spec);                              // the function, with its docstring
std::string python_stub(const spec::Spec& spec);                             // its types, for checkers and editors
std::string python_functions(const std::vector<std::string>& kernel_names);  // the package's __init__.py

}  // namespace ejk::generator
