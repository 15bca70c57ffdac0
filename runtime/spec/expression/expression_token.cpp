// Splits an expression's text into tokens.
#include "spec/expression/expression_token.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "spec/expression/expression.hpp"

namespace ejk::spec {
namespace {

constexpr std::array<std::string_view, 5> words = {"and", "or", "not", "true", "false"};
constexpr std::array<std::string_view, 16> symbols = {"==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ",", "?", ":"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// A byte as an error shows it; bytes outside ASCII would not be text.
std::string shown(char c) {
  static constexpr char hex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x20 && byte < 0x7f) return "'" + std::string(1, c) + "'";
  return std::string("byte 0x") + hex[byte >> 4] + hex[byte & 15];
}

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    do {
      while (at_ < text_.size() && is_space(text_[at_])) ++at_;
      tokens.push_back(next());
    } while (tokens.back().kind != Token::Kind::end);
    return tokens;
  }

 private:
  int column() const { return static_cast<int>(at_) + 1; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  [[noreturn]] void fail(const std::string& what, int column) const {
    throw ExpressionError(what + " at column " + std::to_string(column), column);
  }

  Token next() {
    Token token;
    token.column = column();
    if (at_ == text_.size()) return token;
    if (is_digit(peek())) return number(token);
    if (is_letter(peek())) return name(token);
    if (peek() == '\'') return string(token);
    for (const std::string_view symbol : symbols)
      if (text_[at_] == symbol.front() && text_.substr(at_).starts_with(symbol)) return take(token, Token::Kind::symbol, symbol.size());
    fail("unexpected " + shown(peek()) + hint(peek()), token.column);
  }

  static std::string hint(char c) {
    if (c == '"') return " (strings are quoted with ')";
    if (c == '&' || c == '|' || c == '!') return " (write and, or, not)";
    if (c == '=') return " (write ==)";
    return "";
  }

  Token take(Token token, Token::Kind kind, std::size_t length) {
    token.kind = kind;
    token.text = text_.substr(at_, length);
    at_ += length;
    return token;
  }

  Token name(Token token) {
    std::size_t length = 0;
    // A dot joins two names; it never starts or ends one.
    while (is_letter(peek(length)) || is_digit(peek(length)) || (peek(length) == '.' && is_letter(peek(length + 1)))) ++length;
    token = take(token, Token::Kind::name, length);
    if (std::find(words.begin(), words.end(), token.text) != words.end()) token.kind = Token::Kind::symbol;
    return token;
  }

  Token string(Token token) {
    const std::size_t end = text_.find('\'', at_ + 1);
    if (end == std::string_view::npos) fail("the string has no closing quote: it starts", token.column);
    token.kind = Token::Kind::string;
    token.text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return token;
  }

  std::size_t digits(std::size_t from) const {
    while (is_digit(peek(from))) ++from;
    return from;
  }

  Token number(Token token) {
    std::size_t length = digits(0);
    bool floating = false;
    if (peek(length) == '.' && is_digit(peek(length + 1))) floating = true, length = digits(length + 1);
    if (peek(length) == 'e' || peek(length) == 'E') {
      const std::size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-' ? 1 : 0;
      if (is_digit(peek(length + 1 + sign))) floating = true, length = digits(length + 1 + sign);
    }
    token = take(token, floating ? Token::Kind::floating : Token::Kind::integer, length);
    if (is_letter(peek()) || peek() == '.') fail("unexpected " + shown(peek()) + " after the number " + std::string(token.text), column());
    floating ? read_floating(token) : read_integer(token);
    return token;
  }

  void read_integer(Token& token) const {
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), token.integer);
    constexpr std::uint64_t most = std::uint64_t{1} << 63;
    if (error != std::errc{} || token.integer > most)
      fail("the integer " + std::string(token.text) + " does not fit 64 bits", token.column);
  }

  void read_floating(Token& token) const {
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), token.floating);
    if (error != std::errc{} || !std::isfinite(token.floating))
      fail("the number " + std::string(token.text) + " does not fit a 64-bit float", token.column);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) { return Tokenizer(text).run(); }

std::string found(const Token& token) {
  if (token.kind == Token::Kind::end) return "the end";
  if (token.kind == Token::Kind::string) return "the string '" + std::string(token.text) + "'";
  return "'" + std::string(token.text) + "'";
}

}  // namespace ejk::spec
