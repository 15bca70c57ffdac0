// The parts of the spec reader: each fills its share of a Spec and adds faults.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "spec/model.hpp"
#include "spec/read/json_node.hpp"

namespace ejk::spec {

// Names of one namespace, each declared once.
class NameTable {
 public:
  // Faults at `node` if the name is not legal or already taken; what: "dim", "input".
  void declare(const JsonNode& node, const std::string& name, std::string_view what);
  bool taken(std::string_view name) const { return taken_.contains(name); }

 private:
  std::map<std::string, std::string, std::less<>> taken_;  // name, "the dim at /dims/B"
};

void load_contract(const JsonNode& kernel, Spec& spec);
Variant load_variant(const JsonNode& node, const Spec& spec);
std::vector<GradientStep> load_gradient(const JsonNode& node);
// An output with "updates": marks the input that it is the memory of.
Output load_updating_output(const JsonNode& node, Spec& spec);
std::vector<Case> load_case(const JsonNode& node, const Spec& spec);

// `shape` of a tensor: a list, {"form|form": list}, {"any": [list, list]}, or {"same_as": "x"}, a tensor that `spec` has.
std::vector<Shape> load_shapes(const JsonNode& node, const Spec& spec);

std::vector<Expression> expressions_of(const std::vector<JsonNode>& nodes);
// An attribute's value, as its type; nothing after a fault.
std::optional<Value> attribute_value(const JsonNode& node, const Attribute& attribute);
// Strings of a list without repetition; `what`: "arch", "choice".
std::vector<std::string> load_words(const JsonNode& node, std::string_view list, std::string_view what);

// "pointer" of a missing name falls to the object.
JsonNode field_or(const JsonNode& node, std::string_view name);

std::vector<std::string> names_of_dims(const Spec& spec);
std::vector<std::string> names_of_types(const Spec& spec);
std::vector<std::string> names_of_attributes(const Spec& spec);
std::vector<std::string> names_of_tensors(const Spec& spec);
const std::vector<std::string>& names_of_dtypes();

}  // namespace ejk::spec
