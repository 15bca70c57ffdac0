// Expression: the public face of the parser and the evaluator.
#include "spec/expression/expression.hpp"

#include "spec/expression/expression_node.hpp"

namespace ejk::spec {
namespace {

using Node = Expression::Node;

template <class Visit>
void walk(const Node& node, const Visit& visit) {
  visit(node);
  for (const Node& child : node.children) walk(child, visit);
}

[[noreturn]] void wrong_kind(const Expression& expression, std::string_view wanted, const Value& value) {
  throw ExpressionError(
      "'" + expression.text() + "' must be " + std::string(wanted) + ", found " + std::string(kind_name(value)) + " " + to_text(value), 0);
}

}  // namespace

std::string_view symbol_of(Operation operation) {
  static constexpr std::string_view symbols[] = {
      "literal", "name", "?:", "or", "and", "not", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "-", "call", "call"};
  static_assert(std::size(symbols) == static_cast<std::size_t>(Operation::name_call) + 1);
  return symbols[static_cast<std::size_t>(operation)];
}

std::optional<Value> Scope::call(std::string_view, std::string_view, std::span<const Value>) const { return std::nullopt; }

Expression Expression::parse(std::string_view text) {
  Expression expression;
  expression.root_ = std::make_shared<const Node>(parse_expression(text));
  expression.text_ = text;
  return expression;
}

Value Expression::evaluate(const Scope& scope) const {
  if (!root_) throw ExpressionError("the expression is empty", 0);
  return evaluate_node(*root_, scope);
}

std::int64_t Expression::integer(const Scope& scope) const {
  const Value value = evaluate(scope);
  if (const auto* result = std::get_if<std::int64_t>(&value)) return *result;
  wrong_kind(*this, "an integer", value);
}

bool Expression::boolean(const Scope& scope) const {
  const Value value = evaluate(scope);
  if (const auto* result = std::get_if<bool>(&value)) return *result;
  wrong_kind(*this, "true or false", value);
}

double Expression::floating(const Scope& scope) const {
  const Value value = evaluate(scope);
  if (const auto* result = std::get_if<double>(&value)) return *result;
  if (const auto* result = std::get_if<std::int64_t>(&value)) return static_cast<double>(*result);
  wrong_kind(*this, "a number", value);
}

std::set<std::string> Expression::names() const {
  std::set<std::string> names;
  if (root_)
    walk(*root_, [&](const Node& node) {
      if (node.operation == Operation::name) names.insert(node.name);
    });
  return names;
}

std::set<std::string> Expression::subjects() const {
  std::set<std::string> subjects;
  for (const auto& [function, subject] : name_calls()) subjects.insert(subject);
  return subjects;
}

std::set<std::pair<std::string, std::string>> Expression::name_calls() const {
  std::set<std::pair<std::string, std::string>> calls;
  if (root_)
    walk(*root_, [&](const Node& node) {
      if (node.operation != Operation::name_call) return;
      calls.emplace(node.callee, node.name);
      for (int i = 1; i < find_function(node.callee)->names; ++i)
        calls.emplace(node.callee, std::get<std::string>(node.children[static_cast<std::size_t>(i - 1)].literal));
    });
  return calls;
}

std::optional<std::string> Expression::as_name() const {
  if (!root_ || root_->operation != Operation::name) return std::nullopt;
  return root_->name;
}

bool is_value_function(std::string_view name) {
  const FunctionRow* row = find_function(name);
  return row && !row->takes_name();
}

bool is_name_function(std::string_view name) {
  const FunctionRow* row = find_function(name);
  return row && row->takes_name();
}

}  // namespace ejk::spec
