// Evaluates a variant's expressions one by one, in the order the runtime does, until one fails.
#include "spec/read/locate.hpp"

#include "spec/check/check_names.hpp"
#include "spec/read/json.hpp"

namespace ejk::spec {
namespace {

enum class Kind { any, boolean, size };

class Search {
 public:
  explicit Search(const Scope& scope) : scope_(scope) {}

  // false once an expression has failed; then nothing more is tried.
  bool passes(const std::string& pointer, const Expression& expression, Kind kind) {
    if (place || !expression) return !place;
    try {
      evaluate(expression, kind);
    } catch (const ExpressionError& error) {
      place = Place{pointer, error.what()};
    }
    return !place;
  }

  bool holds(const std::string& pointer, const Expression& expression) {
    return passes(pointer, expression, Kind::boolean) && (!expression || expression.boolean(scope_));
  }

  void all(const std::string& pointer, const std::vector<Expression>& expressions) {
    for (std::size_t i = 0; i < expressions.size(); ++i) passes(pointer_to(pointer, i), expressions[i], Kind::size);
  }

  std::optional<Place> place;

 private:
  void evaluate(const Expression& expression, Kind kind) const {
    if (kind == Kind::any)
      expression.evaluate(scope_);
    else if (kind == Kind::boolean)
      expression.boolean(scope_);
    else if (const std::int64_t size = expression.integer(scope_); size < 0)
      throw ExpressionError("'" + expression.text() + "' is " + std::to_string(size) + ", expected 0 or more", 0);
  }

  const Scope& scope_;
};

bool is_empty(const Launch& launch, const Scope& scope) {
  if (launch.repeat && launch.repeat.integer(scope) == 0) return true;
  for (const Expression& extent : launch.grid)
    if (extent.integer(scope) == 0) return true;
  return false;
}

void search_launch(Search& search, const Scope& scope, const std::string& pointer, const Launch& launch) {
  if (!search.holds(pointer + "/if", launch.condition)) return;
  search.all(pointer + "/grid", launch.grid);
  search.passes(pointer + "/repeat", launch.repeat, Kind::size);
  if (search.place || is_empty(launch, scope)) return;
  search.all(pointer + "/block", launch.block);
  search.all(pointer + "/cluster", launch.cluster);
  search.passes(pointer + "/shared", launch.shared, Kind::size);
  for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
    const std::string place = pointer_to(pointer + "/args", i);
    search.passes(place, launch.arguments[i].expression, Kind::any);
    for (std::size_t j = 0; j < launch.arguments[i].choices.size(); ++j)
      if (search.holds(pointer_to(place + "/tensor_map", j) + "/if", launch.arguments[i].choices[j].condition)) break;
  }
}

}  // namespace

std::optional<Place> find_in_supports(const Variant& variant, const Arch& arch, const Binding& binding) {
  const VariantScope scope(variant, arch, binding);
  Search search(scope);
  for (std::size_t i = 0; i < variant.supports.size(); ++i)
    if (!search.holds(supports_pointer(variant, i), variant.supports[i])) break;
  return search.place;
}

std::optional<Place> find_in_heuristic(const Variant& variant, const Arch& arch, const Binding& binding) {
  const VariantScope scope(variant, arch, binding);
  Search search(scope);
  for (std::size_t i = 0; i < variant.heuristic.size(); ++i) {
    const HeuristicRule& rule = variant.heuristic[i];
    const std::string pointer = pointer_to(variant.pointer + "/heuristic", i);
    if (!search.holds(pointer + "/if", rule.condition)) continue;
    for (const Named& use : rule.use) search.passes(pointer_to(pointer + "/use", use.name), use.expression, Kind::any);
    break;
  }
  return search.place;
}

std::optional<Place> find_in_valid(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config) {
  VariantScope scope(variant, arch, binding);
  scope.set_config(config);
  Search search(scope);
  for (std::size_t i = 0; i < variant.valid.size(); ++i)
    if (!search.holds(pointer_to(variant.pointer + "/valid", i), variant.valid[i])) break;
  return search.place;
}

std::optional<Place> find_in_launches(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config) {
  VariantScope scope(variant, arch, binding);
  scope.set_config(config);
  Search search(scope);
  for (const Named& named : variant.specialize)
    search.passes(pointer_to(variant.pointer + "/specialize", named.name), named.expression, Kind::any);
  for (std::size_t i = 0; i < variant.workspace.size(); ++i) {
    search.all(pointer_to(variant.pointer + "/workspace", i) + "/shape", variant.workspace[i].shape);
    search.passes(pointer_to(variant.pointer + "/workspace", i) + "/zero", variant.workspace[i].zero, Kind::boolean);
  }
  for (std::size_t i = 0; i < variant.launches.size(); ++i)
    search_launch(search, scope, pointer_to(variant.pointer + "/launches", i), variant.launches[i]);
  return search.place;
}

std::string rule_pointer(const Variant& variant, const Arch& arch, const Binding& binding) {
  if (variant.heuristic.empty()) return variant.pointer;
  const VariantScope scope(variant, arch, binding);
  for (std::size_t i = 0; i < variant.heuristic.size(); ++i)
    if (!variant.heuristic[i].condition || variant.heuristic[i].condition.boolean(scope))
      return pointer_to(variant.pointer + "/heuristic", i) + "/use";
  return variant.pointer + "/heuristic";
}

}  // namespace ejk::spec
