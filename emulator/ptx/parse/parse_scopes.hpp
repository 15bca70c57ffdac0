// Names of a body: registers, variables and labels, from its outermost braces to the innermost. Those of an inlined function do not see the
// caller's.
#pragma once
#include <optional>
#include <vector>

#include "emulator/ptx/parse/parse_module.hpp"

namespace ejk::ptx::parsing {

// What a name stands for.
struct Meaning {
  bool is_register = false;
  Slot id = no_slot;  // of a register
  RegisterKind kind = RegisterKind::word32;
  Space space = Space::local;  // of a variable
  bool is_dynamic = false;     // its address counts from where dynamic shared memory begins
  std::uint64_t address = 0;
  std::size_t bytes = 0;
};

// A branch whose label is not known yet.
struct OpenBranch {
  std::size_t statement;
  std::string_view label;
  int line;
};

class Scopes {
 public:
  void open(bool is_function, std::size_t local_top);
  // Sets targets of branches to labels of the innermost scope (calls `set(statement, target)`); others are left to the scope around it.
  // Returns the `local_top` of open().
  template <class Set>
  std::size_t close(const Set& set);

  std::size_t depth() const { return depth_; }

  void declare_register(std::string_view name, Slot id, RegisterKind kind);
  // name0, name1, ...: their ids are made when they are first used.
  void declare_range(std::string_view prefix, std::size_t count, RegisterKind kind);
  void declare_variable(std::string_view name, const Meaning& meaning);
  void declare_label(std::string_view name, std::size_t statement);
  void add_branch(const OpenBranch& branch) { scopes_[depth_ - 1].branches.push_back(branch); }

  // `new_id` makes an id for a register of a kind.
  template <class NewId>
  std::optional<Meaning> find(std::string_view name, const NewId& new_id);
  bool has_in_innermost(std::string_view name) const;

 private:
  struct Range {
    std::string_view prefix;
    RegisterKind kind;
    std::vector<Slot> ids;
  };
  struct Scope {
    bool is_function = false;
    std::size_t local_top = 0;
    std::vector<std::pair<std::string_view, Meaning>> names;
    std::vector<Range> ranges;
    std::vector<std::pair<std::string_view, std::size_t>> labels;
    std::vector<OpenBranch> branches;
  };

  static std::optional<std::size_t> number_behind(std::string_view prefix, std::string_view name);
  void sort_labels(Scope& scope);
  static const std::size_t* label_of(const Scope& scope, std::string_view name);

  std::vector<Scope> scopes_;  // kept for their memory when closed
  std::size_t depth_ = 0;
};

template <class Set>
std::size_t Scopes::close(const Set& set) {
  auto& scope = scopes_[depth_ - 1];
  if (!scope.branches.empty()) sort_labels(scope);
  for (const auto& branch : scope.branches) {
    if (const auto* target = label_of(scope, branch.label))
      set(branch.statement, *target);
    else if (scope.is_function)
      fail_at(branch.line, "label '" + std::string(branch.label) + "' is not in this function");
    else
      scopes_[depth_ - 2].branches.push_back(branch);
  }
  --depth_;
  return scope.local_top;
}

template <class NewId>
std::optional<Meaning> Scopes::find(std::string_view name, const NewId& new_id) {
  for (std::size_t depth = depth_; depth-- > 0;) {
    auto& scope = scopes_[depth];
    for (auto& range : scope.ranges)
      if (const auto number = number_behind(range.prefix, name); number && *number < range.ids.size()) {
        auto& id = range.ids[*number];
        if (id == no_slot) id = new_id(range.kind);
        return Meaning{.is_register = true, .id = id, .kind = range.kind};
      }
    for (const auto& [each, meaning] : scope.names)
      if (each == name) return meaning;
    if (scope.is_function) break;
  }
  return std::nullopt;
}

}  // namespace ejk::ptx::parsing
