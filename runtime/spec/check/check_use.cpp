// What variants do with each tensor and attribute of the contract.
#include "spec/check/check_use.hpp"

#include <algorithm>
#include <set>

#include "spec/call/assumption.hpp"
#include "spec/call/binder.hpp"

namespace ejk::spec {
namespace {

using Names = std::set<std::string>;

Names names_in(const Expression& expression) {
  Names names = expression.names();
  names.merge(expression.subjects());
  return names;
}

// What its use depends on: "matters", and what `requires` ties to it ("given(x) == given(y)": to refuse one may be to refuse both).
Names tied_to(const Spec& spec, const TensorSpec& tensor) {
  Names tied = names_in(tensor.matters);
  for (const Requirement& rule : spec.requirements)
    if (rule.that.name_calls().count({"given", tensor.name})) tied.merge(names_in(rule.that));
  return tied;
}

// One variant against the contract.
class UseCheck {
 public:
  UseCheck(const Spec& spec, const Variant& variant, std::vector<Fault>& faults) : spec_(spec), variant_(variant), faults_(faults) {}

  void tensor(const TensorSpec& tensor) {
    for (const Assumption& one : assumptions(spec_, tensor.name, tied_to(spec_, tensor)))
      if (has(one, tensor) && tensor.matters.known(one) != Value(false) && one.taken_by(variant_) && !is_passed(tensor.name, one))
        return forgotten(tensor, one);
  }

  void attribute(const Attribute& attribute) {
    std::vector<Assumption> taken = assumptions(spec_, attribute.name, names_in(attribute.matters));
    std::erase_if(taken, [&](const Assumption& one) { return attribute.matters.known(one) == Value(false) || !one.taken_by(variant_); });
    for (const Assumption& one : taken)
      for (const Assumption& other : taken)
        if (differ_in(attribute.name, one, other) && !tells_apart(attribute.name, one, other)) return alike(attribute, one, other);
  }

 private:
  static bool has(const Assumption& one, const TensorSpec& tensor) {
    if (tensor.optional) return one.given.at(tensor.name);
    return std::any_of(tensor.shapes.begin(), tensor.shapes.end(), [&](const Shape& shape) { return takes_form(shape, one.form); });
  }

  bool is_passed(const std::string& tensor, const Assumption& one) const {
    const VariantAssumption scope(variant_, one);
    return std::any_of(variant_.launches.begin(), variant_.launches.end(), [&](const Launch& launch) {
      return scope.launches(launch) && std::any_of(launch.arguments.begin(), launch.arguments.end(), [&](const Argument& argument) {
               return argument.kind != Argument::Kind::value && may_be(argument, tensor, scope);
             });
    });
  }

  // A choice that comes after one that surely holds is never taken.
  static bool may_be(const Argument& argument, const std::string& tensor, const VariantAssumption& scope) {
    if (argument.choices.empty()) return argument.name == tensor;
    for (const MapChoice& choice : argument.choices) {
      const auto holds = choice.condition ? choice.condition.known(scope) : std::optional<Value>(true);
      if (choice.tensor == tensor && holds != Value(false)) return true;
      if (holds == Value(true)) return false;
    }
    return false;
  }

  // Else alike; the forms may differ.
  static bool differ_in(const std::string& attribute, const Assumption& one, const Assumption& other) {
    if (one.attributes.at(attribute) == other.attributes.at(attribute)) return false;
    auto same = one.attributes;
    same[attribute] = other.attributes.at(attribute);
    return same == other.attributes && one.given == other.given;
  }

  bool tells_apart(const std::string& attribute, const Assumption& one, const Assumption& other) const {
    const VariantAssumption here(variant_, one), there(variant_, other);
    const auto differs = [&](const Expression& expression) {
      const auto value = expression.known(here), value_there = expression.known(there);
      return value && value_there ? value != value_there : mentions(expression, attribute);
    };
    const auto launch_differs = [&](const Launch& launch) {
      if (differs(launch.condition) || (launch.repeat && differs(launch.repeat))) return true;
      return here.launches(launch) && there.launches(launch) &&
             std::any_of(launch.arguments.begin(), launch.arguments.end(), [&](const Argument& each) {
               return differs(each.expression) || std::any_of(each.choices.begin(), each.choices.end(), [&](const MapChoice& choice) {
                        return choice.condition && differs(choice.condition);
                      });
             });
    };
    return std::any_of(variant_.specialize.begin(), variant_.specialize.end(),
                       [&](const Named& each) { return differs(each.expression); }) ||
           std::any_of(variant_.launches.begin(), variant_.launches.end(), launch_differs);
  }

  // Through lets, specialisations, the form and the values of dims.
  bool mentions(const Expression& expression, const std::string& attribute) const {
    Names seen;
    std::vector<std::string> open;
    const auto add = [&](const Expression& each) {
      for (const std::string& name : names_in(each))
        if (seen.insert(name).second) open.push_back(name);
    };
    add(expression);
    while (!open.empty()) {
      const std::string name = open.back();
      open.pop_back();
      for (const Named& let : variant_.let)
        if (let.name == name) add(let.expression);
      for (const Named& each : variant_.specialize)
        if (each.name == name) add(each.expression);
      if (const SharedLet* let = spec_.shared_let(name)) add(let->expression);
      for (const Dim& dim : spec_.dims)
        if (dim.name == name) add(dim.value);
      if (name == "form")
        for (const Form& form : spec_.forms) add(form.when);
    }
    return seen.count(attribute) > 0;
  }

  void fault(std::string sentence) { faults_.push_back({spec_.file, variant_.pointer, std::move(sentence)}); }

  void forgotten(const TensorSpec& tensor, const Assumption& one) {
    const std::string name = "'" + tensor.name + "'", calls = one.text().empty() ? "" : " (" + one.text() + ")";
    fault("the variant '" + variant_.name + "' takes calls with " + name + calls +
          ", and passes it to no launch: it would compute without it. Pass it in 'args'" +
          (tensor.optional ? ", or refuse it in 'supports': \"not given(" + tensor.name + ")\"" : ""));
  }

  void alike(const Attribute& attribute, const Assumption& one, const Assumption& other) {
    fault("the variant '" + variant_.name + "' computes the same for (" + one.text() + ") as for (" + other.text() +
          "): no argument, condition or specialisation tells them apart. Pass '" + attribute.name +
          "' to a launch, refuse what is not computed in 'supports', or say in the attribute where it changes the result: \"matters\"");
  }

  const Spec& spec_;
  const Variant& variant_;
  std::vector<Fault>& faults_;
};

}  // namespace

void check_use(const Spec& spec, std::vector<Fault>& faults) {
  for (const Variant& variant : spec.variants) {
    UseCheck check(spec, variant, faults);
    for (const TensorSpec& tensor : spec.tensors) check.tensor(tensor);
    for (const Attribute& attribute : spec.attributes) check.attribute(attribute);
  }
}

}  // namespace ejk::spec
