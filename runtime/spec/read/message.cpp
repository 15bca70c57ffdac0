// Finds the ${expression}s of a text.
#include "spec/read/message.hpp"

namespace ejk::spec {

std::vector<Expression> expressions_in(std::string_view message) {
  std::vector<Expression> expressions;
  for (std::size_t at = message.find("${"); at != std::string_view::npos; at = message.find("${", at)) {
    const std::size_t end = message.find('}', at);
    if (end == std::string_view::npos) throw ExpressionError("'${' without '}'", static_cast<int>(at) + 1);
    expressions.push_back(Expression::parse(message.substr(at + 2, end - at - 2)));
    at = end + 1;
  }
  return expressions;
}

}  // namespace ejk::spec
