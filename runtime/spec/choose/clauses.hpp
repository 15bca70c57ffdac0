// A clause in words of the call: where it is the name of a let of the kernel, that let's clauses.
#pragma once
#include <string>
#include <vector>

#include "spec/model.hpp"

namespace ejk::spec {

std::vector<std::string> clauses_of(const Spec& spec, const Expression& clause);

}  // namespace ejk::spec
