// Expressions of specs and templates: one parser, one evaluator.
//
// Grammar, loosest first:   c ? a : b   |  or  |  and  |  not  |  == != < <= > >=  |  + -  |  * / %  |  unary -  |  call, name, literal
// Literals: 12, 0.5, 1e-3, true, false, 'text'. Names: block_m, arch.shared_memory. Calls: ceil_div(a, b), given(bias).
// Integers are 64-bit and every overflow is an error; `/` and `%` of two integers truncate towards zero (zero divisor: error);
// an integer meets a float as a float. `and`, `or`, `?:` evaluate only what they need. No other conversions.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "spec/expression/value.hpp"

namespace ejk::spec {

// column: 1-based place in the expression's text; 0 when it is about the whole.
class ExpressionError : public std::runtime_error {
 public:
  ExpressionError(std::string sentence, int column) : std::runtime_error(std::move(sentence)), column_(column) {}
  int column() const { return column_; }

 private:
  int column_;
};

// Where names and name-taking functions get their meaning.
class Scope {
 public:
  virtual ~Scope() = default;
  virtual std::optional<Value> lookup(std::string_view name) const = 0;
  // Functions whose first argument is a bare name, not a value: given(bias), stride(q, 0). A second bare name is a string in `rest`.
  // nullopt: no such function here.
  virtual std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const;
};

class Expression {
 public:
  struct Node;
  Expression() = default;                          // empty: evaluate() is an error
  static Expression parse(std::string_view text);  // throws ExpressionError
  Value evaluate(const Scope& scope) const;        // throws ExpressionError
  // Its value where it follows from what the scope knows; names and calls without a value there are unknown, as are errors.
  std::optional<Value> known(const Scope& scope) const;
  // Evaluate and demand a kind; throws ExpressionError that says what was found.
  std::int64_t integer(const Scope& scope) const;
  bool boolean(const Scope& scope) const;
  double floating(const Scope& scope) const;  // an integer widens

  const std::string& text() const { return text_; }
  explicit operator bool() const { return root_ != nullptr; }
  std::set<std::string> names() const;                               // every value name that occurs
  std::set<std::string> subjects() const;                            // every bare name given to a name-taking function
  std::set<std::pair<std::string, std::string>> name_calls() const;  // (function, bare name) of each such call
  std::optional<std::string> as_name() const;                        // the name, if the expression is nothing else
  const void* identity() const { return root_.get(); }               // copies have the same

 private:
  std::string text_;
  std::shared_ptr<const Node> root_;
};

// Functions of values, the same everywhere: min max clamp ceil_div align pow2 log2 sqrt abs floor.
//   align(x, a): x rounded up to a multiple of a; pow2(x): smallest power of two >= x; log2(x): floor, of a positive integer
//   (of a float: float). size(T): bytes of a type name (size('f32') = 4), a name-taking function that also takes a string.
// Name-taking functions (Scope::call): given contiguous aligned mappable foldable extent stride rank first last
// nondecreasing smallest chunks sum outside outside_rows, each documented in binding.hpp.
bool is_value_function(std::string_view name);
bool is_name_function(std::string_view name);

}  // namespace ejk::spec
