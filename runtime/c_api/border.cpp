// Arguments of the C API as the C++ one has them.
#include "c_api/border.hpp"

#include <cstdlib>
#include <cstring>

#include "describe/values.hpp"
#include "execute/dlpack.hpp"
#include "execute/facts.hpp"

namespace ejk::c_api {

thread_local std::string last_error;

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

std::map<std::string, Value> attributes_of(const char* kernel, const char* text) {
  std::map<std::string, Value> attributes;
  if (!text) return attributes;
  const std::string what = std::string(kernel) + ": attributes";
  const auto object = parse_json(text, what);
  if (!object.is_object()) bad(what + R"( must be a JSON object such as {"causal": true}; found )" + object.type_name());
  for (const auto& [name, node] : object.items())
    if (!node.is_null()) attributes.emplace(name, value_from(node, std::string(kernel) + ": attribute '" + name + "'"));
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
