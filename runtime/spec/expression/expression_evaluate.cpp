// Evaluates a parsed expression. Integers and booleans never allocate here.
#include <array>
#include <cmath>
#include <limits>

#include "spec/expression/expression_node.hpp"

namespace ejk::spec {
namespace {

using Node = Expression::Node;

[[noreturn]] void fail(const Node& node, const std::string& sentence) { throw ExpressionError(sentence, node.column); }

// "integer 3", "string 'f32'"
std::string described(const Value& value) {
  const std::string text = to_text(value);
  return std::string(kind_name(value)) + " " + (std::holds_alternative<std::string>(value) ? "'" + text + "'" : text);
}

[[noreturn]] void wrong_kind(const Node& node, std::string_view wanted, const Value& value) {
  fail(node, "'" + std::string(symbol_of(node.operation)) + "' needs " + std::string(wanted) + ", found " + described(value));
}

bool boolean_of(const Node& node, const Value& value) {
  if (const bool* b = std::get_if<bool>(&value)) return *b;
  wrong_kind(node, "booleans", value);
}

bool is_number(const Value& value) { return std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value); }

double number_of(const Node& node, const Value& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  wrong_kind(node, "numbers", value);
}

template <class T>
bool compare(Operation operation, const T& a, const T& b) {
  switch (operation) {
    case Operation::equal:
      return a == b;
    case Operation::not_equal:
      return a != b;
    case Operation::less:
      return a < b;
    case Operation::less_equal:
      return a <= b;
    case Operation::greater:
      return a > b;
    default:
      return a >= b;
  }
}

Value compare_values(const Node& node, const Value& a, const Value& b) {
  if (std::holds_alternative<std::int64_t>(a) && std::holds_alternative<std::int64_t>(b))
    return compare(node.operation, std::get<std::int64_t>(a), std::get<std::int64_t>(b));
  if (is_number(a) && is_number(b)) return compare(node.operation, number_of(node, a), number_of(node, b));
  if (node.operation != Operation::equal && node.operation != Operation::not_equal) wrong_kind(node, "numbers", is_number(a) ? b : a);
  if (a.index() != b.index())
    fail(node, "'" + std::string(symbol_of(node.operation)) + "' compares like with like, found " + described(a) + " and " + described(b));
  return node.operation == Operation::equal ? a == b : a != b;
}

// true: the result did not fit.
bool integer_arithmetic(Operation operation, std::int64_t a, std::int64_t b, std::int64_t& result) {
  switch (operation) {
    case Operation::add:
      return __builtin_add_overflow(a, b, &result);
    case Operation::subtract:
      return __builtin_sub_overflow(a, b, &result);
    case Operation::multiply:
      return __builtin_mul_overflow(a, b, &result);
    case Operation::divide:
      if (a == std::numeric_limits<std::int64_t>::min() && b == -1) return true;
      result = a / b;
      return false;
    default:
      result = b == -1 ? 0 : a % b;  // INT64_MIN % -1 traps
      return false;
  }
}

Value float_arithmetic(const Node& node, double a, double b) {
  switch (node.operation) {
    case Operation::add:
      return a + b;
    case Operation::subtract:
      return a - b;
    case Operation::multiply:
      return a * b;
    case Operation::divide:
      return a / b;  // IEEE: a zero divisor gives inf or nan
    default:
      fail(node, "'%' needs integers, found a float");
  }
}

Value arithmetic(const Node& node, const Value& a, const Value& b) {
  const auto* x = std::get_if<std::int64_t>(&a);
  const auto* y = std::get_if<std::int64_t>(&b);
  if (!x || !y) return float_arithmetic(node, number_of(node, a), number_of(node, b));
  if (*y == 0 && (node.operation == Operation::divide || node.operation == Operation::remainder))
    fail(node, "zero divisor in " + std::to_string(*x) + " " + std::string(symbol_of(node.operation)) + " 0");
  std::int64_t result = 0;
  if (integer_arithmetic(node.operation, *x, *y, result))
    fail(node, "integer overflow in " + std::to_string(*x) + " " + std::string(symbol_of(node.operation)) + " " + std::to_string(*y));
  return result;
}

Value negate(const Node& node, const Value& value) {
  if (const auto* d = std::get_if<double>(&value)) return -*d;
  const auto* i = std::get_if<std::int64_t>(&value);
  if (!i) wrong_kind(node, "a number", value);
  if (*i == std::numeric_limits<std::int64_t>::min()) fail(node, "integer overflow in -(" + std::to_string(*i) + ")");
  return -*i;
}

Value look_up(const Node& node, const Scope& scope) {
  std::optional<Value> value = scope.lookup(node.name);
  if (!value) fail(node, "unknown name '" + node.name + "'");
  return *std::move(value);
}

Value call(const Node& node, const Scope& scope) {
  std::array<Value, max_arguments> arguments;
  std::size_t count = 0;
  for (const Node& child : node.children) arguments[count++] = evaluate_node(child, scope);
  const std::span<const Value> given(arguments.data(), count);
  if (node.operation == Operation::value_call) return call_value_function(node, given);
  std::optional<Value> value = scope.call(node.callee, node.name, given);
  if (!value) fail(node, std::string(node.callee) + "(" + node.name + ") has no meaning here");
  return *std::move(value);
}

}  // namespace

Value evaluate_node(const Node& node, const Scope& scope) {
  const auto operand = [&](std::size_t i) { return evaluate_node(node.children[i], scope); };
  switch (node.operation) {
    case Operation::literal:
      return node.literal;
    case Operation::name:
      return look_up(node, scope);
    case Operation::conditional:
      return operand(boolean_of(node, operand(0)) ? 1 : 2);
    case Operation::logical_or:
      return boolean_of(node, operand(0)) || boolean_of(node, operand(1));
    case Operation::logical_and:
      return boolean_of(node, operand(0)) && boolean_of(node, operand(1));
    case Operation::logical_not:
      return !boolean_of(node, operand(0));
    case Operation::negate:
      return negate(node, operand(0));
    case Operation::value_call:
    case Operation::name_call:
      return call(node, scope);
    case Operation::add:
    case Operation::subtract:
    case Operation::multiply:
    case Operation::divide:
    case Operation::remainder: {
      const Value left = operand(0);
      return arithmetic(node, left, operand(1));
    }
    default: {
      const Value left = operand(0);
      return compare_values(node, left, operand(1));
    }
  }
}

}  // namespace ejk::spec
