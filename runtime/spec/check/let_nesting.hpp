// Lets in each other: no circles, and no deeper than what evaluates them has stack for.
#pragma once
#include <string>
#include <vector>

#include "spec/model.hpp"

namespace ejk::spec {

// The first let, if any, that is made of itself, or that is nested with those that it is made of deeper than one expression may be.
struct LetNesting {
  const Named* circular = nullptr;
  const Named* too_deep = nullptr;
  static std::string sentence(const Named& too_deep);
};
// In any order; names that are none of these lets' count for nothing.
LetNesting nesting_of(const std::vector<const Named*>& lets);

}  // namespace ejk::spec
