// What several parts of the spec reader share.
#include "spec/read/load_parts.hpp"

#include <algorithm>

#include "spec/check/suggest.hpp"

namespace ejk::spec {
namespace {

template <class Items>
std::vector<std::string> names_of(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name);
  return names;
}

std::string_view name_of(AttributeType type) {
  switch (type) {
    case AttributeType::boolean:
      return "true or false";
    case AttributeType::integer:
      return "an integer";
    case AttributeType::floating:
      return "a number";
    case AttributeType::string:
      break;
  }
  return "a string";
}

}  // namespace

void NameTable::declare(const JsonNode& node, const std::string& name, std::string_view what) {
  if (const auto why = bad_name(name)) {
    node.fault(*why);
    return;
  }
  const auto [first, fresh] = taken_.emplace(name, "the " + std::string(what) + " at " + node.pointer());
  if (!fresh) node.fault("the name '" + name + "' is already taken by " + first->second);
}

std::vector<Expression> expressions_of(const std::vector<JsonNode>& nodes) {
  std::vector<Expression> expressions;
  for (const JsonNode& node : nodes) expressions.push_back(node.expression());
  return expressions;
}

std::optional<Value> attribute_value(const JsonNode& node, const Attribute& attribute) {
  std::optional<Value> value = node.scalar();
  if (!value) return std::nullopt;
  if (attribute.type == AttributeType::floating && std::holds_alternative<std::int64_t>(*value))
    value = static_cast<double>(std::get<std::int64_t>(*value));
  static constexpr std::size_t index[] = {1, 0, 2, 3};  // AttributeType to Value's alternative
  if (value->index() != index[static_cast<std::size_t>(attribute.type)]) {
    node.wrong_kind(std::string(name_of(attribute.type)) + " (attribute " + attribute.name + ")");
    return std::nullopt;
  }
  if (const auto* word = std::get_if<std::string>(&*value); word && !attribute.choices.empty())
    if (std::find(attribute.choices.begin(), attribute.choices.end(), *word) == attribute.choices.end()) {
      node.fault("'" + *word + "' is no choice of attribute " + attribute.name + ": " + listed(attribute.choices));
      return std::nullopt;
    }
  return value;
}

std::vector<std::string> load_words(const JsonNode& node, std::string_view list, std::string_view what) {
  std::vector<std::string> words;
  for (const JsonNode& item : node.list(list)) {
    const auto word = item.text();
    if (!word) continue;
    if (word->empty())
      item.fault("the " + std::string(what) + " is empty");
    else if (std::find(words.begin(), words.end(), *word) != words.end())
      item.fault("the " + std::string(what) + " '" + *word + "' occurs twice");
    else
      words.push_back(*word);
  }
  return words;
}

JsonNode field_or(const JsonNode& node, std::string_view name) { return node.field(name).value_or(node); }

std::vector<std::string> names_of_dims(const Spec& spec) { return names_of(spec.dims); }
std::vector<std::string> names_of_attributes(const Spec& spec) { return names_of(spec.attributes); }
std::vector<std::string> names_of_tensors(const Spec& spec) { return names_of(spec.tensors); }

std::vector<std::string> names_of_types(const Spec& spec) {
  std::vector<std::string> names;
  for (const auto& [name, types] : spec.types) names.push_back(name);
  return names;
}

const std::vector<std::string>& names_of_dtypes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const DType type : all_dtypes()) all.emplace_back(ejk::name_of(type));
    return all;
  }();
  return names;
}

}  // namespace ejk::spec
