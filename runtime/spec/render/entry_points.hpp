// The entries of an image: their parameters, and for the CPU and the SIMT emulator the functions by which the runtime calls them.
#pragma once
#include <string>
#include <vector>

#include "spec/render/image.hpp"

namespace ejk::spec {

struct Parameter {
  std::string type;  // "const float*", "int64_t", "const View&"
  std::string name;
};

// "float" of "f32"; "void" of "none"; empty if it is no type name.
std::string c_type(std::string_view type);

// The parameters of the first launch of `entry`. Throws ExpressionError: no such entry, an argument without a C type, or another launch
// of it whose types differ. scope: with a config, open.
std::vector<Parameter> parameters_of(const VariantScope& scope, std::string_view entry);
std::string parameter_list(const std::vector<Parameter>& parameters);  // "const float* x, int64_t S"

// `extern "C" void ejk_<entry>(void* const* arguments, const Group* group)` for each entry.
std::string cpu_entry_points(const VariantScope& scope);
// The same without the group: called by each thread of the grid.
std::string simt_entry_points(const VariantScope& scope);

}  // namespace ejk::spec
