// Reading sizes.
#include "spec/read/byte_size.hpp"

#include <charconv>
#include <cmath>

namespace ejk::spec {

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || !(value >= 0)) return std::nullopt;
  auto unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.ends_with('B')) unit.remove_suffix(1);
  const bool binary = unit.size() == 2 && unit.ends_with('i');
  if (binary) unit.remove_suffix(1);
  if (unit.size() > 1) return std::nullopt;
  if (!unit.empty()) {
    const auto power = std::string_view("kMGT").find(unit[0] == 'K' ? 'k' : unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    value *= std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  return value < 9e18 ? std::optional(static_cast<std::int64_t>(std::llround(value))) : std::nullopt;
}

}  // namespace ejk::spec
