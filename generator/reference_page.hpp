// The reference page of a kernel, made from its spec: docs/kernels/<kernel>.md. Contract, errors, gradient, variants, examples.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "spec/model.hpp"

namespace ejk::generator {

// The page's Markdown.
std::string reference_page(const spec::Spec& spec);

// Pages of all kernels of `specs`, with an index of them (README.md), into `folder`; pages of kernels that are gone are removed. Files
// whose bytes are right are left alone. Returns how many were written or removed. Throws spec::SpecError, or std::runtime_error with a
// path.
std::size_t write_reference(const std::filesystem::path& specs, const std::filesystem::path& templates,
                            const std::filesystem::path& folder);

// One line a difference between the folder and what would be written.
std::vector<std::string> check_reference(const std::filesystem::path& specs, const std::filesystem::path& templates,
                                         const std::filesystem::path& folder);

}  // namespace ejk::generator
