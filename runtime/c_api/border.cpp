// Arguments of the C API as the C++ one has them.
#include "c_api/border.hpp"

#include <cstdlib>
#include <cstring>

#include "backends/thread_table.hpp"
#include "describe/values.hpp"
#include "execute/dlpack.hpp"
#include "execute/facts.hpp"
#include "spec/read/json_integers.hpp"

namespace ejk::c_api {

std::string& last_error() {
  struct Words {
    std::string text;
  };
  return of_thread<Words>().text;
}

std::map<std::string, TensorView> views_of(const char* kernel, const ejk_argument* tensors, std::size_t count) {
  if (count && !tensors) bad(std::string(kernel) + ": the array of tensors is NULL");
  std::map<std::string, TensorView> views;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = required(tensors[i].name, "a tensor's name");
    if (!tensors[i].tensor) continue;  // absent
    if (!views.emplace(name, view_of(kernel + (": " + name), *tensors[i].tensor)).second)
      bad(std::string(kernel) + ": tensor '" + name + "' is given twice");
  }
  return views;
}

namespace {

// An attribute's value. A seed, an integer that varies from call to call, may be any 64 bits.
Value attribute_from(const char* kernel, const std::string& name, const nlohmann::json& node) {
  const std::string what = std::string(kernel) + ": attribute '" + name + "'";
  if (!node.is_number_unsigned()) return value_from(node, what);
  const auto* attribute = require_kernel(kernel).spec->attribute(name);
  const auto bits = node.get<std::uint64_t>();
  if (!attribute || !attribute->varies || attribute->type != spec::AttributeType::integer)
    bad(what + ": the integer " + std::to_string(bits) + " does not fit 64 bits with a sign");
  return static_cast<std::int64_t>(bits);
}

}  // namespace

std::map<std::string, Value> attributes_of(const char* kernel, const char* text) {
  std::map<std::string, Value> attributes;
  if (!text) return attributes;
  const std::string what = std::string(kernel) + ": attributes";
  std::vector<spec::Fault> faults;
  const auto tree = spec::parse_json(what, text, faults, spec::Integers::any_64_bits);
  if (!tree || !faults.empty()) bad(faults.empty() ? what + ": not JSON" : faults.front().text());
  const nlohmann::json object = *tree;  // from an ordered tree to a sorted one
  if (!object.is_object()) bad(what + R"( must be a JSON object such as {"causal": true}; found )" + object.type_name());
  for (const auto& [name, node] : object.items())
    if (!node.is_null()) attributes.emplace(name, attribute_from(kernel, name, node));
  return attributes;
}

std::optional<Config> config_of(const char* text) {
  if (!text) return std::nullopt;
  auto config = config_from_json(text);
  if (!config) bad(config.error().message);
  return *config;
}

Invocation invocation_of(const char* kernel, const ejk_argument* tensors, std::size_t count, const char* attributes) {
  Invocation invocation;
  invocation.kernel = required(kernel, "the kernel's name");
  const auto& handle = require_kernel(kernel);
  invocation.tensors = views_of(kernel, tensors, count);
  invocation.attributes = attributes_of(kernel, attributes);
  (void)positional(handle, invocation.tensors, invocation.attributes);  // throws: names that the kernel does not have
  invocation = handle.kernel_interface()->canonical(invocation);
  if (invocation.device.empty()) bad(std::string(kernel) + ": its tensors are on no device that ejk found; `ejk info` lists them");
  return invocation;
}

Status give(Result<std::string> text, char** out) {
  if (!text) return text.error();
  required(out, "the place for the text");
  auto* copy = static_cast<char*>(std::malloc(text->size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text->c_str(), text->size() + 1);
  *out = copy;
  return {};
}

}  // namespace ejk::c_api
