// Values as nlohmann's JSON and back, with words for what is refused.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/guard.hpp"
#include "ejk/json.hpp"

namespace ejk {

[[noreturn]] inline void refuse(const std::string& message) { throw CodedError(ErrorCode::bad_input, message); }

// Object members come sorted. Throws CodedError, naming `what`, the place and the fault.
nlohmann::json parse_json(std::string_view text, const std::string& what);

inline nlohmann::json json_of(const Value& value, const std::string& what) {
  if (const auto* number = std::get_if<double>(&value); number && !std::isfinite(*number))
    refuse(fmt::format("{} is {}, which JSON has no number for; expected a finite one", what, *number));
  return std::visit([](const auto& v) { return nlohmann::json(v); }, value);
}

// Throws CodedError for an array, an object or null.
Value value_from(const nlohmann::json& node, const std::string& what);
Values values_from(const nlohmann::json& node, const std::string& what);

// Throws CodedError where text is not UTF-8.
std::string dumped(const nlohmann::json& node, const std::string& what);

}  // namespace ejk
