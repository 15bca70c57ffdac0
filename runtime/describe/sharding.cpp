// ejk/sharding.hpp: shardings as text, and keys that hold them.
#include "ejk/sharding.hpp"

#include <algorithm>
#include <set>

#include "describe/invocation.hpp"
#include "describe/values.hpp"

namespace ejk {
namespace {

// Names are written bare, between the signs of the fingerprint.
void check_name(const std::string& name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
  if (name.empty() || !std::all_of(name.begin(), name.end(), plain))
    refuse(fmt::format("mesh axis '{}': expected a name of letters, digits and _", name));
}

std::string fingerprint_of(const Mesh& mesh) {
  if (mesh.axes.size() != mesh.shape.size())
    refuse(fmt::format("the mesh names {} axes, but has {} sizes; expected one size an axis", mesh.axes.size(), mesh.shape.size()));
  std::set<std::string> seen;
  std::string text;
  for (std::size_t i = 0; i < mesh.axes.size(); ++i) {
    check_name(mesh.axes[i]);
    if (!seen.insert(mesh.axes[i]).second) refuse(fmt::format("the mesh names axis '{}' twice", mesh.axes[i]));
    if (mesh.shape[i] < 1) refuse(fmt::format("mesh axis '{}' has size {}, expected 1 or more", mesh.axes[i], mesh.shape[i]));
    text += fmt::format("{}{}={}", i ? "," : "", mesh.axes[i], mesh.shape[i]);
  }
  return "mesh[" + text + "]";
}

std::string fingerprint_of(const Sharding& sharding) {
  auto dims = sharding.dims;
  while (!dims.empty() && dims.back().empty()) dims.pop_back();  // whole dimensions at the end need not be written
  std::set<std::string> used;
  for (const auto& axes : dims)
    for (const auto& axis : axes) {
      if (std::find(sharding.mesh.axes.begin(), sharding.mesh.axes.end(), axis) == sharding.mesh.axes.end())
        refuse(fmt::format("a dimension is split over '{}', which is no axis of the mesh ({})", axis, fmt::join(sharding.mesh.axes, ", ")));
      if (!used.insert(axis).second) refuse(fmt::format("mesh axis '{}' splits a tensor twice", axis));
    }
  std::string text;
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += fmt::format("{}{}", i ? "|" : "", dims[i].empty() ? "-" : fmt::format("{}", fmt::join(dims[i], "*")));
  return fmt::format("{}:[{}]", fingerprint_of(sharding.mesh), text);
}

}  // namespace

Result<std::string> sharding_fingerprint(const Sharding& sharding) {
  return guarded([&]() -> Result<std::string> { return fingerprint_of(sharding); });
}

Result<std::string> default_key_builder_with_sharding(const Invocation& invocation, const std::map<std::string, Sharding>& shardings) {
  return guarded([&]() -> Result<std::string> {
    auto object = json_of(invocation);
    for (const auto& [name, sharding] : shardings) {
      const auto tensor = invocation.tensors.find(name);
      if (tensor == invocation.tensors.end())
        refuse(fmt::format("{}: no tensor '{}' that a sharding could be of", invocation.kernel, name));
      if (sharding.dims.size() > static_cast<std::size_t>(tensor->second.rank))
        refuse(fmt::format("{}: the sharding of '{}' has {} dimensions, the tensor {}", invocation.kernel, name, sharding.dims.size(),
                           tensor->second.rank));
      object["sharding"][name] = fingerprint_of(sharding);
    }
    return object.dump();
  });
}

}  // namespace ejk
