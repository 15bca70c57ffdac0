// A whole run: enumerate → render → emit.
#pragma once
#include <string>
#include <vector>

#include "generator/budget.hpp"
#include "generator/enumerate.hpp"
#include "generator/tree.hpp"

namespace ejk::generator {

struct Report {
  std::size_t images = 0;
  WriteReport files;
  bool up_to_date = false;  // nothing had changed since the last run
  BudgetReport budget;      // if options.portfolio
};

// All throw UsageError, spec::SpecError with every fault, or std::runtime_error for a file that cannot be read or written; nothing is
// written before every image is rendered.
Report generate(const Options& options);
std::vector<std::string> check(const Options& options);  // the differences; writes nothing

struct Listed {
  std::string id, kernel, variant, arch;
  std::string case_name;  // the first case that needs it
};
std::vector<Listed> list(const Options& options);  // renders nothing but what a budget chooses from

}  // namespace ejk::generator
