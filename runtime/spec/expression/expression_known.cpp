// Evaluates what follows from a scope that knows only a part of the names.
#include "spec/expression/expression_node.hpp"
#include "spec/expression/no_names.hpp"

namespace ejk::spec {
namespace {

using Node = Expression::Node;

std::optional<Value> known_value(const Node& node, const Scope& scope);

// `and` is decided by a false operand, `or` by a true one, whatever the other is.
std::optional<Value> decided(const Node& node, const Scope& scope, bool by) {
  const auto left = known_value(node.children[0], scope), right = known_value(node.children[1], scope);
  if (left == Value(by) || right == Value(by)) return Value(by);
  return left == Value(!by) && right == Value(!by) ? left : std::nullopt;
}

std::optional<Value> chosen(const Node& node, const Scope& scope) {
  const auto condition = known_value(node.children[0], scope);
  if (condition == Value(true)) return known_value(node.children[1], scope);
  if (condition == Value(false)) return known_value(node.children[2], scope);
  const auto one = known_value(node.children[1], scope), other = known_value(node.children[2], scope);
  return one == other ? one : std::nullopt;
}

// All operands must be known; the evaluator does the rest.
std::optional<Value> of_operands(const Node& node, const Scope& scope) {
  Node flat = node;
  for (Node& child : flat.children) {
    const auto value = known_value(child, scope);
    if (!value) return std::nullopt;
    child = Node{};
    child.literal = *value;
  }
  if (node.operation != Operation::name_call) return evaluate_node(flat, NoNames());
  std::vector<Value> arguments;
  for (const Node& child : flat.children) arguments.push_back(child.literal);
  return scope.call(node.callee, node.name, arguments);
}

std::optional<Value> known_value(const Node& node, const Scope& scope) {
  switch (node.operation) {
    case Operation::literal:
      return node.literal;
    case Operation::name:
      return scope.lookup(node.name);
    case Operation::conditional:
      return chosen(node, scope);
    case Operation::logical_and:
      return decided(node, scope, false);
    case Operation::logical_or:
      return decided(node, scope, true);
    default:
      return of_operands(node, scope);
  }
}

}  // namespace

std::optional<Value> Expression::known(const Scope& scope) const {
  if (!root_) return std::nullopt;
  try {
    return known_value(*root_, scope);
  } catch (const ExpressionError&) {
    return std::nullopt;
  }
}

}  // namespace ejk::spec
