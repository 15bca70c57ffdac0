// What expressions of a variant may read, through lets of the variant and of the kernel.
#pragma once
#include <set>
#include <string>
#include <utility>

#include "spec/model.hpp"

namespace ejk::spec {

class NamesRead {
 public:
  NamesRead(const Variant& variant, const Spec& spec) : variant_(variant), spec_(spec) {}

  void add(const Expression& expression);
  bool has(const std::string& name) const { return names_.contains(name); }
  // (function, bare name), as Expression::name_calls.
  const std::set<std::pair<std::string, std::string>>& calls() const { return calls_; }
  // Whether one of them is a fact of the call, and not of the arch, the specialisation or the config.
  bool of_the_call() const { return of_the_call_ || !calls_.empty(); }

 private:
  void add(const std::string& name);

  const Variant& variant_;
  const Spec& spec_;
  std::set<std::string> names_;
  std::set<std::pair<std::string, std::string>> calls_;
  bool of_the_call_ = false;
};

}  // namespace ejk::spec
