// Judges the names of one expression: what is known where it stands, and what it may use there.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "spec/check/is_in.hpp"
#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

struct NameRules {
  std::vector<std::string> known;    // value names, arch.* and the kernel's lets apart
  const Variant* variant = nullptr;  // whose other names have no value yet: the error says why
  bool configured = false;           // its config is chosen: lets have values, each after those before it
  bool in_variant = false;           // arch.* has a value
  std::vector<const Arch*> archs;    // whose properties arch.* must name
  bool varying = false;              // attributes that vary may be used
  bool data = false;                 // functions that read data may be used ...
  std::vector<std::string> data_of;  // ... of these tensors; empty: of any input
  bool may_read = false;             // a rule that could say "reads"
  bool only_given = false;           // no shape is known yet: given() is the one function of tensors
  // Lets of the kernel that were judged without a fault, as long as names only become known: nullptr judges them each time.
  std::set<const void*>* sound_lets = nullptr;
  std::string place;  // "'supports'": for the error
};

class NameCheck {
 public:
  NameCheck(const Spec& spec, std::vector<Fault>& faults) : spec_(spec), faults_(faults) {}
  void judge(const std::string& pointer, const Expression& expression, const NameRules& rules);

 private:
  void fault(const std::string& pointer, std::string sentence) { faults_.push_back({spec_.file, pointer, std::move(sentence)}); }
  void judge_name(const std::string& pointer, const std::string& name, const NameRules& rules);
  void judge_let(const std::string& pointer, const SharedLet& let, const NameRules& rules);
  std::string why_no_value(const SharedLet& let, const NameRules& rules);
  void judge_unknown(const std::string& pointer, const std::string& name, const NameRules& rules);
  void judge_property(const std::string& pointer, const std::string& name, const NameRules& rules);
  void judge_call(const std::string& pointer, const std::string& function, const std::string& subject, const NameRules& rules);
  void judge_data(const std::string& pointer, const std::string& function, const TensorSpec& tensor, const NameRules& rules);
  bool refuses_varying(const std::string& name, const NameRules& rules) const;

  using Verdicts = std::map<const SharedLet*, std::string>;  // "" or why the let has no value
  NameCheck(const Spec& spec, std::vector<Fault>& faults, Verdicts& verdicts) : spec_(spec), faults_(faults), verdicts_(verdicts) {}
  void judge_all(const std::string& pointer, const Expression& expression, const NameRules& rules);
  bool is_plain(const Expression& expression, const NameRules& rules) const;
  bool is_plain_name(const std::string& name, const NameRules& rules) const;

  const Spec& spec_;
  std::vector<Fault>& faults_;
  Verdicts own_;
  Verdicts& verdicts_ = own_;  // of one expression and the lets that it is made of
};

// Dims, types and attributes, and `form` where the spec has forms.
std::vector<std::string> contract_names(const Spec& spec);

}  // namespace ejk::spec
