// Config to and from JSON.
#include <nlohmann/json.hpp>

#include "ejk/kernel.hpp"
#include "spec/read/json.hpp"

namespace ejk {
namespace {

using nlohmann::json;

json value_json(const Value& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

std::optional<Value> value_of(const json& node) {
  if (node.is_boolean()) return Value(node.get<bool>());
  if (node.is_number_integer()) return Value(node.get<std::int64_t>());
  if (node.is_number_float()) return Value(node.get<double>());
  if (node.is_string()) return Value(node.get<std::string>());
  return std::nullopt;
}

Error bad(std::string message) { return {ErrorCode::bad_input, "config: " + std::move(message)}; }

}  // namespace

std::string to_json(const Config& config) {
  json object = json::object();
  if (!config.variant.empty()) object["variant"] = config.variant;
  if (!config.arch.empty()) object["arch"] = config.arch;
  for (const auto& [name, value] : config.values) object[name] = value_json(value);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);  // a name that is no UTF-8 is none that is known
}

Result<Config> config_from_json(std::string_view text) {
  std::vector<spec::Fault> faults;
  const auto tree = spec::parse_json("config", std::string(text), faults);
  if (!tree) return Error{ErrorCode::bad_input, faults.empty() ? "config: not JSON" : faults.front().text()};
  const json object = *tree;  // from an ordered tree to a sorted one
  if (!object.is_object())
    return bad(R"(expected an object such as {"variant": "tiled", "block_m": 64}, found )" + std::string(object.type_name()));
  Config config;
  for (const auto& [name, node] : object.items()) {
    const auto value = value_of(node);
    if (!value) return bad("'" + name + "' must be a number, a boolean or a string; found " + node.type_name());
    if (name == "variant" || name == "arch") {
      if (!node.is_string()) return bad("'" + name + "' must be a string; found " + node.type_name());
      (name == "variant" ? config.variant : config.arch) = node.get<std::string>();
    } else {
      config.values.emplace(name, *value);
    }
  }
  return config;
}

}  // namespace ejk
