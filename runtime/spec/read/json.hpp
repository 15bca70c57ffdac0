// JSON text to a tree: duplicate keys, numbers that do not fit and deep nesting are faults, and the order of fields is kept.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/fault.hpp"

namespace ejk::spec {

using Json = nlohmann::ordered_json;

// nullopt after a fault. A syntax error is a fault at line:column; the others are at a JSON pointer.
std::optional<Json> parse_json(const std::string& file, const std::string& text, std::vector<Fault>& faults);

// An object's field if it is a list; nullptr: there is none.
Json* list_in(Json& object, const char* field);

// pointer + "/" + token, escaped as RFC 6901 says.
std::string pointer_to(const std::string& parent, std::string_view token);
std::string pointer_to(const std::string& parent, std::size_t index);

}  // namespace ejk::spec
