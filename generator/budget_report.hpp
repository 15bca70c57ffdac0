// What --budget kept and what that costs, for people and for scripts.
#pragma once
#include <nlohmann/json.hpp>

#include "generator/budget.hpp"

namespace ejk::generator {

nlohmann::ordered_json to_json(const BudgetReport& report);
void print(const BudgetReport& report, std::size_t images);  // calls that lose something, then the sums

}  // namespace ejk::generator
