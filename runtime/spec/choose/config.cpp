// Which calls a variant takes, which configs it has for a call, and which one its heuristic picks.
#include <fmt/format.h>
#include <algorithm>

#include "spec/check/suggest.hpp"
#include "spec/choose/config_points.hpp"

namespace ejk::spec {
namespace {

bool holds(const Expression& clause, const Scope& scope, const char* list) {
  try {
    return clause.boolean(scope);
  } catch (const ExpressionError& e) {
    throw ExpressionError(fmt::format("{} `{}`: {}", list, clause.text(), e.what()), 0);
  }
}

const Value* value_in(const Config& config, std::string_view name) {
  for (const auto& [parameter, value] : config)
    if (parameter == name) return &value;
  return nullptr;
}

// Of a clause that does not hold, what a user should read: a let of the kernel is told by its clause that does not hold.
std::string broken_part(const Expression& clause, const VariantScope& scope) {
  const auto name = clause.as_name();
  const SharedLet* const let = name ? scope.binding.spec->server().shared_let(*name) : nullptr;
  if (let)
    for (const Expression& part : let->clauses)
      if (!part.boolean(scope)) return broken_part(part, scope);
  return clause.text();
}

std::optional<std::string> broken_clause(const Variant& variant, const VariantScope& scope) {
  for (const Expression& clause : variant.valid)
    if (!holds(clause, scope, "valid")) return broken_part(clause, scope);
  return std::nullopt;
}

std::vector<std::string> texts(const std::vector<Value>& values) {
  std::vector<std::string> result;
  for (const Value& value : values) result.push_back(to_text(value));
  return result;
}

std::optional<std::string> outside_space(const Variant& variant, const Config& config) {
  for (const auto& [name, value] : config) {
    const auto parameter =
        std::find_if(variant.config.begin(), variant.config.end(), [&name = name](const auto& each) { return each.name == name; });
    if (parameter == variant.config.end()) return fmt::format("not in the config space: there is no {}", name);
    if (std::find(parameter->values.begin(), parameter->values.end(), value) == parameter->values.end())
      return fmt::format("not in the config space: {} = {}, expected one of {}", name, to_text(value), listed(texts(parameter->values)));
  }
  for (const ConfigParameter& parameter : variant.config)
    if (!value_in(config, parameter.name)) return fmt::format("not in the config space: {} is missing", parameter.name);
  return std::nullopt;
}

Config config_of(const Variant& variant, const HeuristicRule& rule, const VariantScope& scope) {
  Config config;
  for (const ConfigParameter& parameter : variant.config) {
    const auto use = std::find_if(rule.use.begin(), rule.use.end(), [&](const Named& each) { return each.name == parameter.name; });
    if (use != rule.use.end()) {
      config.emplace_back(parameter.name, use->expression.evaluate(scope));
    } else if (parameter.values.size() == 1) {
      config.emplace_back(parameter.name, parameter.values[0]);
    } else {
      throw ExpressionError(fmt::format("the heuristic of {} gives no value to {}", variant.name, parameter.name), 0);
    }
  }
  return config;
}

}  // namespace

std::optional<std::string> refusal(const Variant& variant, const Arch& arch, const Binding& binding) {
  const VariantScope scope(variant, arch, binding);
  for (const Expression& clause : variant.supports)
    if (!holds(clause, scope, "supports")) return broken_part(clause, scope);
  return std::nullopt;
}

std::optional<std::string> invalid_clause(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config) {
  if (auto outside = outside_space(variant, config)) return outside;
  VariantScope scope(variant, arch, binding);
  scope.set_config(config);
  return broken_clause(variant, scope);
}

std::vector<Config> config_space(const Variant& variant, const Arch& arch, const Binding& binding) {
  std::vector<Config> valid;
  for_each_config(variant, arch, binding, [&](const Config& config) { valid.push_back(config); });
  return valid;
}

std::optional<Config> heuristic_config(const Variant& variant, const Arch& arch, const Binding& binding) {
  const VariantScope scope(variant, arch, binding);
  for (const HeuristicRule& rule : variant.heuristic)
    if (!rule.condition || holds(rule.condition, scope, "heuristic")) return config_of(variant, rule, scope);
  const auto single = [](const ConfigParameter& parameter) { return parameter.values.size() == 1; };
  if (!variant.heuristic.empty() || !std::all_of(variant.config.begin(), variant.config.end(), single)) return std::nullopt;
  return config_of(variant, {}, scope);  // a space of one point needs no rule
}

}  // namespace ejk::spec
