// Binding a call: the order of the steps, names, attributes, form, types and requirements. Shapes are in binding_shapes.cpp.
#include "spec/call/binding.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "spec/call/binder.hpp"
#include "spec/check/suggest.hpp"
#include "spec/render/template.hpp"

namespace ejk::spec {
namespace {

std::string quoted(const Value& value) {
  return std::holds_alternative<std::string>(value) ? fmt::format("'{}'", std::get<std::string>(value)) : to_text(value);
}

std::string_view name_of(AttributeType type) {
  switch (type) {
    case AttributeType::boolean:
      return "a boolean";
    case AttributeType::integer:
      return "an integer";
    case AttributeType::floating:
      return "a float";
    case AttributeType::string:
      return "a string";
  }
  return "?";
}

bool fits(AttributeType type, const Value& value) {
  switch (type) {
    case AttributeType::boolean:
      return std::holds_alternative<bool>(value);
    case AttributeType::integer:
      return std::holds_alternative<std::int64_t>(value);
    case AttributeType::floating:
      return std::holds_alternative<double>(value);
    case AttributeType::string:
      return std::holds_alternative<std::string>(value);
  }
  return false;
}

// The value as the attribute's type, or an error that names it. `origin`: "" or " (its default)".
Value checked(const Binder& binder, const Attribute& attribute, Value value, std::string_view origin) {
  if (attribute.type == AttributeType::floating && std::holds_alternative<std::int64_t>(value))
    value = static_cast<double>(std::get<std::int64_t>(value));
  if (!fits(attribute.type, value))
    binder.fail(fmt::format("attribute {} is {} ({}){}, expected {}", attribute.name, quoted(value), kind_name(value), origin,
                            name_of(attribute.type)));
  if (const double* number = std::get_if<double>(&value); number && !std::isfinite(*number))
    binder.fail(fmt::format("attribute {} is {}{}, expected a finite number", attribute.name, to_text(value), origin));
  if (const auto* word = std::get_if<std::string>(&value); word && !attribute.choices.empty()) {
    if (std::find(attribute.choices.begin(), attribute.choices.end(), *word) == attribute.choices.end())
      binder.fail(fmt::format("attribute {} is '{}'{}, expected one of {}", attribute.name, *word, origin, listed(attribute.choices)));
  }
  return value;
}

bool varies(const Spec& spec, const Requirement& requirement) {
  for (const std::string& name : requirement.that.names()) {
    const Attribute* attribute = spec.attribute(name);
    if (attribute && attribute->varies) return true;
  }
  return false;
}

// A rule that reads tensors is judged only where their data can be read; on a device it is trusted.
bool judgeable(const Binding& binding, const Requirement& requirement) {
  return std::all_of(requirement.reads.begin(), requirement.reads.end(), [&](const std::string& name) {
    const auto tensor = binding.facts.tensors.find(name);
    return tensor != binding.facts.tensors.end() && (tensor->second.host_data != nullptr || is_empty(tensor->second));
  });
}

void judge(const Binding& binding, const Requirement& requirement) {
  const std::string& kernel = binding.spec->kernel;
  std::string message;
  try {
    if (requirement.that.boolean(binding)) return;
    message = interpolate(requirement.message, binding);
  } catch (const ExpressionError& e) {
    message = fmt::format("cannot judge the rule `{}`: {}", requirement.that.text(), e.what());
  }
  throw CallError(CallError::Kind::bad_input, fmt::format("{}: {}", kernel, message));
}

}  // namespace

void Binder::fail(const std::string& sentence) const {
  throw CallError(CallError::Kind::bad_input, fmt::format("{}: {}", spec.kernel, sentence));
}

void Binder::check_names() const {
  for (const auto& [name, facts] : binding.facts.tensors) {
    if (spec.tensor(name)) continue;
    std::vector<std::string> known;
    for (const TensorSpec& tensor : spec.tensors) known.push_back(tensor.name);
    fail(fmt::format("there is no tensor '{}'{}", name, suggestion(name, known)));
  }
  for (const auto& [name, value] : binding.facts.attributes) {
    if (spec.attribute(name)) continue;
    std::vector<std::string> known;
    for (const Attribute& attribute : spec.attributes) known.push_back(attribute.name);
    fail(fmt::format("there is no attribute '{}'{}", name, suggestion(name, known)));
  }
}

void Binder::take_attributes() {
  for (auto& [name, value] : binding.facts.attributes) {
    value = checked(*this, *spec.attribute(name), value, "");
    binding.attributes[name] = value;
  }
  // Defaults that need no dim, so that a form may depend on them; the others follow once dims are known.
  for (const Attribute& attribute : spec.attributes) {
    if (binding.attributes.count(attribute.name) || !attribute.fallback || !attribute.fallback.names().empty()) continue;
    try {
      binding.attributes[attribute.name] = checked(*this, attribute, attribute.fallback.evaluate(binding), " (its default)");
    } catch (const ExpressionError& e) {
      fail(fmt::format("the default of attribute {}, `{}`, has no value: {}", attribute.name, attribute.fallback.text(), e.what()));
    }
  }
}

void Binder::finish_attributes() {
  for (const Attribute& attribute : spec.attributes) {
    if (binding.attributes.count(attribute.name)) continue;
    if (!attribute.fallback) {
      if (attribute.optional) continue;
      fail(fmt::format("attribute {} is missing; it has no default", attribute.name));
    }
    try {
      binding.attributes[attribute.name] = checked(*this, attribute, attribute.fallback.evaluate(binding), " (its default)");
    } catch (const ExpressionError& e) {
      fail(fmt::format("the default of attribute {}, `{}`, has no value: {}", attribute.name, attribute.fallback.text(), e.what()));
    }
  }
}

void Binder::add_served() {
  if (!spec.served_by) return;
  for (const Attribute& attribute : spec.served_by->attributes) {
    if (spec.attribute(attribute.name)) continue;
    const auto& fixed = spec.same_as->attributes;
    const auto own = std::find_if(fixed.begin(), fixed.end(), [&](const Named& each) { return each.name == attribute.name; });
    const Expression& value = own == fixed.end() ? attribute.fallback : own->expression;
    if (value) binding.attributes[attribute.name] = checked(*this, attribute, value.evaluate(binding), "");
  }
}

void Binder::choose_form() {
  for (const Form& form : spec.forms) {
    try {
      if (!form.when || form.when.boolean(binding)) {
        binding.form = form.name;
        return;
      }
    } catch (const ExpressionError& e) {
      fail(fmt::format("cannot tell whether this is the {} form (`{}`): {}", form.name, form.when.text(), e.what()));
    }
  }
  if (!spec.forms.empty()) {
    std::vector<std::string> known;
    for (const Form& form : spec.forms) known.push_back(fmt::format("{} ({})", form.name, form.when.text()));
    fail(fmt::format("the call is of none of the forms {}", listed(known)));
  }
}

// An attribute whose default is a type variable chooses that type, where it is given.
void Binder::choose_types() {
  for (const auto& [variable, legal] : spec.types)
    for (const Attribute& attribute : spec.attributes) {
      const auto given = binding.attributes.find(attribute.name);
      if (given == binding.attributes.end() || attribute.type != AttributeType::string || attribute.fallback.text() != variable) continue;
      binding.types[variable] = std::get<std::string>(given->second);
      type_origins[variable] = "which " + attribute.name + " chooses";
    }
}

void Binder::bind_types() {
  choose_types();
  for (const TensorSpec& tensor : spec.tensors) {
    const auto given = binding.facts.tensors.find(tensor.name);
    if (given == binding.facts.tensors.end()) continue;
    const std::string found(ejk::name_of(given->second.type));
    const auto variable = std::find_if(spec.types.begin(), spec.types.end(), [&](const auto& each) { return each.first == tensor.type; });
    if (variable == spec.types.end()) {
      if (found != tensor.type) fail(fmt::format("{} has type {}, expected {}", tensor.name, found, tensor.type));
      continue;
    }
    const auto [bound, fresh] = binding.types.emplace(tensor.type, found);
    const auto& allowed = variable->second;
    if (fresh && std::find(allowed.begin(), allowed.end(), found) == allowed.end())
      fail(fmt::format("{} has type {}, expected {}{}", tensor.name, found, allowed.size() == 1 ? "" : "one of ", listed(allowed)));
    if (fresh) type_origins[tensor.type] = "the type of " + tensor.name;
    if (bound->second != found)
      fail(fmt::format("{} has type {}, expected {} ({})", tensor.name, found, bound->second, type_origins[tensor.type]));
  }
  default_types();
}

void Binder::default_types() {
  for (const auto& [variable, other] : spec.type_defaults)
    if (const auto known = binding.types.find(other); known != binding.types.end()) binding.types.emplace(variable, known->second);
}

Binding bind(const Spec& spec, CallFacts facts) {
  Binding binding;
  binding.spec = &spec;
  binding.facts = std::move(facts);
  Binder binder{spec, binding, {}, {}};
  binder.check_names();
  binder.take_attributes();
  binder.choose_form();
  binder.check_tensors();
  binder.bind_types();
  binder.bind_dims();
  binder.finish_attributes();
  binder.add_served();
  binder.check_outputs();
  for (const Requirement& requirement : spec.requirements)
    if (requirement.reads.empty()) judge(binding, requirement);
  return binding;
}

void check_live_requirements(const Binding& binding) {
  for (const Requirement& requirement : binding.spec->requirements)
    if ((!requirement.reads.empty() || varies(*binding.spec, requirement)) && judgeable(binding, requirement)) judge(binding, requirement);
}

}  // namespace ejk::spec
