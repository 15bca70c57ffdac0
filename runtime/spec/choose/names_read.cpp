// Names are resolved in the order in which VariantScope looks for them.
#include "spec/choose/names_read.hpp"

#include <algorithm>

#include "spec/arch_property.hpp"
#include "spec/expression/same_name.hpp"

namespace ejk::spec {

void NamesRead::add(const Expression& expression) {
  for (const auto& name : expression.names()) add(name);
  for (const auto& call : expression.name_calls()) {
    calls_.insert(call);
    add(call.second);
  }
}

void NamesRead::add(const std::string& name) {
  if (!names_.insert(name).second) return;
  const auto named = [&](const auto& each) { return same_name(each.name, name); };
  if (std::any_of(variant_.config.begin(), variant_.config.end(), named)) return;
  if (const auto let = std::find_if(variant_.let.begin(), variant_.let.end(), named); let != variant_.let.end())
    return add(let->expression);
  if (std::any_of(variant_.specialize.begin(), variant_.specialize.end(), named)) return;
  if (const SharedLet* const let = spec_.shared_let(name)) return add(let->expression);
  if (!names_arch_property(name)) of_the_call_ = true;
}

}  // namespace ejk::spec
