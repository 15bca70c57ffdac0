// Texts with ${expression}s: the expressions in one.
#pragma once
#include <string_view>
#include <vector>

#include "spec/expression/expression.hpp"

namespace ejk::spec {

// Throws ExpressionError for a "${" without "}" and for a bad expression.
std::vector<Expression> expressions_in(std::string_view message);

}  // namespace ejk::spec
