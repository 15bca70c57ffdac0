// From a key to an Invocation.
#include "tune/recorded_call.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/guard.hpp"
#include "execute/facts.hpp"

namespace ejk {
namespace {

using nlohmann::json;

[[noreturn]] void bad(const std::string& message) { throw CodedError(ErrorCode::bad_input, "recorded call: " + message); }

const json& field(const json& object, const char* name, const char* expected) {
  const auto found = object.find(name);
  if (found == object.end()) bad(fmt::format("'{}' is missing; expected {}", name, expected));
  return *found;
}

std::string text_field(const json& object, const char* name) {
  const auto& node = field(object, name, "text");
  if (!node.is_string()) bad(fmt::format("'{}' is {}; expected text", name, node.dump()));
  return node.get<std::string>();
}

const Machine& machine_with(const std::string& fingerprint) {
  std::string known;
  for (const auto& machine : Library::instance().parts().machines) {
    if (!machine.probe.available) continue;
    if (machine.probe.fingerprint == fingerprint) return machine;
    known += (known.empty() ? "" : ", ") + machine.probe.fingerprint;
  }
  bad(fmt::format("it was made for device '{}'; this machine has {}", fingerprint, known));
}

std::vector<std::int64_t> integers(const json& node, const std::string& what) {
  std::vector<std::int64_t> result;
  if (!node.is_array()) bad(fmt::format("{} is {}; expected a list of integers", what, node.dump()));
  for (const auto& item : node) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < 0)
      bad(fmt::format("{} has {}; expected integers of 0 or more", what, item.dump()));
    result.push_back(item.get<std::int64_t>());
  }
  if (result.size() > static_cast<std::size_t>(max_rank))
    bad(fmt::format("{} has {} dimensions, at most {} are possible", what, result.size(), max_rank));
  return result;
}

Value attribute(const std::string& name, const json& node) {
  if (node.is_boolean()) return node.get<bool>();
  if (node.is_number_integer()) return node.get<std::int64_t>();
  if (node.is_number_float()) return node.get<double>();
  if (node.is_string()) return node.get<std::string>();
  bad(fmt::format("the attribute {} is {}; expected a boolean, a number or text", name, node.dump()));
}

}  // namespace

RecordedCall::RecordedCall(const json& key, const Machine* machine) {
  if (!key.is_object()) bad(fmt::format("found {}; expected an object", key.dump().substr(0, 80)));
  kernel_ = &require_kernel(text_field(key, "kernel"));
  machine_ = machine ? machine : &machine_with(text_field(key, "device"));
  const auto& tensors = field(key, "tensors", "an object of [type, shape, strides?]");
  if (!tensors.is_object()) bad("'tensors' is no object");
  std::map<std::string, Value> attributes;
  for (const auto& [name, node] : tensors.items()) add_tensor(name, node);
  if (const auto found = key.find("attributes"); found != key.end())
    for (const auto& [name, node] : found->items()) attributes.emplace(name, attribute(name, node));
  invocation_.kernel = kernel_->name;
  invocation_.attributes = std::move(attributes);
  invocation_.device = machine_->probe.fingerprint;
  invocation_ = kernel_->kernel_interface()->canonical(invocation_);
}

void RecordedCall::add_tensor(const std::string& name, const json& node) {
  if (!node.is_array() || node.size() < 2 || !node[0].is_string())
    bad(fmt::format("tensor {} is {}; expected [type, shape] or [type, shape, strides]", name, node.dump()));
  const auto type = dtype_named(node[0].get<std::string>());
  if (!type) bad(fmt::format("tensor {} has an unknown type {}", name, node[0].dump()));
  const auto shape = integers(node[1], name + "'s shape");
  auto& view = invocation_.tensors.emplace(name, TensorView(nullptr, *type, shape)).first->second;
  if (node.size() > 2) {
    const auto strides = integers(node[2], name + "'s strides");
    if (strides.size() != shape.size()) bad(fmt::format("tensor {} has {} dims and {} strides", name, shape.size(), strides.size()));
    view = TensorView(nullptr, *type, shape, strides);
  }
  view.device = {machine_->backend->device_type(), machine_->device};
}

}  // namespace ejk
