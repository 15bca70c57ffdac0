// Entries of an image: parameter types from the launch's args.
#include "spec/render/entry_points.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "spec/choose/let_values.hpp"
#include "spec/expression/same_name.hpp"

namespace ejk::spec {
namespace {

constexpr std::string_view int_type = "int64_t", float_type = "float", bool_type = "bool";

[[noreturn]] void fail(const Launch& launch, const Argument& argument, std::string_view sentence) {
  throw ExpressionError(fmt::format("launch {}, argument {}: {}", launch.entry, argument.name, sentence), 0);
}

Parameter pointer_parameter(const VariantScope& scope, const Launch& launch, const Argument& argument) {
  const Spec& spec = scope.binding.spec->server();
  if (const TensorSpec* tensor = spec.tensor(argument.name)) {
    const auto bound = scope.binding.types.find(tensor->type);
    std::string type = c_type(bound == scope.binding.types.end() ? tensor->type : bound->second);
    if (type.empty()) type = "void";  // a type variable of tensors that are not given
    return {fmt::format("{}{}*", tensor->written() ? "" : "const ", type), argument.name};
  }
  for (const WorkspaceSpec& workspace : scope.variant.workspace)
    if (workspace.name == argument.name) return {fmt::format("{}*", c_type(name_of(workspace.type))), argument.name};
  fail(launch, argument, "there is no such tensor or workspace");
}

// By declaration where there is one, so that a call which lacks the value still has the type.
std::string_view declared_type(const VariantScope& scope, const Argument& argument) {
  const auto name = argument.expression.as_name();
  if (!name) return {};
  const Spec& spec = scope.binding.spec->server();
  const auto has = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& each) { return same_name(each.name, *name); });
  };
  if (has(scope.variant.specialize) || has(scope.variant.config) || has(scope.variant.let)) return {};
  if (has(spec.dims)) return int_type;
  const Attribute* attribute = spec.attribute(*name);
  if (!attribute || attribute->type == AttributeType::string) return {};
  return attribute->type == AttributeType::boolean ? bool_type : attribute->type == AttributeType::integer ? int_type : float_type;
}

// Stand-ins for what differs from call to call: the type of an argument must not depend on it, nor on whether this call has it at all.
class SampleScope : public Scope {
 public:
  explicit SampleScope(const VariantScope& scope) : scope_(scope) {}

  std::optional<Value> lookup(std::string_view name) const override {
    const auto named = [&](const auto& each) { return same_name(each.name, name); };
    const Variant& variant = scope_.variant;
    const Spec& spec = scope_.binding.spec->server();
    if (std::any_of(variant.specialize.begin(), variant.specialize.end(), named)) return scope_.lookup(name);
    if (std::any_of(variant.config.begin(), variant.config.end(), named)) return scope_.lookup(name);
    if (const auto let = std::find_if(variant.let.begin(), variant.let.end(), named); let != variant.let.end())
      return lets_.value(*let, *this);
    if (const SharedLet* let = spec.shared_let(name)) return lets_.value(*let, *this);
    if (std::any_of(spec.dims.begin(), spec.dims.end(), named)) return Value(std::int64_t{1});
    if (const Attribute* attribute = spec.attribute(name)) return sample(*attribute);
    if (scope_.binding.types.count(name) == 0 &&
        std::any_of(spec.types.begin(), spec.types.end(), [&](const auto& t) { return t.first == name; }))
      return Value(std::string("f32"));
    return scope_.lookup(name);
  }

  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override {
    if (function == "given") return scope_.call(function, name, rest);
    for (const std::string_view holds : {"contiguous", "aligned", "mappable", "foldable", "nondecreasing"})
      if (function == holds) return Value(true);
    return Value(std::int64_t{1});
  }

 private:
  static Value sample(const Attribute& attribute) {
    switch (attribute.type) {
      case AttributeType::boolean:
        return false;
      case AttributeType::integer:
        return std::int64_t{1};
      case AttributeType::floating:
        return 1.0;
      case AttributeType::string:
        return attribute.choices.empty() ? std::string() : attribute.choices[0];
    }
    return false;
  }

  const VariantScope& scope_;
  mutable LetValues lets_;
};

std::optional<Value> value_in(const Scope& scope, const Expression& expression, std::string& why_not) {
  try {
    return expression.evaluate(scope);
  } catch (const ExpressionError& e) {
    why_not = e.what();
    return std::nullopt;
  }
}

Parameter value_parameter(const VariantScope& scope, const Launch& launch, const Argument& argument) {
  if (const auto type = declared_type(scope, argument); !type.empty()) return {std::string(type), argument.name};
  const std::string& text = argument.expression.text();
  std::string why_not;
  const auto sample = value_in(SampleScope(scope), argument.expression, why_not);
  const auto found = value_in(scope, argument.expression, why_not);
  if (!sample && !found) fail(launch, argument, fmt::format("`{}` has no value, so its type is unknown: {}", text, why_not));
  if (sample && found && sample->index() != found->index())
    fail(launch, argument,
         fmt::format("`{}` is {} in one call and {} in another; it needs one type", text, kind_name(*found), kind_name(*sample)));
  const Value& value = found ? *found : *sample;
  if (std::holds_alternative<std::string>(value))
    fail(launch, argument, fmt::format("`{}` is the string '{}'; a launch takes integers, floats and booleans", text, to_text(value)));
  const bool integer = std::holds_alternative<std::int64_t>(value);
  return {std::string(integer ? int_type : std::holds_alternative<bool>(value) ? bool_type : float_type), argument.name};
}

// CPU entries take a view by reference, GPU ones by value: their parameters are all the memory the two share.
std::string view_type(std::string_view platform) {
  return platform == "cpu" ? "const View&" : platform == "cuda" ? "const __grid_constant__ View" : "const View";
}

Parameter parameter_of(const VariantScope& scope, const Launch& launch, const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::pointer:
      return pointer_parameter(scope, launch, argument);
    case Argument::Kind::value:
      return value_parameter(scope, launch, argument);
    case Argument::Kind::view:
      return {view_type(scope.arch.platform), argument.parameter_name()};
    case Argument::Kind::step:
      return {std::string(int_type), argument.name};
    case Argument::Kind::grid_barrier:
      return {scope.arch.platform == "cpu" ? "const GridBarrier&" : "const GridBarrier", argument.name};
    case Argument::Kind::tensor_map:
      if (scope.arch.platform == "cpu") fail(launch, argument, "a CPU launch takes no tensor map");
      return {"const __grid_constant__ TensorMap", argument.parameter_name()};
  }
  fail(launch, argument, "is of an unknown kind");
}

std::vector<Parameter> parameters_of(const VariantScope& scope, const Launch& launch) {
  std::vector<Parameter> parameters;
  for (const Argument& argument : launch.arguments) parameters.push_back(parameter_of(scope, launch, argument));
  return parameters;
}

std::string unpacked(const Parameter& parameter, std::size_t index) {
  for (const char* type : {"View", "GridBarrier"}) {
    if (parameter.type == fmt::format("const {}&", type)) return fmt::format("**static_cast<const {}* const*>(arguments[{}])", type, index);
    if (parameter.type == fmt::format("const {}", type)) return fmt::format("*static_cast<const {}*>(arguments[{}])", type, index);
  }
  const bool pointer = parameter.type.ends_with('*');
  return fmt::format("*static_cast<{}{}*>(arguments[{}])", pointer ? parameter.type : "const " + parameter.type, pointer ? " const" : "",
                     index);
}

}  // namespace

std::string c_type(std::string_view type) {
  static constexpr std::pair<std::string_view, std::string_view> table[] = {
      {"f32", "float"},   {"f16", "half"},   {"bf16", "bfloat16"}, {"f64", "double"},          {"i8", "int8_t"}, {"i32", "int32_t"},
      {"i64", "int64_t"}, {"u8", "uint8_t"}, {"bool", "bool"},     {"f8_e4m3", "float8_e4m3"}, {"none", "void"},
  };
  for (const auto& [name, text] : table)
    if (name == type) return std::string(text);
  return {};
}

std::vector<Parameter> parameters_of(const VariantScope& scope, std::string_view entry) {
  std::optional<std::vector<Parameter>> first;
  for (const Launch& launch : scope.variant.launches) {
    if (launch.entry != entry) continue;
    auto parameters = parameters_of(scope, launch);
    if (!first) {
      first = std::move(parameters);
      continue;
    }
    const auto same = [](const Parameter& a, const Parameter& b) { return a.type == b.type; };
    if (!std::equal(first->begin(), first->end(), parameters.begin(), parameters.end(), same))
      throw ExpressionError(fmt::format("two launches of {} have different parameters: ({}) and ({})", entry, parameter_list(*first),
                                        parameter_list(parameters)),
                            0);
  }
  if (first) return *std::move(first);
  std::string known;
  for (const Launch& launch : scope.variant.launches) known += (known.empty() ? "" : ", ") + launch.entry;
  throw ExpressionError(fmt::format("parameters('{}'): no launch has that entry; known: {}", entry, known), 0);
}

std::string parameter_list(const std::vector<Parameter>& parameters) {
  std::string text;
  for (const Parameter& parameter : parameters) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", parameter.type, parameter.name);
  return text;
}

namespace {

// One wrapper an entry; `parameter` is its own besides the arguments, `tail` the last argument of its call.
std::string entry_points(const VariantScope& scope, std::string_view explanation, std::string_view parameter, std::string_view tail) {
  std::string text = fmt::format("\n// How the runtime calls the entries: {}\n", explanation);
  std::vector<std::string> done;
  for (const Launch& launch : scope.variant.launches) {
    if (std::find(done.begin(), done.end(), launch.entry) != done.end()) continue;
    done.push_back(launch.entry);
    std::string values;
    const auto parameters = parameters_of(scope, launch.entry);
    for (std::size_t i = 0; i < parameters.size(); ++i) values += (i ? ", " : "") + unpacked(parameters[i], i);
    if (!values.empty() && !tail.empty()) values += ", ";
    text += fmt::format(
        "extern \"C\" __attribute__((visibility(\"default\"))) void ejk_{}([[maybe_unused]] void* const* arguments{}) {{\n  "
        "{}({}{});\n}}\n",
        launch.entry, parameter, launch.entry, values, tail);
  }
  return text;
}

}  // namespace

std::string cpu_entry_points(const VariantScope& scope) {
  return entry_points(scope, "arguments[i] points at the i-th argument's value.", ", const Group* group", "*group");
}

std::string simt_entry_points(const VariantScope& scope) {
  return entry_points(scope, "once for each thread of the grid; arguments[i] points at the i-th argument's value.", "", "");
}

}  // namespace ejk::spec
