// The contract's own rules: its expressions, its dims, its tolerances.
#include <algorithm>
#include <set>

#include "spec/check/check_names.hpp"
#include "spec/check/name_check.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/json.hpp"
#include "spec/read/load_parts.hpp"
#include "spec/read/message.hpp"

namespace ejk::spec {
namespace {

class ContractCheck {
 public:
  ContractCheck(const Spec& spec, std::vector<Fault>& faults) : spec_(spec), faults_(faults), names_(spec, faults) {}

  void run() {
    dims();
    types();
    for (std::size_t i = 0; i < spec_.forms.size(); ++i) form(i);
    for (std::size_t i = 0; i < spec_.attributes.size(); ++i) attribute(i);
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i)  // inputs come first
      if (spec_.tensors[i].matters) names_.judge(pointer_to("/inputs", i) + "/matters", spec_.tensors[i].matters, rules("'matters'"));
    for (const TensorSpec& tensor : spec_.tensors)
      if (tensor.precision) names_.judge("/outputs", tensor.precision, rules("the precision of '" + tensor.name + "'"));
    for (std::size_t i = 0; i < spec_.requirements.size(); ++i) requirement(i);
    batch();
    NameRules cost = rules("the cost");
    cost.data = true;
    names_.judge("/cost/flops", spec_.flops, cost);
    names_.judge("/cost/bytes", spec_.bytes, cost);
    tolerances();
  }

 private:
  void fault(const std::string& pointer, std::string sentence) { faults_.push_back({spec_.file, pointer, std::move(sentence)}); }

  NameRules rules(std::string place) const {
    NameRules rules;
    rules.known = contract_;
    rules.varying = true;
    rules.place = std::move(place);
    return rules;
  }

  void dims() {
    std::set<std::string> bound;
    for (const TensorSpec& tensor : spec_.tensors)
      for (const Shape& shape : tensor.shapes)
        for (const Extent& extent : shape.extents) bound.insert(extent.dim);
    for (const Dim& dim : spec_.dims) {
      const std::string pointer = pointer_to("/dims", dim.name);
      if (!dim.value && !bound.count(dim.name))
        fault(pointer,
              "the dim '" + dim.name + "' is in no tensor's shape, so no call gives it a size; use it, give it a \"value\", or drop it");
      if (!dim.value) continue;
      NameRules rule = rules("the value of a dim");
      rule.varying = false;
      rule.data = true;
      names_.judge(pointer + "/value", dim.value, rule);
      if (dim.value.names().count(dim.name)) fault(pointer + "/value", "the dim '" + dim.name + "' is defined by itself");
    }
  }

  // The batch dim is a whole dimension of a tensor, or the tensor lacks it: what follows from its size could not be folded.
  void batch() {
    const std::string& dim = spec_.batch.dim;
    if (dim.empty()) return;
    if (std::none_of(spec_.dims.begin(), spec_.dims.end(), [&](const Dim& known) { return known.name == dim; })) {
      std::vector<std::string> known;
      for (const Dim& each : spec_.dims) known.push_back(each.name);
      return fault("/batch/dim", "'" + dim + "' is no dim" + suggestion(dim, known));
    }
    for (const TensorSpec& tensor : spec_.tensors)
      for (const Shape& shape : tensor.shapes) batch_in(tensor, shape);
    NameRules rule = rules("the condition of a batch");
    rule.varying = false;
    names_.judge("/batch/if", spec_.batch.condition, rule);
  }

  void batch_in(const TensorSpec& tensor, const Shape& shape) {
    int whole = 0;
    for (const Extent& extent : shape.extents) {
      const bool is_dim = extent.kind == Extent::Kind::dim || extent.kind == Extent::Kind::dim_or_one;
      if (is_dim && extent.dim == spec_.batch.dim) ++whole;
      if (!is_dim && (extent.dim == spec_.batch.dim || extent.expression.names().count(spec_.batch.dim)))
        fault("/batch/dim", "'" + spec_.batch.dim + "' is part of the extent `" + extent.text + "` of " + tensor.name +
                                "; a batch dim is a dimension of its own, or not there");
    }
    if (whole > 1)
      fault("/batch/dim", "'" + spec_.batch.dim + "' is there " + std::to_string(whole) + " times in the shape of " + tensor.name);
  }

  void types() {
    for (const auto& [variable, types] : spec_.types)
      if (std::none_of(spec_.tensors.begin(), spec_.tensors.end(),
                       [&variable = variable](const TensorSpec& t) { return t.type == variable; }))
        fault(pointer_to("/types", variable), "no tensor has the type '" + variable + "'; use it or drop it");
  }

  // Forms are chosen before any dim is known.
  void form(std::size_t index) {
    NameRules rule;
    for (const Attribute& attribute : spec_.attributes)
      if (attribute.optional || attribute.fallback.names().empty()) rule.known.push_back(attribute.name);
    rule.only_given = true;
    rule.place = "the condition of a form (attributes and given() only)";
    names_.judge(pointer_to("/forms", index) + "/when", spec_.forms[index].when, rule);
  }

  // A default sees the attributes before it.
  void attribute(std::size_t index) {
    NameRules rule = rules("a default");
    rule.known.clear();
    for (const std::string& name : contract_)
      if (!spec_.attribute(name)) rule.known.push_back(name);
    for (std::size_t i = 0; i < index; ++i) rule.known.push_back(spec_.attributes[i].name);
    rule.varying = spec_.attributes[index].varies;
    names_.judge(pointer_to("/attributes", index) + "/default", spec_.attributes[index].fallback, rule);
    const Expression& matters = spec_.attributes[index].matters;
    if (matters) names_.judge(pointer_to("/attributes", index) + "/matters", matters, rules("'matters'"));
  }

  void requirement(std::size_t index) {
    const Requirement& requirement = spec_.requirements[index];
    const std::string pointer = pointer_to("/requires", index);
    NameRules rule = rules("'requires'");
    rule.may_read = true;
    rule.data = !requirement.reads.empty();
    rule.data_of = requirement.reads;
    names_.judge(pointer + "/that", requirement.that, rule);
    for (const Expression& expression : expressions_in(requirement.message)) names_.judge(pointer + "/else", expression, rule);
  }

  static bool is_floating(const std::string& type) {
    const auto known = dtype_named(type);
    return known && ejk::is_floating(*known);
  }

  // Every floating type an output can have needs a bound for its error.
  void tolerances() {
    std::set<std::string> needed;
    for (const TensorSpec& tensor : spec_.tensors) {
      if (!tensor.written()) continue;
      if (is_floating(tensor.type)) needed.insert(tensor.type);
      for (const auto& [variable, types] : spec_.types)
        if (variable == tensor.type)
          for (const std::string& type : types)
            if (is_floating(type)) needed.insert(type);
    }
    for (const std::string& type : needed)
      if (!spec_.tolerance.count(type)) fault("/tolerance", "no tolerance for " + type + ", which an output can have");
  }

  const Spec& spec_;
  std::vector<Fault>& faults_;
  const std::vector<std::string> contract_ = contract_names(spec_);
  NameCheck names_;
};

}  // namespace

void check_contract(const Spec& spec, std::vector<Fault>& faults) { ContractCheck(spec, faults).run(); }

}  // namespace ejk::spec
