// The functions of expressions: their table, and what those of values compute.
#include <bit>
#include <cmath>
#include <limits>

#include "ejk/tensor.hpp"
#include "spec/expression/expression_node.hpp"

namespace ejk::spec {
namespace {

using Node = Expression::Node;

constexpr FunctionRow rows[] = {
    {"min", Function::min, 2, max_arguments},
    {"max", Function::max, 2, max_arguments},
    {"clamp", Function::clamp, 3, 3},
    {"ceil_div", Function::ceil_div, 2, 2},
    {"align", Function::align, 2, 2},
    {"pow2", Function::pow2, 1, 1},
    {"log2", Function::log2, 1, 1},
    {"sqrt", Function::sqrt, 1, 1},
    {"abs", Function::abs, 1, 1},
    {"floor", Function::floor, 1, 1},
    {"size", Function::size, 1, 1},
    {"given", Function::by_scope, 1, 1},
    {"contiguous", Function::by_scope, 1, 1},
    {"aligned", Function::by_scope, 2, 2},
    {"mappable", Function::by_scope, 1, 1},
    {"foldable", Function::by_scope, 1, 1},
    {"folded_stride", Function::by_scope, 1, 1},
    {"stride", Function::by_scope, 2, 2},
    {"extent", Function::by_scope, 2, 2},
    {"rank", Function::by_scope, 1, 1},
    {"first", Function::by_scope, 1, 1},
    {"last", Function::by_scope, 1, 1},
    {"nondecreasing", Function::by_scope, 1, 2},
    {"smallest", Function::by_scope, 1, 1},
    {"chunks", Function::by_scope, 2, 2},
    {"sum", Function::by_scope, 3, 3},
    {"outside", Function::by_scope, 3, 4},
    {"outside_rows", Function::by_scope, 6, 7, 2},
};

// A call's arguments, with errors that name the function.
class Call {
 public:
  Call(const Node& node, std::span<const Value> arguments) : node_(node), arguments_(arguments) {}

  [[noreturn]] void fail(const std::string& sentence) const {
    throw ExpressionError(std::string(node_.callee) + "(): " + sentence, node_.column);
  }
  const Value& operator[](std::size_t i) const { return arguments_[i]; }
  bool all_integers() const {
    for (const Value& value : arguments_)
      if (!std::holds_alternative<std::int64_t>(value)) return false;
    return true;
  }
  std::int64_t integer(std::size_t i) const {
    if (const auto* value = std::get_if<std::int64_t>(&arguments_[i])) return *value;
    wrong_kind("an integer", i);
  }
  double number(std::size_t i) const {
    if (const auto* value = std::get_if<std::int64_t>(&arguments_[i])) return static_cast<double>(*value);
    if (const auto* value = std::get_if<double>(&arguments_[i])) return *value;
    wrong_kind("a number", i);
  }
  [[noreturn]] void wrong_kind(std::string_view wanted, std::size_t i) const {
    fail("expected " + std::string(wanted) + ", found " + std::string(kind_name(arguments_[i])) + " " + to_text(arguments_[i]));
  }
  [[noreturn]] void overflow() const {
    std::string text;
    for (const Value& value : arguments_) text += (text.empty() ? "" : ", ") + to_text(value);
    fail("integer overflow for " + text);
  }
  std::size_t count() const { return arguments_.size(); }

 private:
  const Node& node_;
  std::span<const Value> arguments_;
};

Value extreme(const Call& call, bool largest) {
  if (call.all_integers()) {
    std::int64_t best = call.integer(0);
    for (std::size_t i = 1; i < call.count(); ++i)
      if (largest ? call.integer(i) > best : call.integer(i) < best) best = call.integer(i);
    return best;
  }
  double best = call.number(0);
  for (std::size_t i = 1; i < call.count(); ++i) best = largest ? std::fmax(best, call.number(i)) : std::fmin(best, call.number(i));
  return best;
}

// min(max(x, low), high)
Value clamp(const Call& call) {
  if (call.all_integers()) return std::min(std::max(call.integer(0), call.integer(1)), call.integer(2));
  return std::fmin(std::fmax(call.number(0), call.number(1)), call.number(2));
}

std::int64_t ceil_div(const Call& call) {
  const std::int64_t a = call.integer(0), b = call.integer(1);
  if (b <= 0) call.fail("expected a positive divisor, found " + std::to_string(b));
  return a / b + (a % b > 0 ? 1 : 0);
}

Value align(const Call& call) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(ceil_div(call), call.integer(1), &result)) call.overflow();
  return result;
}

Value pow2(const Call& call) {
  const std::int64_t x = call.integer(0);
  if (x <= 1) return std::int64_t{1};
  if (x > std::int64_t{1} << 62) call.overflow();
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x)));
}

Value log2(const Call& call) {
  if (call.number(0) <= 0) call.fail("expected a positive number, found " + to_text(call[0]));
  if (!call.all_integers()) return std::log2(call.number(0));
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(call.integer(0)))) - 1;
}

Value square_root(const Call& call) {
  if (call.number(0) < 0) call.fail("expected a number that is not negative, found " + to_text(call[0]));
  return std::sqrt(call.number(0));
}

Value absolute(const Call& call) {
  if (!call.all_integers()) return std::fabs(call.number(0));
  if (call.integer(0) == std::numeric_limits<std::int64_t>::min()) call.overflow();
  return std::abs(call.integer(0));
}

Value floor(const Call& call) {
  if (call.all_integers()) return call.integer(0);
  const double x = std::floor(call.number(0));
  constexpr double limit = 9223372036854775808.0;  // 2^63
  if (!(x >= -limit && x < limit)) call.fail(to_text(call[0]) + " does not fit an integer");
  return static_cast<std::int64_t>(x);
}

Value size(const Call& call) {
  const auto* name = std::get_if<std::string>(&call[0]);
  if (!name) call.wrong_kind("the name of an element type", 0);
  const std::optional<DType> type = dtype_named(*name);
  if (!type) call.wrong_kind("the name of an element type", 0);
  return size_of(*type);
}

}  // namespace

std::span<const FunctionRow> functions() { return rows; }

const FunctionRow* find_function(std::string_view name) {
  for (const FunctionRow& row : rows)
    if (row.name == name) return &row;
  return nullptr;
}

Value call_value_function(const Node& node, std::span<const Value> arguments) {
  const Call call(node, arguments);
  switch (node.function) {
    case Function::min:
      return extreme(call, false);
    case Function::max:
      return extreme(call, true);
    case Function::clamp:
      return clamp(call);
    case Function::ceil_div:
      return ceil_div(call);
    case Function::align:
      return align(call);
    case Function::pow2:
      return pow2(call);
    case Function::log2:
      return log2(call);
    case Function::sqrt:
      return square_root(call);
    case Function::abs:
      return absolute(call);
    case Function::floor:
      return floor(call);
    case Function::size:
      return size(call);
    case Function::by_scope:
      break;
  }
  call.fail("is not a function of values");
}

}  // namespace ejk::spec
