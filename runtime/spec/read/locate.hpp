// Which expression of a variant cannot be evaluated for a call: the pointer behind an ExpressionError.
#pragma once
#include <optional>
#include <string>

#include "spec/render/image.hpp"

namespace ejk::spec {

struct Place {
  std::string pointer, sentence;
};

// nullopt: none of them fails.
std::optional<Place> find_in_supports(const Variant& variant, const Arch& arch, const Binding& binding);
std::optional<Place> find_in_heuristic(const Variant& variant, const Arch& arch, const Binding& binding);
std::optional<Place> find_in_valid(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config);
std::optional<Place> find_in_launches(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config);

// The rule that the heuristic takes; the list if none holds; the variant if there is no heuristic.
std::string rule_pointer(const Variant& variant, const Arch& arch, const Binding& binding);

}  // namespace ejk::spec
