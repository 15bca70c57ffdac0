// Lets of lets are followed.
#include "spec/choose/clauses.hpp"

namespace ejk::spec {

std::vector<std::string> clauses_of(const Spec& spec, const Expression& clause) {
  const auto name = clause.as_name();
  const SharedLet* const let = name ? spec.server().shared_let(*name) : nullptr;
  if (!let) return {clause.text()};
  std::vector<std::string> texts;
  for (const Expression& part : let->clauses)
    for (std::string& text : clauses_of(spec, part)) texts.push_back(std::move(text));
  return texts;
}

}  // namespace ejk::spec
