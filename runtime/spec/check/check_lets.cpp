// The kernel's lets, without a variant that uses them.
#include <algorithm>

#include "spec/check/check_names.hpp"
#include "spec/check/let_nesting.hpp"
#include "spec/check/name_check.hpp"
#include "spec/read/json.hpp"

namespace ejk::spec {
namespace {

void add_names(std::vector<std::string>& names, const auto& list) {
  for (const auto& each : list) names.push_back(each.name);
}

bool too_deep(const Spec& spec, std::vector<Fault>& faults) {
  std::vector<const Named*> lets;
  for (const SharedLet& let : spec.let) lets.push_back(&let);
  const Named* const found = nesting_of(lets).too_deep;
  if (found) faults.push_back({spec.file, pointer_to("/let", found->name), LetNesting::sentence(*found)});
  return found;
}

}  // namespace

bool check_lets(const Spec& spec, std::vector<Fault>& faults) {
  if (spec.let.empty()) return true;
  const std::size_t before = faults.size();
  if (too_deep(spec, faults)) return false;
  NameRules rules;
  rules.known = contract_names(spec);
  for (const Variant* variant : spec.variants.ready()) {
    add_names(rules.known, variant->specialize);
    add_names(rules.known, variant->config);
    add_names(rules.known, variant->let);
  }
  rules.in_variant = true;
  rules.place = "'let'";
  NameCheck names(spec, faults);
  for (const SharedLet& let : spec.let) {
    const std::string pointer = pointer_to("/let", let.name);
    for (const std::string& name : let.expression.names())
      if (spec.shared_let(name) && !is_in(rules.known, name)) {
        faults.push_back(
            {spec.file, pointer,
             "'" + let.name + "' uses '" + name + "', which is defined " + (name == let.name ? "by itself" : "later; put it first")});
        rules.known.push_back(name);  // said once
      }
    if (spec.variants.is_whole()) names.judge(pointer, let.expression, rules);  // else it may be made of names of those left unread
    rules.known.push_back(let.name);
  }
  return faults.size() == before;
}

}  // namespace ejk::spec
