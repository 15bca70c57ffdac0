// Tokens of an expression. Private to the parser.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ejk::spec {

struct Token {
  enum class Kind { end, integer, floating, string, name, symbol };  // `and`, `true` and the like are symbols
  Kind kind = Kind::end;
  std::string_view text;      // as written; of a string without the quotes
  int column = 1;             // 1-based
  std::uint64_t integer = 0;  // up to 2^63, which only a minus makes legal
  double floating = 0;
};

std::vector<Token> tokenize(std::string_view text);  // ends with an `end`; throws ExpressionError

std::string found(const Token& token);  // "'x'", "the string 'x'", "the end"

}  // namespace ejk::spec
