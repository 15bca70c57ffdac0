// LiveScope: looks at this call first, then at the plan's binding.
#include "execute/live.hpp"

#include "execute/facts.hpp"
#include "spec/template.hpp"

namespace ejk {

std::optional<spec::Value> LiveScope::lookup(std::string_view name) const {
  const auto& attributes = kernel_.spec->attributes;
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    if (!kernel_.varies[i] || attributes[i].name != name || attributes_[i].kind == AttributeValue::Kind::absent) continue;
    if (attributes[i].type == spec::AttributeType::floating && attributes_[i].kind == AttributeValue::Kind::integer)
      return static_cast<double>(attributes_[i].integer);
    return value_of(attributes_[i]);
  }
  return binding_.lookup(name);
}

std::optional<spec::Value> LiveScope::call(std::string_view function, std::string_view name, std::span<const spec::Value> rest) const {
  if (spec::reads_data(function))
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (kernel_.spec->tensors[i].name == name && tensors_[i])
        return spec::read_data(function, name, binding_.facts.tensors.at(std::string(name)), tensors_[i]->data, rest);
  return binding_.call(function, name, rest);
}

void judge_live(const spec::Requirement& requirement, const LiveScope& scope, const KernelHandle& kernel) {
  if (requirement.that.boolean(scope)) return;
  throw spec::CallError(spec::CallError::Kind::bad_input, kernel.name + ": " + spec::interpolate(requirement.message, scope));
}

}  // namespace ejk
