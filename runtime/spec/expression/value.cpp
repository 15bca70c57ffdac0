// Values as text.
#include "spec/expression/value.hpp"

#include <array>
#include <charconv>

namespace ejk::spec {
namespace {

// "1.0", not "1": the text of a float reads back as a float.
std::string float_text(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string to_text(const Value& value) {
  switch (value.index()) {
    case 0:
      return std::to_string(std::get<std::int64_t>(value));
    case 1:
      return std::get<bool>(value) ? "true" : "false";
    case 2:
      return float_text(std::get<double>(value));
    default:
      return std::get<std::string>(value);
  }
}

std::string_view kind_name(const Value& value) {
  static constexpr std::array<std::string_view, 4> names = {"integer", "boolean", "float", "string"};
  return names.at(value.index());
}

}  // namespace ejk::spec
