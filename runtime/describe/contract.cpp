// The contract of a spec, member by member.
#include "describe/contract.hpp"

#include <set>

namespace ejk {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(spec::AttributeType type) {
  switch (type) {
    case spec::AttributeType::boolean:
      return "bool";
    case spec::AttributeType::integer:
      return "int";
    case spec::AttributeType::floating:
      return "float";
    case spec::AttributeType::string:
      return "string";
  }
  return "";
}

Json shapes_json(const spec::TensorSpec& tensor) {
  auto shapes = Json::array();
  for (const auto& shape : tensor.shapes) {
    auto extents = Json::array();
    for (const auto& extent : shape.extents) extents.push_back(extent.text);
    shapes.push_back({{"form", shape.form}, {"extents", extents}});
  }
  return shapes;
}

// Tensors whose data decides the shape of an output: those that its dims' values look at.
Json shape_reads(const spec::Spec& spec, const spec::TensorSpec& tensor) {
  std::set<std::string> reads;
  for (const auto& shape : tensor.shapes)
    for (const auto& extent : shape.extents) {
      const auto names = extent.expression ? extent.expression.names() : std::set<std::string>{extent.dim};
      for (const auto& dim : spec.dims)
        if (dim.value && names.contains(dim.name))
          for (const auto& subject : dim.value.subjects()) reads.insert(subject);
    }
  return tensor.output ? Json(reads) : Json::array();
}

Json tensors_json(const spec::Spec& spec) {
  auto tensors = Json::array();
  for (const auto& tensor : spec.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"doc", tensor.doc},
                       {"type", tensor.type},
                       {"shapes", shapes_json(tensor)},
                       {"optional", tensor.optional},
                       {"output", tensor.output},
                       {"updated_as", tensor.updated_as},
                       {"for_gradient", tensor.for_gradient},
                       {"shape_reads", shape_reads(spec, tensor)}});
  return tensors;
}

Json outputs_json(const spec::Spec& spec) {
  auto outputs = Json::array();
  for (const auto& output : spec.outputs) outputs.push_back({{"name", output.name}, {"doc", output.doc}, {"updates", output.updates}});
  return outputs;
}

Json attributes_json(const spec::Spec& spec) {
  auto attributes = Json::array();
  for (const auto& attribute : spec.attributes) {
    Json entry = {{"name", attribute.name},         {"doc", attribute.doc},       {"type", name_of(attribute.type)},
                  {"optional", attribute.optional}, {"varies", attribute.varies}, {"choices", attribute.choices}};
    if (attribute.fallback) entry["default"] = attribute.fallback.text();
    attributes.push_back(std::move(entry));
  }
  return attributes;
}

Json gradient_json(const spec::Spec& spec) {
  auto steps = Json::array();
  for (const auto& step : spec.gradient) {
    if (step.kernel.empty()) {
      steps.push_back({{"tensor", step.tensor}, {"is", step.is}});
      continue;
    }
    Json entry = {{"kernel", step.kernel}};
    if (step.mapped) {
      auto& tensors = entry["tensors"] = Json::object();
      for (const auto& [theirs, ours] : step.tensors) tensors[theirs] = ours;
      auto& attributes = entry["attributes"] = Json::object();
      for (const auto& attribute : step.attributes) attributes[attribute.name] = attribute.expression.text();
    }
    steps.push_back(std::move(entry));
  }
  return steps;
}

}  // namespace

Json contract_json(const spec::Spec& spec) {
  Json dims = Json::object(), types = Json::object(), forms = Json::array(), rules = Json::array();
  for (const auto& dim : spec.dims) dims[dim.name] = dim.doc;
  for (const auto& [variable, legal] : spec.types) types[variable] = legal;
  for (const auto& form : spec.forms) forms.push_back({{"name", form.name}, {"doc", form.doc}, {"when", form.when.text()}});
  for (const auto& rule : spec.requirements) rules.push_back({{"that", rule.that.text()}, {"else", rule.message}, {"reads", rule.reads}});
  Json contract = {{"kernel", spec.kernel},
                   {"doc", spec.doc},
                   {"dims", dims},
                   {"types", types},
                   {"type_defaults", spec.type_defaults},
                   {"forms", forms},
                   {"tensors", tensors_json(spec)},
                   {"outputs", outputs_json(spec)},
                   {"attributes", attributes_json(spec)},
                   {"requires", rules},
                   {"gradient", gradient_json(spec)}};
  if (!spec.batch.dim.empty())
    contract["batch"] = {{"dim", spec.batch.dim}, {"if", spec.batch.condition ? spec.batch.condition.text() : "true"}};
  return contract;
}

}  // namespace ejk
