// A whole run: enumerate → render → emit.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "generator/budget.hpp"
#include "generator/enumerate.hpp"
#include "generator/staged_tree.hpp"

namespace ejk::generator {

struct Report {
  std::size_t images = 0;
  WriteReport files;
  bool up_to_date = false;  // nothing had changed since the last run
  BudgetReport budget;      // if options.portfolio
};

// All throw UsageError, spec::SpecError with every fault, or std::runtime_error for a file that cannot be read or written; the output
// folder is as it was until every image is rendered.
Report generate(const Options& options);
std::vector<std::string> check(const Options& options);  // the differences; writes nothing

struct Listed {
  std::string id, kernel, variant, arch;
  std::string case_name;  // the first case that needs it
};
// In ascending order of ids, as they are found; none from the first fault on. Renders nothing but what a budget chooses from.
void for_each_listed(const Options& options, const std::function<void(const Listed&)>& visit);
std::vector<Listed> list(const Options& options);

}  // namespace ejk::generator
