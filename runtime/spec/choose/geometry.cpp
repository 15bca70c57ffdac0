// What the launches of an image need for one call: workspace bytes, grids, blocks, scratch and argument values.
#include <fmt/format.h>
#include <algorithm>

#include "spec/render/image.hpp"

namespace ejk::spec {
namespace {

class Evaluator {
 public:
  Evaluator(const VariantScope& scope, std::string place) : scope_(scope), place_(std::move(place)) {}

  std::int64_t size(std::string_view what, const Expression& expression) const {
    const std::int64_t value = guarded(what, expression, [&] { return expression.integer(scope_); });
    if (value < 0) fail(what, expression, fmt::format("is {}, expected 0 or more", value));
    return value;
  }
  bool boolean(std::string_view what, const Expression& expression) const {
    return guarded(what, expression, [&] { return expression.boolean(scope_); });
  }
  Value value(std::string_view what, const Expression& expression) const {
    return guarded(what, expression, [&] { return expression.evaluate(scope_); });
  }
  void extents(std::string_view what, const std::vector<Expression>& expressions, std::int64_t (&out)[3]) const {
    for (std::size_t i = 0; i < std::min<std::size_t>(expressions.size(), 3); ++i) out[i] = size(what, expressions[i]);
  }
  [[noreturn]] void fail(std::string_view what, const Expression& expression, std::string_view sentence) const {
    throw ExpressionError(fmt::format("{}: {} `{}` {}", place_, what, expression.text(), sentence), 0);
  }

 private:
  template <class Work>
  auto guarded(std::string_view what, const Expression& expression, Work work) const -> decltype(work()) {
    try {
      return work();
    } catch (const ExpressionError& e) {
      fail(what, expression, fmt::format("has no value: {}", e.what()));
    }
  }
  const VariantScope& scope_;
  std::string place_;
};

WorkspaceSize workspace_size(const VariantScope& scope, const WorkspaceSpec& workspace) {
  const Evaluator evaluate(scope, fmt::format("{}.{}: workspace {}", scope.binding.spec->kernel, scope.variant.name, workspace.name));
  WorkspaceSize size{workspace.name, size_of(workspace.type), workspace.type, {}};
  size.zero = workspace.zero && evaluate.boolean("'zero'", workspace.zero);
  for (const Expression& extent : workspace.shape) {
    size.shape.push_back(evaluate.size("extent", extent));
    if (__builtin_mul_overflow(size.bytes, size.shape.back(), &size.bytes)) evaluate.fail("extent", extent, "makes it overflow 64 bits");
  }
  return size;
}

// A varying attribute has its default here, if any; the call brings the value.
Value argument_value(const Evaluator& evaluate, const VariantScope& scope, const Argument& argument) {
  const auto name = argument.expression.as_name();
  const Attribute* attribute = name ? scope.binding.spec->attribute(*name) : nullptr;
  if (attribute && attribute->varies && !scope.binding.attributes.count(*name)) return {};
  const Value value = evaluate.value("argument", argument.expression);
  if (std::holds_alternative<std::string>(value)) evaluate.fail("argument", argument.expression, "is a string");
  return value;
}

bool is_empty(const LaunchGeometry& launch) { return launch.repeat == 0 || *std::min_element(launch.grid, launch.grid + 3) == 0; }

const std::string& mapped_tensor(const Evaluator& evaluate, const Argument& argument) {
  for (const MapChoice& choice : argument.choices)
    if (!choice.condition || evaluate.boolean("a tensor map's condition", choice.condition)) return choice.tensor;
  return argument.name;
}

LaunchGeometry launch_geometry(const Evaluator& evaluate, const VariantScope& scope, const Launch& launch) {
  LaunchGeometry geometry;
  geometry.launch = &launch;
  evaluate.extents("grid", launch.grid, geometry.grid);
  if (launch.repeat) geometry.repeat = evaluate.size("'repeat'", launch.repeat);
  if (is_empty(geometry)) return geometry;  // left out: nothing else of it needs a value
  evaluate.extents("block", launch.block, geometry.block);
  evaluate.extents("cluster", launch.cluster, geometry.cluster);
  if (launch.shared) geometry.shared_bytes = evaluate.size("shared", launch.shared);
  for (const Argument& argument : launch.arguments) {
    ArgumentValue value{&argument, {}, {}, mapped_tensor(evaluate, argument)};
    for (const Expression& extent : argument.box) value.box.push_back(evaluate.size("box", extent));
    if (argument.kind == Argument::Kind::value) value.value = argument_value(evaluate, scope, argument);
    geometry.arguments.push_back(std::move(value));
  }
  return geometry;
}

}  // namespace

Geometry geometry_of(const Variant& variant, const Arch& arch, const Binding& binding, const Config& config) {
  VariantScope scope(variant, arch, binding);
  scope.set_config(config);
  Geometry geometry;
  for (const WorkspaceSpec& workspace : variant.workspace) geometry.workspace.push_back(workspace_size(scope, workspace));
  for (const Launch& launch : variant.launches) {
    const Evaluator evaluate(scope, fmt::format("{}.{}: launch {}", binding.spec->kernel, variant.name, launch.entry));
    if (launch.condition && !evaluate.boolean("condition", launch.condition)) continue;
    LaunchGeometry one = launch_geometry(evaluate, scope, launch);
    if (!is_empty(one)) geometry.launches.push_back(std::move(one));
  }
  return geometry;
}

}  // namespace ejk::spec
