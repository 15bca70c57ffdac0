// Fewer images than there are: the smallest set that is nearly as fast over the tuned cases, or the one that loses least in a given size.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "generator/enumerate.hpp"

namespace ejk::generator {

struct BudgetReport {
  struct Row {
    std::string call;   // a tuned call, or a case that no record speaks of
    std::string image;  // what it gets if nothing is left out
    std::optional<std::string> served_by;
    std::optional<double> slowdown;  // 0.05: 5% above its own image; nullopt: not served, or not measured
  };
  std::vector<Row> rows;
  std::size_t tuned = 0, considered = 0;  // tuned calls; images to choose from
  std::int64_t bytes = 0;                 // of the images kept: source, binary and image.json
  std::size_t estimated = 0;              // of these images, those whose binary's size is a guess from its source
  std::string method;                     // "smallest set within 5%", "least regret in 50000000 bytes"
  bool exact = false;
  std::vector<std::string> skipped;  // records that do not count, and why
};

// Sorted by id. Throws as enumerate() does.
std::vector<ImagePlan> within_budget(const spec::Catalogue& catalogue, const Options& options, BudgetReport& report);

}  // namespace ejk::generator
