// Ids part by part, sources line by line.
#include "store/cache_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "store/files.hpp"

namespace ejk::tools {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// <kernel>.<variant>.<arch>.<specialisation>...<config>: what a part is, by its place.
std::string field_of(std::size_t index, std::size_t parts) {
  if (index == 1) return "variant";
  if (index == 2) return "arch";
  return index + 1 == parts ? "config" : "specialisation";
}

// Parts in the finest grain: those of a config or specialisation are joined by '_'.
std::size_t distance(const std::string& a, const std::string& b) {
  const auto x = split(a, '.'), y = split(b, '.');
  std::size_t count = 100 * (std::max(x.size(), y.size()) - std::min(x.size(), y.size()));
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (x[i] == y[i]) continue;
    const auto u = split(x[i], '_'), v = split(y[i], '_');
    count += 10 + std::max(u.size(), v.size()) - std::min(u.size(), v.size());
    for (std::size_t j = 0; j < std::min(u.size(), v.size()); ++j) count += u[j] != v[j];
  }
  return count;
}

std::vector<Difference> of_ids(const std::string& stored, const std::string& wanted) {
  const auto x = split(stored, '.'), y = split(wanted, '.');
  std::vector<Difference> differences;
  for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const auto a = i < x.size() ? x[i] : "(none)", b = i < y.size() ? y[i] : "(none)";
    if (a != b) differences.push_back({field_of(i, y.size()), a, b});
  }
  return differences;
}

Difference of_sources(const std::string& stored, const std::string& wanted) {
  const auto a = split(stored, '\n'), b = split(wanted, '\n');
  std::size_t line = 0;
  while (line < a.size() && line < b.size() && a[line] == b[line]) ++line;
  return {fmt::format("source, line {}, the first that differs", line + 1), line < a.size() ? a[line] : "(end of file)",
          line < b.size() ? b[line] : "(end of file)"};
}

std::vector<Difference> of_same_id(const CacheEntry& entry, const Wanted& wanted) {
  std::vector<Difference> differences = {{"source hash (it covers spec, template, flags and version)", entry.hash, wanted.image.hash}};
  std::string why;
  const auto source = store::read_file(entry.path / ("source." + wanted.backend->source_extension()), store::binary_limit, why);
  differences.push_back(source ? of_sources(*source, wanted.image.source) : Difference{"source", "cannot be read: " + why, "its text"});
  return differences;
}

}  // namespace

Nearest nearest_of(const Wanted& wanted, const std::vector<CacheEntry>& entries) {
  const CacheEntry* nearest = nullptr;
  for (const auto& entry : entries) {
    if (entry.kernel != wanted.image.kernel || entry.kind != CacheEntry::Kind::image) continue;
    const auto key = [&](const CacheEntry& e) { return std::tuple(distance(e.id, wanted.image.id), e.age_days); };
    if (!nearest || key(entry) < key(*nearest)) nearest = &entry;
  }
  if (!nearest) return {};
  return {*nearest, nearest->id == wanted.image.id ? of_same_id(*nearest, wanted) : of_ids(nearest->id, wanted.image.id)};
}

std::optional<std::string> failure_of(const store::Store& place, const Wanted& wanted) {
  std::string why;
  const auto text = store::read_file(place.entry_path(wanted.image).string() + ".failed", store::info_limit, why);
  if (!text) return std::nullopt;
  const auto then = store::failure_compiler(*text), now = wanted.backend->compiler(*wanted.arch);
  if (then.empty()) return "a failed build was remembered, but the file is damaged: it counts for nothing";
  if (then != now)
    return fmt::format("its build failed; the compiler differs: then {}, now {}: the next call tries again", then,
                       now.empty() ? "none" : now);
  return fmt::format("its build failed, and is not tried again by the same compiler ({}); it said:\n{}", then,
                     place.failed_log(wanted.image, then).value_or(""));
}

}  // namespace ejk::tools
