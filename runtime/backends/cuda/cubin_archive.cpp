// Writing and reading archives of cubins.
#include "backends/cuda/cubin_archive.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <system_error>

namespace ejk::cuda {
namespace {

// The format of `ar`: a line, then of each member a header of 60 characters and its bytes, to an even number of them.
constexpr std::string_view archive_line = "!<arch>\n", header_end = "`\n";
constexpr std::size_t header_size = 60, size_at = 48, size_width = 10;

}  // namespace

std::string join_cubins(const std::vector<std::string>& cubins) {
  std::string archive{archive_line};
  for (std::size_t i = 0; i < cubins.size(); ++i) {
    archive += fmt::format("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}{}", fmt::format("{}.cubin/", i), 0, 0, 0, 644, cubins[i].size(), header_end);
    archive += cubins[i];
    if (cubins[i].size() % 2 != 0) archive += '\n';
  }
  return archive;
}

std::vector<std::string> cubins_of(const std::string& binary, std::string& why_not) {
  if (!binary.starts_with(archive_line)) return {binary};
  std::vector<std::string> cubins;
  for (auto at = archive_line.size(); at < binary.size();) {
    const auto number = fmt::format("cubin {} of the archive", cubins.size());
    const std::string_view header = std::string_view(binary).substr(at, header_size);
    if (header.size() < header_size || !header.ends_with(header_end)) {
      why_not = number + " has no header";
      return {};
    }
    std::size_t size = 0;
    const auto digits = header.substr(size_at, size_width);
    const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    at += header_size;
    const bool is_number = wrong == std::errc() && digits.substr(end - digits.data()).find_first_not_of(' ') == std::string_view::npos;
    if (!is_number || size > binary.size() - at) {
      why_not = fmt::format("{} is to have '{}' bytes; there are {}", number, digits, binary.size() - at);
      return {};
    }
    cubins.push_back(binary.substr(at, size));
    at += size + size % 2;
  }
  if (cubins.empty()) why_not = "the archive has no cubin";
  return cubins;
}

}  // namespace ejk::cuda
