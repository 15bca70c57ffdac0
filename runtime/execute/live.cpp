// LiveScope: looks at this call first, then at the plan's binding.
#include "execute/live.hpp"

#include "execute/facts.hpp"
#include "spec/render/template.hpp"

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
  if (!spec::reads_data(function)) return binding_.call(function, name, rest);
  const auto first = data_of(name);
  if (!first.facts) return binding_.call(function, name, rest);
  if (function == "outside_rows")
    if (const auto second = data_of(std::get<std::string>(rest[0])); second.facts)
      return spec::outside_rows(first, second, rest.subspan(1));
  return spec::read_data(function, name, *first.facts, first.data, rest);
}

spec::NamedData LiveScope::data_of(std::string_view name) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (const auto& known = kernel_.spec->tensors[i].name; known == name && tensors_[i])
      if (const auto facts = binding_.facts.tensors.find(known); facts != binding_.facts.tensors.end())
        return {known, &facts->second, data_.of(*tensors_[i])};
  return {};
}

void judge_live(const spec::Requirement& requirement, const LiveScope& scope, const KernelHandle& kernel) {
  if (requirement.that.boolean(scope)) return;
  throw spec::CallError(spec::CallError::Kind::bad_input, kernel.name + ": " + spec::interpolate(requirement.message, scope));
}

}  // namespace ejk
