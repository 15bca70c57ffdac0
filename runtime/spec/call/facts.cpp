// The facts of a spec's case: what a call with those sizes, types and options would say of its tensors.
#include <fmt/format.h>
#include <algorithm>

#include "spec/call/binder.hpp"

namespace ejk::spec {
namespace {

class CaseFacts {
 public:
  CaseFacts(const Spec& spec, const Case& c) : spec_(spec), case_(c) {
    binding_.spec = &spec;
    for (const auto& [name, value] : c.dims) {
      const auto* size = std::get_if<std::int64_t>(&value);
      if (!size) fail(name, fmt::format("{} is {}, expected an integer", name, to_text(value)));
      binding_.dims[name] = *size;
    }
    for (const auto& [variable, type] : c.types) binding_.types[variable] = type;
    for (const auto& [name, value] : c.attributes) binding_.attributes[name] = value;
    binding_.facts.attributes = {c.attributes.begin(), c.attributes.end()};
  }

  CallFacts make() {
    Binder binder{spec_, binding_, {}, {}};
    mark_given();
    binder.take_attributes();
    binder.choose_form();
    binder.derive_dims(false);
    binder.default_types();
    CallFacts facts;
    facts.attributes = binding_.facts.attributes;
    for (const TensorSpec& tensor : spec_.tensors)
      if (wanted(tensor) && !of_unknown_data(tensor)) facts.tensors.emplace(tensor.name, tensor_facts(tensor));
    return facts;
  }

 private:
  [[noreturn]] void fail(const std::string& field, std::string sentence) const {
    throw SpecError({{spec_.file, field.empty() ? case_.pointer : case_.pointer + "/" + field, std::move(sentence)}});
  }

  bool named(const TensorSpec& tensor) const { return std::find(case_.given.begin(), case_.given.end(), tensor.name) != case_.given.end(); }

  // The form depends on what is given, before any shape is known.
  void mark_given() {
    for (const std::string& name : case_.given)
      if (!spec_.tensor(name)) fail("given", fmt::format("there is no tensor '{}'", name));
    for (const TensorSpec& tensor : spec_.tensors)
      if (!tensor.optional || named(tensor)) binding_.facts.tensors[tensor.name] = {};
  }

  bool wanted(const TensorSpec& tensor) const {
    if (tensor.optional) return named(tensor);
    return std::any_of(tensor.shapes.begin(), tensor.shapes.end(), [&](const Shape& shape) { return takes_form(shape, binding_.form); });
  }

  const Shape* shape_of(const TensorSpec& tensor) const {
    const Shape* first = nullptr;
    for (const Shape& shape : tensor.shapes) {
      if (!takes_form(shape, binding_.form)) continue;
      if (!first) first = &shape;
      if (std::all_of(shape.extents.begin(), shape.extents.end(),
                      [&](const Extent& e) { return e.dim.empty() || binding_.dims.count(e.dim); }))
        return &shape;  // of several alternatives the first whose dims the case names
    }
    return first;
  }

  // An output sized by a derived dim that only data tells.
  bool of_unknown_data(const TensorSpec& tensor) const {
    const Shape* shape = tensor.output ? shape_of(tensor) : nullptr;
    if (!shape) return false;
    for (const Extent& extent : shape->extents)
      for (const Dim& dim : spec_.dims)
        if (dim.value && dim.name == extent.dim && !binding_.dims.count(dim.name)) return true;
    return false;
  }

  TensorFacts tensor_facts(const TensorSpec& tensor) const {
    const Shape* shape = shape_of(tensor);
    if (!shape) fail("given", fmt::format("{} is not accepted in the {} form", tensor.name, binding_.form));
    TensorFacts facts;
    for (const Extent& extent : shape->extents) facts.shape.push_back(size_of_extent(tensor, extent));
    if (!row_major(facts.shape, facts.strides)) fail("", fmt::format("{} of shape {} is too large", tensor.name, shape_text(facts.shape)));
    const auto bound = binding_.types.find(tensor.type);
    const std::string type = bound == binding_.types.end() ? tensor.type : bound->second;
    const auto known = dtype_named(type);
    if (!known) fail("", fmt::format("the case gives no type {}, which {} has", tensor.type, tensor.name));
    facts.type = *known;
    return facts;
  }

  std::int64_t size_of_extent(const TensorSpec& tensor, const Extent& extent) const {
    if (!extent.dim.empty()) {
      const auto dim = binding_.dims.find(extent.dim);
      if (dim == binding_.dims.end())
        fail("", fmt::format("the case gives no {}, which {} {} needs", extent.dim, tensor.name, shape_text(*shape_of(tensor))));
      return dim->second + (extent.kind == Extent::Kind::expression ? extent.plus : 0);
    }
    try {
      return extent.expression.integer(binding_);
    } catch (const ExpressionError& e) {
      fail("", fmt::format("the extent `{}` of {} has no value: {}", extent.text, tensor.name, e.what()));
    }
  }

  const Spec& spec_;
  const Case& case_;
  Binding binding_;
};

}  // namespace

CallFacts facts_of(const Spec& spec, const Case& c) { return CaseFacts(spec, c).make(); }

}  // namespace ejk::spec
