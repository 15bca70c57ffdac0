// Names of a body, by scope.
#include "emulator/ptx/parse/parse_scopes.hpp"

#include <algorithm>

namespace ejk::ptx::parsing {

void Scopes::open(bool is_function, std::size_t local_top) {
  if (depth_ == scopes_.size()) scopes_.emplace_back();
  auto& scope = scopes_[depth_++];
  scope.is_function = is_function;
  scope.local_top = local_top;
  scope.names.clear();
  scope.ranges.clear();
  scope.labels.clear();
  scope.branches.clear();
}

void Scopes::declare_register(std::string_view name, Slot id, RegisterKind kind) {
  declare_variable(name, {.is_register = true, .id = id, .kind = kind});
}

void Scopes::declare_range(std::string_view prefix, std::size_t count, RegisterKind kind) {
  scopes_[depth_ - 1].ranges.push_back({prefix, kind, std::vector<Slot>(count, no_slot)});
}

void Scopes::declare_variable(std::string_view name, const Meaning& meaning) { scopes_[depth_ - 1].names.emplace_back(name, meaning); }

void Scopes::declare_label(std::string_view name, std::size_t statement) { scopes_[depth_ - 1].labels.emplace_back(name, statement); }

bool Scopes::has_in_innermost(std::string_view name) const {
  const auto& names = scopes_[depth_ - 1].names;
  return std::any_of(names.begin(), names.end(), [&](const auto& each) { return each.first == name; });
}

std::optional<std::size_t> Scopes::number_behind(std::string_view prefix, std::string_view name) {
  if (name.size() <= prefix.size() || !name.starts_with(prefix)) return std::nullopt;
  if (name[prefix.size()] == '0' && name.size() > prefix.size() + 1) return std::nullopt;
  std::size_t number = 0;
  for (const char c : name.substr(prefix.size())) {
    if (!Reader::is_digit(c)) return std::nullopt;
    number = number * 10 + static_cast<std::size_t>(c - '0');
  }
  return number;
}

void Scopes::sort_labels(Scope& scope) { std::sort(scope.labels.begin(), scope.labels.end()); }

const std::size_t* Scopes::label_of(const Scope& scope, std::string_view name) {
  const auto found = std::lower_bound(scope.labels.begin(), scope.labels.end(), std::pair{name, std::size_t{0}});
  return found != scope.labels.end() && found->first == name ? &found->second : nullptr;
}

}  // namespace ejk::ptx::parsing
