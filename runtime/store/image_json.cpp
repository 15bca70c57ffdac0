// image.json: written with fields in a fixed order, read with every field checked.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "store/store.hpp"

namespace ejk::store {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
constexpr int schema = 1;

[[noreturn]] void refuse(const std::string& sentence) { throw std::runtime_error("image.json: " + sentence); }

const json& field(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("field \"{}\" is missing", name));
  return *found;
}

std::string text(const json& object, const char* name) {
  const auto& value = field(object, name);
  if (!value.is_string()) refuse(fmt::format("\"{}\": expected a string, found {}", name, value.type_name()));
  return value.get<std::string>();
}

std::int64_t integer(const json& value, const std::string& name) {
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
  if (!fits)
    refuse(fmt::format("\"{}\": expected a 64-bit integer, found {}", name, value.is_number_integer() ? value.dump() : value.type_name()));
  return value.get<std::int64_t>();
}

std::string hex(const json& object, const char* name, std::size_t digits) {
  auto value = text(object, name);
  if (value.size() != digits || value.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(fmt::format("\"{}\": expected {} hexadecimal digits, found {} characters", name, digits, value.size()));
  return value;
}

std::vector<std::string> texts(const json& object, const char* name) {
  const auto& value = field(object, name);
  if (!value.is_array()) refuse(fmt::format("\"{}\": expected a list of strings, found {}", name, value.type_name()));
  std::vector<std::string> result;
  for (const auto& word : value) {
    if (!word.is_string()) refuse(fmt::format("\"{}\": expected a list of strings, found {} in it", name, word.type_name()));
    result.push_back(word.get<std::string>());
  }
  return result;
}

json parse(const std::string& words) {
  // Depth is bounded before the tree is built: the parser itself is iterative, but destroying a deep tree is costly.
  const auto shallow = [](int depth, json::parse_event_t, json&) {
    if (depth > 8) refuse("nested deeper than 8 levels");
    return true;
  };
  try {
    auto object = json::parse(words, shallow);
    if (!object.is_object()) refuse(fmt::format("expected an object, found {}", object.type_name()));
    return object;
  } catch (const json::exception& error) {
    refuse(std::string("not JSON: ") + error.what());
  }
}

}  // namespace

std::string to_json(const ImageInfo& info) {
  ordered_json object;
  object["schema"] = schema;
  object["id"] = info.id;
  object["kernel"] = info.kernel;
  object["arch"] = info.arch;
  object["source_hash"] = info.source_hash;
  object["compiler"] = info.compiler;
  object["command"] = info.command;
  object["binary_sha256"] = info.binary_sha256;
  object["binary_bytes"] = info.binary_bytes;
  if (!info.code.empty()) object["code"] = info.code;
  object["resources"] = ordered_json::object();
  for (const auto& [name, value] : info.resources) object["resources"][name] = value;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";  // a compiler's name may be no UTF-8
}

ImageInfo parse_image_info(const std::string& words) {
  const auto object = parse(words);
  if (const auto found = integer(field(object, "schema"), "schema"); found != schema)
    throw UnknownSchema(fmt::format("image.json: schema {} is unknown: expected {}", found, schema));
  ImageInfo info;
  info.id = text(object, "id");
  info.kernel = text(object, "kernel");
  info.arch = text(object, "arch");
  info.source_hash = hex(object, "source_hash", 16);
  info.compiler = text(object, "compiler");
  info.command = texts(object, "command");
  info.binary_sha256 = hex(object, "binary_sha256", 64);
  info.binary_bytes = integer(field(object, "binary_bytes"), "binary_bytes");
  if (info.binary_bytes < 0) refuse(fmt::format("\"binary_bytes\": expected 0 or more, found {}", info.binary_bytes));
  if (object.contains("code")) info.code = hex(object, "code", 16);
  const auto& resources = field(object, "resources");
  if (!resources.is_object()) refuse(fmt::format("\"resources\": expected an object, found {}", resources.type_name()));
  for (const auto& [name, value] : resources.items()) info.resources.emplace_back(name, integer(value, "resources/" + name));
  return info;
}

}  // namespace ejk::store
