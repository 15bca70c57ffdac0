// Whether what is verified is what the working folder's sources say: a store keeps copies of specs and templates, which an edit leaves
// alone.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "execute/library_state.hpp"

namespace ejk::tools {

// One sentence for each kernel whose spec, or templates, in `folder` (one with specs/ and templates/, as this repository is) are not those
// that calls here use: which is newer, and what to run. Empty: they are the same, or `folder` has no such kernel.
std::vector<std::string> other_copies(const std::vector<const KernelHandle*>& kernels, const std::filesystem::path& folder);

}  // namespace ejk::tools
