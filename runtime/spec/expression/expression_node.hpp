// The tree of a parsed expression, and the table of its functions. Private to the parser and the evaluator.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/expression/expression.hpp"

namespace ejk::spec {

enum class Operation {
  literal,
  name,
  conditional,
  logical_or,
  logical_and,
  logical_not,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  add,
  subtract,
  multiply,
  divide,
  remainder,
  negate,
  value_call,
  name_call,
};

// Value functions are evaluated here; name functions by the scope.
enum class Function { min, max, clamp, ceil_div, align, pow2, log2, sqrt, abs, floor, size, by_scope };

struct FunctionRow {
  std::string_view name;
  Function function;
  int least, most;  // arguments
  int names = 1;    // how many of the first are bare names, if any is
  bool takes_name() const { return function == Function::by_scope; }
};

std::span<const FunctionRow> functions();
const FunctionRow* find_function(std::string_view name);

// The most arguments that any function takes.
inline constexpr int max_arguments = 8;

// children: operands in order; arguments of a call (of a name call: those after the name, a second bare name as a literal string).
struct Expression::Node {
  Operation operation = Operation::literal;
  Function function = Function::by_scope;
  int column = 0;
  int depth = 1;  // of this subtree
  Value literal;
  std::string name;         // of a name, or the subject of a name call
  std::string_view callee;  // in the function table
  std::vector<Node> children;
};

// nullptr: the expression is empty.
inline const Expression::Node* root_of(const Expression& expression) { return static_cast<const Expression::Node*>(expression.identity()); }

// Whether `holds` of each node, as far as it needs to look. Unlike Expression::names() it copies nothing.
template <class Holds>
bool all_nodes(const Expression::Node& node, const Holds& holds) {
  if (!holds(node)) return false;
  for (const Expression::Node& child : node.children)
    if (!all_nodes(child, holds)) return false;
  return true;
}
template <class Holds>
bool all_nodes(const Expression& expression, const Holds& holds) {
  const Expression::Node* const root = root_of(expression);
  return !root || all_nodes(*root, holds);
}

// "+", "and", "?:"
std::string_view symbol_of(Operation operation);

Expression::Node parse_expression(std::string_view text);                                   // throws ExpressionError
Value evaluate_node(const Expression::Node& node, const Scope& scope);                      // throws ExpressionError
Value call_value_function(const Expression::Node& node, std::span<const Value> arguments);  // throws ExpressionError

}  // namespace ejk::spec
