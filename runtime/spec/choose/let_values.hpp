// Values of lets in a scope, each evaluated once: else lets made of two others each would take twice the time of those.
#pragma once
#include <map>
#include <optional>

#include "spec/model.hpp"

namespace ejk::spec {

class LetValues {
 public:
  // `scope` is what the let's expression sees. Throws ExpressionError, also of a let that is made of itself.
  Value value(const Named& let, const Scope& scope) {
    const auto [known, fresh] = values_.emplace(&let, std::nullopt);
    if (!fresh && !known->second) throw ExpressionError("let " + let.name + " depends on itself", 0);
    if (fresh) known->second = let.expression.evaluate(scope);
    return *known->second;
  }

 private:
  std::map<const Named*, std::optional<Value>> values_;  // none: it is being evaluated, or has none
};

}  // namespace ejk::spec
