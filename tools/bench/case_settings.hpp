// --set: what the cases named on a command line are given in place of what the spec says of them.
#pragma once
#include <string>
#include <vector>

#include "command_line/arguments.hpp"
#include "spec/model.hpp"
#include "spec/read/json.hpp"

namespace ejk::tools {

// A dim, type or attribute, and its value, or a list of values that are taken in turn.
struct CaseSetting {
  std::string name;
  spec::Json value;
};

void add_set_option(Arguments& arguments);

// Of texts such as "E=f16,B=2" or "E=[f16,bf16]". Throws UsageError for what the kernel does not have, a value that it does not allow, and
// a name that is set twice.
std::vector<CaseSetting> case_settings(const spec::Spec& spec, const std::vector<std::string>& texts);

// The cases with those values, each once, in their order. A dim or type reaches cases that speak of it, an attribute every case; what is
// set is part of a case's name, as lists of a spec's case are (spec::Case), besides ".not_causal" for a flag that the spec sets. A case for
// which nothing changes keeps its name. Throws UsageError if a setting reaches no case, and for a case that is no legal call.
std::vector<spec::Case> cases_with(const spec::Spec& spec, const std::vector<const spec::Case*>& cases,
                                   const std::vector<CaseSetting>& settings);

}  // namespace ejk::tools
