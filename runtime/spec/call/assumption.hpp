// Calls of which only a part is assumed: which tensors are given, some attributes, the form. What follows from that is known, all else is
// not. For checks that ask what a variant does with every call of a kind, without a case.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "spec/model.hpp"

namespace ejk::spec {

class Assumption : public Scope {
 public:
  explicit Assumption(const Spec& spec) : spec_(&spec) {}
  const Spec& spec() const { return *spec_; }

  std::map<std::string, bool> given;                       // optional tensors
  std::map<std::string, std::optional<Value>> attributes;  // nullopt: not given
  std::string form;                                        // empty: the spec has none

  bool legal() const;                           // nothing that is known breaks the contract
  bool taken_by(const Variant& variant) const;  // no clause of `supports` is known to refuse
  std::string text() const;                     // "mask, window_left = 1, form 'packed'": what is given and set

  std::optional<Value> lookup(std::string_view name) const override;
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override;

 private:
  bool fits_form() const;
  const Spec* spec_;
};

// The same for a variant's launches: its specialisations and lets are names, too.
class VariantAssumption : public Scope {
 public:
  VariantAssumption(const Variant& variant, const Assumption& assumption) : variant_(variant), assumption_(assumption) {}
  bool launches(const Launch& launch) const;  // not known to be left out
  std::optional<Value> lookup(std::string_view name) const override;
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override;

 private:
  const Variant& variant_;
  const Assumption& assumption_;
  mutable std::map<std::string, std::optional<Value>, std::less<>> lets_;
};

// Every legal combination of: the subject and others, optional tensors given or not and attributes at sample values (the default, true and
// false, every choice, some numbers; not given, if that is legal), each form, and what forms depend on. Other names are left out, and so
// are others of which there are too many. Those with the fewest tensors come first.
std::vector<Assumption> assumptions(const Spec& spec, const std::string& subject, std::set<std::string> others);

}  // namespace ejk::spec
