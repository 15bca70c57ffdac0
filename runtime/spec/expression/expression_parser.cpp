// Recursive descent over the grammar in expression.hpp.
#include <algorithm>
#include <limits>

#include "ejk/tensor.hpp"
#include "spec/check/suggest.hpp"
#include "spec/expression/expression_node.hpp"
#include "spec/expression/expression_token.hpp"

namespace ejk::spec {
namespace {

using Node = Expression::Node;

constexpr std::size_t max_text = 16 * 1024;
constexpr int max_depth = 200;  // bounds the stack of parsing, evaluation and destruction

struct BinaryRow {
  std::string_view symbol;
  Operation operation;
};
constexpr BinaryRow comparisons[] = {{"==", Operation::equal},      {"!=", Operation::not_equal}, {"<", Operation::less},
                                     {"<=", Operation::less_equal}, {">", Operation::greater},    {">=", Operation::greater_equal}};
constexpr BinaryRow sums[] = {{"+", Operation::add}, {"-", Operation::subtract}};
constexpr BinaryRow products[] = {{"*", Operation::multiply}, {"/", Operation::divide}, {"%", Operation::remainder}};

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokenize(text)) {}

  Node run() {
    Node node = conditional();
    if (here().kind != Token::Kind::end) fail("expected an operator or the end");
    return node;
  }

 private:
  const Token& here() const { return tokens_[at_]; }
  bool at(std::string_view symbol) const {
    return here().kind == Token::Kind::symbol && here().text.front() == symbol.front() && here().text == symbol;
  }
  bool accept(std::string_view symbol) {
    if (!at(symbol)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) fail("expected '" + std::string(symbol) + "'");
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw ExpressionError(expected + " at column " + std::to_string(here().column) + ", found " + found(here()), here().column);
  }
  [[noreturn]] static void fail_at(const std::string& what, int column) {
    throw ExpressionError(what + " at column " + std::to_string(column), column);
  }

  // Counts the recursion of the parser itself.
  class Level {
   public:
    Level(int& level, int column) : level_(level) {
      if (++level_ > max_depth) too_deep(column);
    }
    ~Level() { --level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& level_;
  };

  [[noreturn]] static void too_deep(int column) { fail_at("nested more than " + std::to_string(max_depth) + " levels deep", column); }

  template <class... Children>
  static Node make(Operation operation, int column, Children&&... children) {
    Node node;
    node.operation = operation;
    node.column = column;
    node.children.reserve(sizeof...(children));
    (node.children.push_back(std::forward<Children>(children)), ...);
    return measured(std::move(node));
  }

  static Node measured(Node node) {
    for (const Node& child : node.children) node.depth = std::max(node.depth, child.depth + 1);
    if (node.depth > max_depth) too_deep(node.column);
    return node;
  }

  Node conditional() {
    const Level level(level_, here().column);
    Node condition = logical_or();
    const int column = here().column;
    if (!accept("?")) return condition;
    Node yes = conditional();
    expect(":");
    Node no = conditional();
    return make(Operation::conditional, column, std::move(condition), std::move(yes), std::move(no));
  }

  Node logical_or() {
    Node left = logical_and();
    for (int column = here().column; accept("or"); column = here().column)
      left = make(Operation::logical_or, column, std::move(left), logical_and());
    return left;
  }

  Node logical_and() {
    Node left = logical_not();
    for (int column = here().column; accept("and"); column = here().column)
      left = make(Operation::logical_and, column, std::move(left), logical_not());
    return left;
  }

  Node logical_not() {
    const Level level(level_, here().column);
    const int column = here().column;
    if (accept("not")) return make(Operation::logical_not, column, logical_not());
    return comparison();
  }

  // The row whose symbol stands here, which is then taken.
  const BinaryRow* accept_any(std::span<const BinaryRow> rows) {
    for (const BinaryRow& row : rows)
      if (accept(row.symbol)) return &row;
    return nullptr;
  }

  Node comparison() {
    Node left = sum();
    const int column = here().column;
    const BinaryRow* row = accept_any(comparisons);
    if (!row) return left;
    left = make(row->operation, column, std::move(left), sum());
    const int second = here().column;
    if (accept_any(comparisons)) fail_at("comparisons do not chain: write 'a < b and b < c' instead of the second one", second);
    return left;
  }

  Node sum() {
    Node left = product();
    for (;;) {
      const int column = here().column;
      const BinaryRow* row = accept_any(sums);
      if (!row) return left;
      left = make(row->operation, column, std::move(left), product());
    }
  }

  Node product() {
    Node left = unary();
    for (;;) {
      const int column = here().column;
      const BinaryRow* row = accept_any(products);
      if (!row) return left;
      left = make(row->operation, column, std::move(left), unary());
    }
  }

  Node unary() {
    const Level level(level_, here().column);
    const int column = here().column;
    if (!accept("-")) return primary();
    if (here().kind == Token::Kind::integer && here().integer == std::uint64_t{1} << 63) {
      ++at_;
      return literal(std::numeric_limits<std::int64_t>::min(), column);
    }
    return make(Operation::negate, column, unary());
  }

  static Node literal(Value value, int column) {
    Node node;
    node.column = column;
    node.literal = std::move(value);
    return node;
  }

  Node primary() {
    const Token token = here();
    switch (token.kind) {
      case Token::Kind::integer:
        if (token.integer > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          fail_at("the integer " + std::string(token.text) + " does not fit 64 bits", token.column);
        ++at_;
        return literal(static_cast<std::int64_t>(token.integer), token.column);
      case Token::Kind::floating:
        ++at_;
        return literal(token.floating, token.column);
      case Token::Kind::string:
        ++at_;
        return literal(std::string(token.text), token.column);
      case Token::Kind::name:
        ++at_;
        return at("(") ? call(token) : name(token);
      default:
        break;
    }
    if (accept("true")) return literal(true, token.column);
    if (accept("false")) return literal(false, token.column);
    if (!accept("(")) fail("expected a value");
    Node node = conditional();
    expect(")");
    return node;
  }

  static Node name(const Token& token) {
    Node node;
    node.operation = Operation::name;
    node.column = token.column;
    node.name = token.text;
    return node;
  }

  Node call(const Token& token) {
    const FunctionRow* row = find_function(token.text);
    if (!row) fail_at("unknown function '" + std::string(token.text) + "'", token.column, token.text);
    expect("(");
    Node node;
    node.operation = row->takes_name() ? Operation::name_call : Operation::value_call;
    node.function = row->function;
    node.callee = row->name;
    node.column = token.column;
    const int count = arguments(*row, node);
    if (count < row->least || count > row->most) wrong_count(*row, count, token.column);
    if (row->function == Function::size) check_type_name(node.children.front());
    return measured(std::move(node));
  }

  [[noreturn]] static void fail_at(const std::string& what, int column, std::string_view function) {
    std::vector<std::string> known;
    for (const FunctionRow& row : functions()) known.emplace_back(row.name);
    throw ExpressionError(what + " at column " + std::to_string(column) + suggestion(function, known), column);
  }

  int arguments(const FunctionRow& row, Node& node) {
    if (accept(")")) return 0;
    int count = 0;
    do {
      ++count;
      if (count <= row.names && row.takes_name()) {
        const Token token = bare_name(row);
        if (count == 1)
          node.name = token.text;
        else
          node.children.push_back(literal(std::string(token.text), token.column));
      } else {
        node.children.push_back(conditional());
      }
    } while (accept(","));
    expect(")");
    return count;
  }

  Token bare_name(const FunctionRow& row) {
    if (here().kind != Token::Kind::name) fail(std::string(row.name) + "() takes a bare name: expected one");
    const Token token = here();
    ++at_;
    if (!at(",") && !at(")")) fail(std::string(row.name) + "() takes a bare name: expected ',' or ')'");
    return token;
  }

  [[noreturn]] static void wrong_count(const FunctionRow& row, int count, int column) {
    std::string wanted = std::to_string(row.least);
    if (row.most != row.least) wanted += " to " + std::to_string(row.most);
    wanted += row.most == 1 ? " argument" : " arguments";
    fail_at(std::string(row.name) + "() takes " + wanted + ", found " + std::to_string(count), column);
  }

  static void check_type_name(const Node& argument) {
    if (argument.operation != Operation::literal) return;
    const std::string* name = std::get_if<std::string>(&argument.literal);
    if (!name || !dtype_named(*name))
      fail_at("size() takes a type: expected one such as 'f32', found " + to_text(argument.literal), argument.column);
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
};

}  // namespace

Node parse_expression(std::string_view text) {
  if (text.size() > max_text)
    throw ExpressionError("the expression is " + std::to_string(text.size()) + " bytes long; the limit is " + std::to_string(max_text), 0);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) throw ExpressionError("the expression is empty", 0);
  return Parser(text).run();
}

}  // namespace ejk::spec
