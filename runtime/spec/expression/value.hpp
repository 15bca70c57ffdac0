// A value of the spec language: 64-bit integer, boolean, 64-bit float or string.
#pragma once
#include <cstdint>
#include <string>
#include <variant>

namespace ejk::spec {

using Value = std::variant<std::int64_t, bool, double, std::string>;

std::string to_text(const Value& value);         // 64, true, 0.5 (shortest that round-trips), f32 (bare)
std::string_view kind_name(const Value& value);  // "integer", "boolean", "float", "string"

}  // namespace ejk::spec
