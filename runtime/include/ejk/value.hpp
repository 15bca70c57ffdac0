// A value of an attribute or of a config: 64-bit integer, boolean, 64-bit float or string.
#pragma once
#include <cstdint>
#include <string>
#include <variant>

namespace ejk {

using Value = std::variant<std::int64_t, bool, double, std::string>;

}  // namespace ejk
