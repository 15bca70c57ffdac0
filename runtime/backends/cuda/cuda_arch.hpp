// CUDA archs by name and number: "sm_90a" is compute capability 9.0, with the instructions that only it has.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/model.hpp"

namespace ejk::cuda {

struct Sm {
  int major = 0, minor = 0;
  bool specific = false;  // "a": runs on exactly this capability
  int number() const { return 10 * major + minor; }
};

// "sm_90a", with or without "cuda:"; nullopt: not such a name.
std::optional<Sm> parse_sm(std::string_view arch);

// Whether cubins of `arch` run on a device of that capability: same major, minor at least the arch's; of "a" archs exactly; on Tegra's
// capability 8.7 none of a desktop part.
bool runs_on(const Sm& arch, int major, int minor);

// Full names of those of `archs` that the device runs, most specific first.
std::vector<std::string> runnable_archs(std::span<const spec::Arch* const> archs, int major, int minor);

}  // namespace ejk::cuda
