// The expression language: values, precedence, errors with their columns, and overflow of every operator.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "spec/expression/expression.hpp"

namespace expression_test {
namespace {

using namespace ejk::spec;

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

// Names from a map; counts look-ups, so that tests see what is evaluated.
class Names : public Scope {
 public:
  std::map<std::string, Value, std::less<>> values = {
      {"a", std::int64_t{7}},     {"b", std::int64_t{2}},           {"yes", true},   {"no", false},    {"x", 1.5},
      {"T", std::string("bf16")}, {"arch.lanes", std::int64_t{16}}, {"low", lowest}, {"high", highest}};
  mutable int lookups = 0;
  std::optional<Value> lookup(std::string_view name) const override {
    ++lookups;
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override {
    if (function == "given") return name == "mask";
    if (function == "stride") return std::get<std::int64_t>(rest[0]) * 10;
    return std::nullopt;
  }
};

std::optional<Value> known(std::string_view text) { return Expression::parse(text).known(Names()); }

Value value_of(std::string_view text) { return Expression::parse(text).evaluate(Names()); }

std::int64_t integer(std::string_view text) {
  const Value value = value_of(text);
  EXPECT_EQ(kind_name(value), "integer") << text;
  return std::holds_alternative<std::int64_t>(value) ? std::get<std::int64_t>(value) : -999;
}
bool boolean(std::string_view text) { return Expression::parse(text).boolean(Names()); }
double floating(std::string_view text) {
  const Value value = value_of(text);
  EXPECT_EQ(kind_name(value), "float") << text;
  return std::holds_alternative<double>(value) ? std::get<double>(value) : -999;
}

std::string parse_error(std::string_view text, int column) {
  try {
    Expression::parse(text);
  } catch (const ExpressionError& error) {
    EXPECT_EQ(error.column(), column) << text << ": " << error.what();
    return error.what();
  }
  return "parsed";
}

std::string error_of(std::string_view text) {
  const Expression expression = Expression::parse(text);
  try {
    return "value " + to_text(expression.evaluate(Names()));
  } catch (const ExpressionError& error) {
    return error.what();
  }
}

TEST(Expression, ReadsLiteralsOfEveryKind) {
  EXPECT_EQ(integer("12"), 12);
  EXPECT_EQ(floating("0.5"), 0.5);
  EXPECT_EQ(floating("1e-3"), 1e-3);
  EXPECT_EQ(floating("1e+300"), 1e300);
  EXPECT_EQ(value_of("true"), Value(true));
  EXPECT_EQ(value_of("'text'"), Value(std::string("text")));
  EXPECT_EQ(integer("9223372036854775807"), highest);
  EXPECT_EQ(integer("-9223372036854775808"), lowest);
}

TEST(Expression, BindsOperatorsByPrecedence) {
  EXPECT_EQ(integer("1 + 2 * 3"), 7);
  EXPECT_EQ(integer("(1 + 2) * 3"), 9);
  EXPECT_EQ(integer("10 - 4 - 3"), 3);
  EXPECT_EQ(integer("100 / 10 / 5"), 2);
  EXPECT_EQ(integer("-a * b"), -14);
  EXPECT_EQ(integer("- - 3"), 3);
  EXPECT_TRUE(boolean("true or false and false"));
  EXPECT_TRUE(boolean("not false and true"));
  EXPECT_TRUE(boolean("not 1 == 2"));
  EXPECT_TRUE(boolean("1 + 1 == 2 and 3 < 4"));
  EXPECT_EQ(integer("false ? 1 : false ? 2 : 3"), 3);
  EXPECT_EQ(integer("yes or no ? 1 : 2"), 1);
}

TEST(Expression, TruncatesDivisionTowardsZero) {
  EXPECT_EQ(integer("-7 / 2"), -3);
  EXPECT_EQ(integer("-7 % 2"), -1);
  EXPECT_EQ(integer("7 % -2"), 1);
  EXPECT_EQ(integer("low % -1"), 0);
}

TEST(Expression, IntegersMeetFloatsAsFloats) {
  EXPECT_EQ(floating("a + 0.5"), 7.5);
  EXPECT_EQ(floating("1 / sqrt(4)"), 0.5);
  EXPECT_TRUE(boolean("1 == 1.0"));
  EXPECT_TRUE(boolean("x < 2"));
  EXPECT_EQ(floating("max(1, 2.5)"), 2.5);
}

TEST(Expression, EvaluatesOnlyWhatItNeeds) {
  EXPECT_TRUE(boolean("true or 1 / 0 == 1"));
  EXPECT_FALSE(boolean("false and 1 / 0 == 1"));
  EXPECT_EQ(integer("true ? 1 : 1 / 0"), 1);
  const Names names;
  Expression::parse("yes or no").evaluate(names);
  EXPECT_EQ(names.lookups, 1);
}

TEST(Expression, ReportsOverflowOfEveryOperator) {
  EXPECT_EQ(error_of("high + 1"), "integer overflow in 9223372036854775807 + 1");
  EXPECT_EQ(error_of("low - 1"), "integer overflow in -9223372036854775808 - 1");
  EXPECT_EQ(error_of("high * 2"), "integer overflow in 9223372036854775807 * 2");
  EXPECT_EQ(error_of("low / -1"), "integer overflow in -9223372036854775808 / -1");
  EXPECT_EQ(error_of("-low"), "integer overflow in -(-9223372036854775808)");
  EXPECT_EQ(error_of("abs(low)"), "abs(): integer overflow for -9223372036854775808");
  EXPECT_EQ(error_of("align(high, 64)"), "align(): integer overflow for 9223372036854775807, 64");
  EXPECT_EQ(error_of("pow2(high)"), "pow2(): integer overflow for 9223372036854775807");
  EXPECT_EQ(error_of("1 / (a - 7)"), "zero divisor in 1 / 0");
  EXPECT_EQ(error_of("1 % 0"), "zero divisor in 1 % 0");
  EXPECT_EQ(error_of("floor(1e300)"), "floor(): 1e+300 does not fit an integer");
}

TEST(Expression, ComputesItsFunctions) {
  EXPECT_EQ(integer("min(3, 1, 2)"), 1);
  EXPECT_EQ(integer("max(3, 1, 2)"), 3);
  EXPECT_EQ(integer("clamp(9, 1, 4)"), 4);
  EXPECT_EQ(integer("clamp(-9, 1, 4)"), 1);
  EXPECT_EQ(integer("ceil_div(7, 2)"), 4);
  EXPECT_EQ(integer("ceil_div(-7, 2)"), -3);
  EXPECT_EQ(integer("ceil_div(high, 1)"), highest);
  EXPECT_EQ(integer("align(65, 64)"), 128);
  EXPECT_EQ(integer("align(64, 64)"), 64);
  EXPECT_EQ(integer("pow2(5)"), 8);
  EXPECT_EQ(integer("pow2(0)"), 1);
  EXPECT_EQ(integer("pow2(4611686018427387904)"), std::int64_t{1} << 62);
  EXPECT_EQ(integer("log2(9)"), 3);
  EXPECT_EQ(floating("log2(8.0)"), 3.0);
  EXPECT_EQ(integer("abs(-3)"), 3);
  EXPECT_EQ(integer("floor(-1.5)"), -2);
  EXPECT_EQ(integer("size('f32')"), 4);
  EXPECT_EQ(integer("size(T)"), 2);
  EXPECT_TRUE(boolean("given(mask) and not given(bias)"));
  EXPECT_EQ(integer("stride(q, a)"), 70);
}

TEST(Expression, RefusesArgumentsOutsideAFunctionsDomain) {
  EXPECT_EQ(error_of("ceil_div(1, 0)"), "ceil_div(): expected a positive divisor, found 0");
  EXPECT_EQ(error_of("log2(0)"), "log2(): expected a positive number, found 0");
  EXPECT_EQ(error_of("sqrt(-1)"), "sqrt(): expected a number that is not negative, found -1");
  EXPECT_EQ(error_of("size(a)"), "size(): expected the name of an element type, found integer 7");
  EXPECT_EQ(error_of("min(a, yes)"), "min(): expected a number, found boolean true");
  EXPECT_EQ(error_of("rank(q)"), "rank(q) has no meaning here");
}

TEST(Expression, RefusesToMixKinds) {
  EXPECT_EQ(error_of("a and yes"), "'and' needs booleans, found integer 7");
  EXPECT_EQ(error_of("not 'f32'"), "'not' needs booleans, found string 'f32'");
  EXPECT_EQ(error_of("T + 1"), "'+' needs numbers, found string 'bf16'");
  EXPECT_EQ(error_of("T < 'f32'"), "'<' needs numbers, found string 'bf16'");
  EXPECT_EQ(error_of("T == 1"), "'==' compares like with like, found string 'bf16' and integer 1");
  EXPECT_EQ(error_of("yes == 1"), "'==' compares like with like, found boolean true and integer 1");
  EXPECT_EQ(error_of("x % 2"), "'%' needs integers, found a float");
  EXPECT_EQ(error_of("a ? 1 : 2"), "'?:' needs booleans, found integer 7");
  EXPECT_TRUE(boolean("T == 'bf16' and T != 'f32' and yes != no"));
}

TEST(Expression, NamesUnknownNames) {
  EXPECT_EQ(error_of("a + c"), "unknown name 'c'");
  EXPECT_EQ(integer("arch.lanes * 2"), 32);
}

TEST(Expression, SaysWhereItDoesNotParse) {
  EXPECT_EQ(parse_error("(a + b", 7), "expected ')' at column 7, found the end");
  EXPECT_EQ(parse_error("(a + b x", 8), "expected ')' at column 8, found 'x'");
  EXPECT_EQ(parse_error("a +", 4), "expected a value at column 4, found the end");
  EXPECT_EQ(parse_error("a b", 3), "expected an operator or the end at column 3, found 'b'");
  EXPECT_EQ(parse_error("a == not b", 6), "expected a value at column 6, found 'not'");
  EXPECT_EQ(parse_error("a ? b", 6), "expected ':' at column 6, found the end");
  EXPECT_EQ(parse_error("a < b < c", 7), "comparisons do not chain: write 'a < b and b < c' instead of the second one at column 7");
  EXPECT_EQ(parse_error("a = b", 3), "unexpected '=' (write ==) at column 3");
  EXPECT_EQ(parse_error("a && b", 3), "unexpected '&' (write and, or, not) at column 3");
  EXPECT_EQ(parse_error("\"f32\"", 1), "unexpected '\"' (strings are quoted with ') at column 1");
  EXPECT_EQ(parse_error("T == 'f32", 6), "the string has no closing quote: it starts at column 6");
  EXPECT_EQ(parse_error("12x", 3), "unexpected 'x' after the number 12 at column 3");
  EXPECT_EQ(parse_error("1 + \xc3\xa9", 5), "unexpected byte 0xc3 at column 5");
  EXPECT_EQ(parse_error("", 0), "the expression is empty");
  EXPECT_EQ(parse_error("  ", 0), "the expression is empty");
}

TEST(Expression, RefusesNumbersThatDoNotFit) {
  EXPECT_EQ(parse_error("9223372036854775808", 1), "the integer 9223372036854775808 does not fit 64 bits at column 1");
  EXPECT_EQ(parse_error("1 - 9223372036854775808", 5), "the integer 9223372036854775808 does not fit 64 bits at column 5");
  EXPECT_EQ(parse_error("-9223372036854775809", 2), "the integer 9223372036854775809 does not fit 64 bits at column 2");
  EXPECT_EQ(parse_error("1e999", 1), "the number 1e999 does not fit a 64-bit float at column 1");
}

TEST(Expression, ChecksCallsWhenItParses) {
  EXPECT_EQ(parse_error("outside_rows(t, 3, 1, 1, 1, 1)", 17), "outside_rows() takes a bare name: expected one at column 17, found '3'");
  EXPECT_EQ(parse_error("outside_rows(t, x + 1, 1, 1, 1, 1)", 19),
            "outside_rows() takes a bare name: expected ',' or ')' at column 19, found '+'");
  EXPECT_EQ(Expression::parse("outside_rows(t, x, 1, a, b, 1) == '' and given(y)").subjects(), (std::set<std::string>{"t", "x", "y"}));
  EXPECT_EQ(parse_error("1 + ceildiv(a, b)", 5), "unknown function 'ceildiv' at column 5; did you mean 'ceil_div'?");
  EXPECT_EQ(parse_error("ceil_div(a)", 1), "ceil_div() takes 2 arguments, found 1 at column 1");
  EXPECT_EQ(parse_error("sqrt()", 1), "sqrt() takes 1 argument, found 0 at column 1");
  EXPECT_EQ(parse_error("max(1)", 1), "max() takes 2 to 8 arguments, found 1 at column 1");
  EXPECT_EQ(parse_error("given(1)", 7), "given() takes a bare name: expected one at column 7, found '1'");
  EXPECT_EQ(parse_error("given(a + b)", 9), "given() takes a bare name: expected ',' or ')' at column 9, found '+'");
  EXPECT_EQ(parse_error("size('f99')", 6), "size() takes a type: expected one such as 'f32', found f99 at column 6");
}

TEST(Expression, LimitsDepthAndLengthInsteadOfTheStack) {
  const std::string deep = std::string(5000, '(') + "1" + std::string(5000, ')');
  EXPECT_THROW(Expression::parse(deep), ExpressionError);
  EXPECT_THROW(Expression::parse(std::string(8000, '-') + "1"), ExpressionError);
  std::string chain = "1";
  for (int i = 0; i < 5000; ++i) chain += "+1";
  EXPECT_THROW(Expression::parse(chain), ExpressionError);
  EXPECT_NE(parse_error(std::string(17000, ' ') + "1", 0).find("the limit is 16384"), std::string::npos);
  EXPECT_EQ(integer(std::string(60, '(') + "1" + std::string(60, ')')), 1);
}

TEST(Expression, DemandsTheKindItsUserNeeds) {
  const Names names;
  EXPECT_EQ(Expression::parse("a").integer(names), 7);
  EXPECT_EQ(Expression::parse("a").floating(names), 7.0);
  try {
    Expression::parse("a + 1").boolean(names);
    FAIL();
  } catch (const ExpressionError& error) {
    EXPECT_STREQ(error.what(), "'a + 1' must be true or false, found integer 8");
  }
  EXPECT_THROW(Expression().evaluate(names), ExpressionError);
}

TEST(Expression, TellsTheNamesInIt) {
  const Expression expression = Expression::parse("given(mask) ? stride(q, i) : size(T) + arch.lanes");
  EXPECT_EQ(expression.names(), (std::set<std::string>{"i", "T", "arch.lanes"}));
  EXPECT_EQ(expression.subjects(), (std::set<std::string>{"mask", "q"}));
  EXPECT_EQ(expression.name_calls(), (std::set<std::pair<std::string, std::string>>{{"given", "mask"}, {"stride", "q"}}));
  EXPECT_EQ(Expression::parse(" (block_m) ").as_name(), "block_m");
  EXPECT_EQ(Expression::parse("-a").as_name(), std::nullopt);
}

TEST(Value, TextReadsBackAsTheSameValue) {
  for (const Value& value : {Value(std::int64_t{-5}), Value(true), Value(0.1), Value(1.0), Value(1e300), Value(1e-5), Value(-0.0)})
    EXPECT_EQ(Expression::parse(to_text(value)).evaluate(Names()), value) << to_text(value);
  EXPECT_EQ(to_text(1.0), "1.0");
  EXPECT_EQ(to_text(0.1), "0.1");
}

TEST(KnownValue, FollowsFromAPart) {
  EXPECT_EQ(known("a + b == 9 and given(mask)"), Value(true));
  EXPECT_EQ(known("what and no"), Value(false));
  EXPECT_EQ(known("no and what"), Value(false));
  EXPECT_EQ(known("what or yes"), Value(true));
  EXPECT_EQ(known("not (rank(q) > 2 and no)"), Value(true));
  EXPECT_EQ(known("yes ? a : what"), Value(std::int64_t{7}));
  EXPECT_EQ(known("what ? a : 7"), Value(std::int64_t{7}));
  EXPECT_EQ(known("stride(q, b) + min(a, 3)"), Value(std::int64_t{23}));
}

TEST(KnownValue, IsNoneElse) {
  for (const char* text : {"what", "what and yes", "no or what", "what ? a : b", "what == what", "rank(q) > 2", "not what", "-what",
                           "min(what, 3)", "stride(q, what)", "1 / 0 == 1 or no", "a and yes"})
    EXPECT_EQ(known(text), std::nullopt) << text;
  EXPECT_EQ(Expression().known(Names()), std::nullopt);
}

}  // namespace
}  // namespace expression_test
