// ejk/json.hpp for JSON text and plain values.
#include "describe/values.hpp"

#include "spec/read/json.hpp"

namespace ejk {

nlohmann::json parse_json(std::string_view text, const std::string& what) {
  std::vector<spec::Fault> faults;
  const auto tree = spec::parse_json(what, std::string(text), faults);
  if (tree && faults.empty()) return *tree;  // from an ordered tree to a sorted one
  refuse(faults.empty() ? what + ": not JSON" : faults.front().text());
}

Value value_from(const nlohmann::json& node, const std::string& what) {
  if (node.is_boolean()) return node.get<bool>();
  if (node.is_number_integer()) return node.get<std::int64_t>();
  if (node.is_number_float()) return node.get<double>();
  if (node.is_string()) return node.get<std::string>();
  refuse(fmt::format("{} is of type {}; expected a number, a boolean or a string", what, node.type_name()));
}

Values values_from(const nlohmann::json& node, const std::string& what) {
  if (!node.is_object()) refuse(fmt::format("{} is of type {}; expected an object", what, node.type_name()));
  Values values;
  for (const auto& [name, value] : node.items()) values.emplace(name, value_from(value, fmt::format("{}: '{}'", what, name)));
  return values;
}

std::string dumped(const nlohmann::json& node, const std::string& what) {
  try {
    return node.dump();
  } catch (const nlohmann::json::type_error&) {
    refuse(what + ": text that is not UTF-8; JSON holds no other");
  }
}

Result<std::string> stable_json(std::string_view text) {
  return guarded([&]() -> Result<std::string> { return dumped(parse_json(text, "stable_json"), "stable_json"); });
}

Result<std::string> to_json(const Values& values) {
  return guarded([&]() -> Result<std::string> {
    auto object = nlohmann::json::object();
    for (const auto& [name, value] : values) object[name] = json_of(value, fmt::format("value '{}'", name));
    return dumped(object, "values");
  });
}

Result<Values> values_from_json(std::string_view text) {
  return guarded([&]() -> Result<Values> { return values_from(parse_json(text, "values"), "values"); });
}

}  // namespace ejk
