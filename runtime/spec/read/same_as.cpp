// Kernels that are served by another's variants.
#include "spec/read/same_as.hpp"

#include <algorithm>

#include "spec/check/name_check.hpp"
#include "spec/check/suggest.hpp"
#include "spec/read/json.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

class SameAsCheck {
 public:
  SameAsCheck(const Spec& spec, const Spec& other, std::vector<Fault>& faults) : spec_(spec), other_(other), faults_(faults) {}

  void run() {
    if (other_.same_as) return fault("/same_as/kernel", other_.kernel + " has no variants of its own; name " + other_.same_as->kernel);
    for (const TensorSpec& tensor : spec_.tensors) own_tensor(tensor);
    for (const TensorSpec& tensor : other_.tensors) required_tensor(tensor);
    for (const Attribute& attribute : spec_.attributes) own_attribute(attribute);
    for (const Attribute& attribute : other_.attributes) required_attribute(attribute);
    for (const Named& fixed : spec_.same_as->attributes) fixed_attribute(fixed);
    for (const auto& [name, types] : spec_.types) {
      const auto same = [&, &name = name](const auto& each) { return each.first == name; };
      if (std::none_of(other_.types.begin(), other_.types.end(), same))
        fault(pointer_to("/types", name), other_.kernel + " has no type variable '" + name + "'");
    }
  }

 private:
  void fault(const std::string& pointer, std::string sentence) { faults_.push_back({spec_.file, pointer, std::move(sentence)}); }

  std::string place(const TensorSpec& tensor) const {
    if (!tensor.output) return pointer_to("/inputs", static_cast<std::size_t>(&tensor - spec_.tensors.data()));
    const Output* output = spec_.output(tensor.name);
    return output ? pointer_to("/outputs", static_cast<std::size_t>(output - spec_.outputs.data())) : "/outputs";
  }

  void own_tensor(const TensorSpec& tensor) {
    const TensorSpec* there = other_.tensor(tensor.name);
    if (!there)
      fault(place(tensor), other_.kernel + " has no tensor '" + tensor.name + "'" + suggestion(tensor.name, names_of_tensors(other_)));
    else if (there->updated_as != tensor.updated_as)
      fault(place(tensor), "in " + other_.kernel + " '" + tensor.name + "' is " +
                               (there->updated_as.empty() ? "not updated" : "updated, as the output '" + there->updated_as + "'"));
    else if (there->for_gradient != tensor.for_gradient)
      fault(place(tensor),
            "in " + other_.kernel + " '" + tensor.name + "' is " + (there->for_gradient ? "" : "not ") + "for the gradient alone");
    else if (there->output != tensor.output || there->type != tensor.type)
      fault(place(tensor),
            "in " + other_.kernel + " '" + tensor.name + "' is an " + (there->output ? "output" : "input") + " of type " + there->type);
  }

  void required_tensor(const TensorSpec& tensor) {
    const TensorSpec* here = spec_.tensor(tensor.name);
    if (!tensor.optional && (!here || here->optional))
      fault("/same_as/kernel", other_.kernel + " needs " + tensor.name + ", which no call here is sure to have");
  }

  void own_attribute(const Attribute& attribute) {
    const Attribute* there = other_.attribute(attribute.name);
    const std::string pointer = pointer_to("/attributes", static_cast<std::size_t>(&attribute - spec_.attributes.data()));
    if (!there)
      fault(pointer,
            other_.kernel + " has no attribute '" + attribute.name + "'" + suggestion(attribute.name, names_of_attributes(other_)));
    else if (there->type != attribute.type || there->varies != attribute.varies)
      fault(pointer, "the attribute '" + attribute.name + "' is declared otherwise in " + other_.kernel);
  }

  void required_attribute(const Attribute& attribute) {
    if (!attribute.optional && !attribute.fallback && !spec_.attribute(attribute.name) && !spec_.same_as->fixed(attribute.name))
      fault("/same_as/attributes", other_.kernel + " needs the attribute " + attribute.name);
  }

  void fixed_attribute(const Named& fixed) {
    const std::string pointer = pointer_to("/same_as/attributes", fixed.name);
    if (!other_.attribute(fixed.name))
      fault(pointer, other_.kernel + " has no attribute '" + fixed.name + "'" + suggestion(fixed.name, names_of_attributes(other_)));
    NameRules rules;
    rules.known = contract_names(spec_);
    rules.varying = true;
    rules.place = "an attribute of 'same_as'";
    NameCheck(spec_, faults_).judge(pointer, fixed.expression, rules);
    if (spec_.attribute(fixed.name)) fault(pointer, "'" + fixed.name + "' is an attribute of the call, too");
  }

  const Spec& spec_;
  const Spec& other_;
  std::vector<Fault>& faults_;
};

}  // namespace

void check_same_as(const Spec& spec, const Spec& other, std::vector<Fault>& faults) { SameAsCheck(spec, other, faults).run(); }

void serve(Spec& spec, std::shared_ptr<const Spec> other) {
  spec.variants = other->variants;
  spec.served_by = std::move(other);
}

}  // namespace ejk::spec
