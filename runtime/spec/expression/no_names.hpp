// The scope in which no name has a value: for expressions of literals alone.
#pragma once
#include "spec/expression/expression.hpp"

namespace ejk::spec {

struct NoNames : Scope {
  std::optional<Value> lookup(std::string_view) const override { return std::nullopt; }
};

}  // namespace ejk::spec
