// Invocations as JSON and back.
#include "describe/invocation.hpp"

#include <algorithm>

#include "describe/values.hpp"

namespace ejk {
namespace {

using nlohmann::json;

const json& member(const json& object, const char* name, const std::string& what) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("{}: no '{}'", what, name));
  return *found;
}

std::string text_of(const json& object, const char* name, const std::string& what) {
  const auto& node = member(object, name, what);
  if (!node.is_string() || node.get_ref<const std::string&>().empty())
    refuse(fmt::format("{}: '{}' must be a string that is not empty; found {}", what, name, node.dump()));
  return node.get<std::string>();
}

std::vector<std::int64_t> extents_of(const json& node, const std::string& what, bool negative) {
  if (!node.is_array()) refuse(fmt::format("{} must be a list of integers; found {}", what, node.dump()));
  if (node.size() > static_cast<std::size_t>(max_rank))
    refuse(fmt::format("{} has {} entries; a tensor has at most {} dimensions", what, node.size(), max_rank));
  std::vector<std::int64_t> extents;
  for (const auto& entry : node) {
    if (!entry.is_number_integer() || (!negative && entry.get<std::int64_t>() < 0))
      refuse(fmt::format("{} must be a list of integers{}; found {}", what, negative ? "" : " of 0 or more", node.dump()));
    extents.push_back(entry.get<std::int64_t>());
  }
  return extents;
}

// ["f32", [2, 3]] or ["f32", [2, 3], [1, 2]]
TensorView tensor_from(const json& node, const std::string& what, Device device) {
  if (!node.is_array() || node.size() < 2 || node.size() > 3 || !node[0].is_string())
    refuse(fmt::format(R"({} must be ["f32", shape] or ["f32", shape, strides]; found {})", what, node.dump()));
  const auto type = dtype_named(node[0].get_ref<const std::string&>());
  if (!type) refuse(fmt::format("{}: no element type '{}'", what, node[0].get_ref<const std::string&>()));
  const auto shape = extents_of(node[1], what + ": the shape", false);
  TensorView view(nullptr, *type, shape);
  view.device = device;
  if (node.size() == 2) return view;
  const auto strides = extents_of(node[2], what + ": the strides", true);
  if (strides.size() != shape.size())
    refuse(fmt::format("{} has {} strides, expected {}, one a dimension", what, strides.size(), shape.size()));
  std::copy(strides.begin(), strides.end(), view.strides);
  return view;
}

}  // namespace

Device device_of_fingerprint(std::string_view fingerprint) {
  const auto platform = fingerprint.substr(0, fingerprint.find('-'));
  if (platform == "cpu") return {};
  if (platform == "cuda") return {DeviceType::cuda, 0};
  if (platform == "hip") return {DeviceType::rocm, 0};
  return {DeviceType::extension, 0};
}

json json_of(const Invocation& invocation) {
  for (const auto& [name, value] : invocation.attributes)
    if (std::find(invocation.varying.begin(), invocation.varying.end(), name) == invocation.varying.end())
      (void)json_of(value, fmt::format("{}: attribute '{}'", invocation.kernel, name));  // a number that is not finite
  for (const auto& [name, view] : invocation.tensors)
    if (view.rank < 0 || view.rank > max_rank) refuse(fmt::format("{}: tensor '{}' has rank {}", invocation.kernel, name, view.rank));
  try {
    return json::parse(invocation.key());
  } catch (const json::type_error&) {
    refuse("a call: text that is not UTF-8; JSON holds no other");
  }
}

Invocation invocation_from(const json& object, const std::string& what) {
  if (!object.is_object()) refuse(fmt::format("{}: expected an object, found {}", what, object.type_name()));
  Invocation invocation;
  invocation.kernel = text_of(object, "kernel", what);
  invocation.device = text_of(object, "device", what);
  const auto& tensors = member(object, "tensors", what);
  if (!tensors.is_object()) refuse(fmt::format("{}: 'tensors' must be an object; found {}", what, tensors.type_name()));
  for (const auto& [name, node] : tensors.items())
    invocation.tensors.emplace(name,
                               tensor_from(node, fmt::format("{}: tensor '{}'", what, name), device_of_fingerprint(invocation.device)));
  invocation.attributes = values_from(member(object, "attributes", what), what + ": 'attributes'");
  return invocation;
}

Result<std::string> to_json(const Invocation& invocation) {
  return guarded([&]() -> Result<std::string> { return json_of(invocation).dump(); });
}

Result<Invocation> invocation_from_json(std::string_view text) {
  return guarded([&]() -> Result<Invocation> {
    const auto object = parse_json(text, "invocation");
    for (const auto& [name, node] : object.items())
      if (object.is_object() && name != "kernel" && name != "device" && name != "tensors" && name != "attributes")
        refuse(fmt::format("invocation: no field '{}'; expected kernel, device, tensors, attributes", name));
    return invocation_from(object, "invocation");
  });
}

}  // namespace ejk
