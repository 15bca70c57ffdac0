// Which cubins run where (CUDA C++ Programming Guide, "Binary compatibility").
#include "backends/cuda/cuda_arch.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

namespace ejk::cuda {

std::optional<Sm> parse_sm(std::string_view arch) {
  if (const auto colon = arch.find(':'); colon != std::string_view::npos) arch.remove_prefix(colon + 1);
  if (!arch.starts_with("sm_")) return std::nullopt;
  arch.remove_prefix(3);
  Sm sm;
  if (arch.ends_with('a')) {
    sm.specific = true;
    arch.remove_suffix(1);
  }
  int number = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  if (error != std::errc{} || end != arch.data() + arch.size() || number < 10 || number > 255) return std::nullopt;
  sm.major = number / 10;
  sm.minor = number % 10;
  return sm;
}

bool runs_on(const Sm& arch, int major, int minor) {
  if (arch.specific || (major == 8 && minor == 7)) return arch.major == major && arch.minor == minor;
  return arch.major == major && arch.minor <= minor;
}

std::vector<std::string> runnable_archs(std::span<const spec::Arch* const> archs, int major, int minor) {
  std::vector<std::tuple<int, bool, std::string>> found;
  for (const auto* arch : archs)
    if (const auto sm = parse_sm(arch->name); sm && runs_on(*sm, major, minor))
      found.emplace_back(-sm->number(), !sm->specific, arch->full_name());
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (auto& row : found) names.push_back(std::move(std::get<std::string>(row)));
  return names;
}

}  // namespace ejk::cuda
