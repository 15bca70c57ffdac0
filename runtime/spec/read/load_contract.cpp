// The contract of a kernel: dims, types, forms, attributes, tensors, requirements, cost and tolerance.
#include <algorithm>
#include <cmath>

#include "spec/check/suggest.hpp"
#include "spec/read/load_parts.hpp"
#include "spec/read/message.hpp"

namespace ejk::spec {
namespace {

// Fields of a case that are no names of the contract.
bool is_case_field(const std::string& name) {
  return name == "name" || name == "doc" || name == "like" || name == "given" || name == "fill";
}

class ContractReader {
 public:
  ContractReader(const JsonNode& kernel, Spec& spec) : kernel_(kernel), spec_(spec) {}

  void read() {
    spec_.kernel = kernel_.text("kernel");
    spec_.doc = kernel_.text("doc");
    if (const auto name = kernel_.field("kernel"); name && name->json().is_string())
      if (const auto why = bad_file_name(spec_.kernel)) name->fault(*why);
    for (const auto& [name, node] : kernel_.members("dims")) dim(name, node);
    for (const auto& [name, node] : kernel_.members("types")) type_variable(name, node);
    for (const JsonNode& node : kernel_.list("forms")) form(node);
    for (const JsonNode& node : kernel_.list("attributes")) attribute(node);
    for (const JsonNode& node : kernel_.list("inputs")) tensor(node, false);
    for (const JsonNode& node : kernel_.list("outputs")) output(node);
    if (const auto outputs = kernel_.field("outputs"); outputs && outputs->json().is_array() && outputs->json().empty())
      outputs->fault("a kernel has at least one output");
    else if (outputs && spec_.outputs.empty() && !spec_.tensors.empty() && spec_.tensors.back().for_gradient)
      outputs->fault("every output is for the gradient alone; a kernel has at least one for its callers");
    for (const JsonNode& node : kernel_.list("requires")) requirement(node);
    if (const auto node = kernel_.field("gradient")) spec_.gradient = load_gradient(*node);
    tuning();
    if (const auto node = kernel_.field("batch"); node && node->json().is_object() && node->open("batch"))
      spec_.batch = {node->text("dim"), node->expression("if")};
    cost();
    for (const auto& [name, node] : kernel_.members("tolerance")) tolerance(name, node);
    for (const auto& [name, node] : kernel_.members("let")) shared_let(name, node);
  }

 private:
  void declare(const JsonNode& node, const std::string& name, std::string_view what) {
    if (is_case_field(name))
      node.fault("'" + name + "' is a field of cases; choose another name");
    else if (dtype_named(name))
      node.fault("'" + name + "' is an element type; choose another name");
    else
      names_.declare(node, name, what);
  }

  void dim(const std::string& name, const JsonNode& node) {
    Dim dim;
    dim.name = name;
    declare(node, name, "dim");
    if (node.json().is_string()) {
      dim.doc = node.json().get<std::string>();
      if (dim.doc.find_first_not_of(' ') == std::string::npos) node.fault("the doc of dim '" + name + "' is empty; say what it counts");
    } else if (!node.json().is_object()) {
      node.wrong_kind(R"(a dim: its doc, or {"doc": ..., "value": expression})");
    } else if (node.open("dim")) {
      dim.doc = node.text("doc");
      dim.value = node.expression("value");
    }
    spec_.dims.push_back(std::move(dim));
  }

  void type_variable(const std::string& name, const JsonNode& node) {
    declare(node, name, "type variable");
    if (node.json().is_object() && node.open("type")) {
      const std::string other = node.text("default");
      const auto known = names_of_types(spec_);
      if (std::find(known.begin(), known.end(), other) != known.end())
        spec_.type_defaults[name] = other;
      else if (const auto field = node.field("default"))
        field->fault("'" + other + "' is no type variable before this one" + suggestion(other, known));
      if (const auto any = node.field("any")) element_types(name, *any);
    } else if (!node.json().is_object()) {
      element_types(name, node);
    }
  }

  void element_types(const std::string& name, const JsonNode& node) {
    std::vector<std::string> types;
    const auto items = node.items();
    if (node.json().is_array() && items.empty())
      node.fault("the type variable '" + name + "' has no element types; known: " + listed(names_of_dtypes()));
    for (const JsonNode& item : items) {
      const auto type = item.text();
      if (!type) continue;
      if (!dtype_named(*type))
        item.fault("unknown element type '" + *type + "'" + suggestion(*type, names_of_dtypes()));
      else if (std::find(types.begin(), types.end(), *type) != types.end())
        item.fault("the element type '" + *type + "' occurs twice");
      types.push_back(*type);
    }
    spec_.types.emplace_back(name, std::move(types));
  }

  void form(const JsonNode& node) {
    if (!node.open("form")) return;
    Form form{node.text("name"), node.text("doc"), node.expression("when")};
    if (const auto name = node.field("name"); name && name->json().is_string()) {
      if (const auto why = bad_file_name(form.name)) name->fault(*why);
      if (form.name == "any") name->fault("'any' gives alternatives in a shape; choose another name");
      for (const Form& other : spec_.forms)
        if (other.name == form.name) name->fault("the form '" + form.name + "' is described already");
    }
    spec_.forms.push_back(std::move(form));
  }

  void attribute(const JsonNode& node) {
    if (!node.open("attribute")) return;
    Attribute attribute;
    attribute.name = node.text("name");
    attribute.doc = node.text("doc");
    attribute.optional = node.boolean("optional");
    attribute.varies = node.boolean("varies");
    attribute.matters = node.expression("matters");
    if (node.field("name")) declare(field_or(node, "name"), attribute.name, "attribute");
    const bool typed = attribute_type(node, attribute);
    attribute.choices = load_words(node, "choices", "choice");
    if (const auto choices = node.field("choices"); choices && typed && attribute.type != AttributeType::string)
      choices->fault("only an attribute of type 'string' has choices");
    if (const auto fallback = node.field("default"); fallback && typed) default_of(*fallback, attribute);
    if (attribute.varies && !attribute.optional && !node.field("default"))
      node.fault("an attribute that varies is no part of a call's key, from which a recorded call is made again: give it a 'default'");
    spec_.attributes.push_back(std::move(attribute));
  }

  static bool attribute_type(const JsonNode& node, Attribute& attribute) {
    static const std::vector<std::string> names = {"bool", "int", "float", "string"};  // in the enum's order
    const auto field = node.field("type");
    if (!field || !field->json().is_string()) return false;
    const std::string name = node.text("type");
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      field->fault("unknown attribute type '" + name + "'" + suggestion(name, names));
      return false;
    }
    attribute.type = static_cast<AttributeType>(found - names.begin());
    return true;
  }

  // A string is an expression, except for a string attribute, where it is the value, or the type variable that the attribute chooses.
  void default_of(const JsonNode& node, Attribute& attribute) const {
    const bool is_string = node.json().is_string();
    if (attribute.optional) node.fault("an optional attribute has no default: not given is its default; drop 'optional' or 'default'");
    if (is_string && (attribute.type != AttributeType::string || chooses_type(node, attribute))) {
      attribute.fallback = node.expression();
      return;
    }
    const auto value = attribute_value(node, attribute);
    if (!value) return;
    if (!is_string)
      attribute.fallback = Expression::parse(to_text(*value));
    else if (std::get<std::string>(*value).find('\'') != std::string::npos)
      node.fault("a string attribute's value has no quotes in it");
    else
      attribute.fallback = Expression::parse("'" + std::get<std::string>(*value) + "'");
  }

  // Whether the default is a type variable; its choices are then the types that the variable may be.
  bool chooses_type(const JsonNode& node, const Attribute& attribute) const {
    const auto variable = std::find_if(spec_.types.begin(), spec_.types.end(),
                                       [&](const auto& each) { return each.first == node.json().get<std::string>(); });
    if (variable == spec_.types.end()) return false;
    const auto& legal = variable->second;
    if (attribute.varies || !std::is_permutation(legal.begin(), legal.end(), attribute.choices.begin(), attribute.choices.end()))
      node.fault("the attribute '" + attribute.name + "' chooses the type " + variable->first +
                 ": it does not vary, and its \"choices\" are " + listed(legal));
    return true;
  }

  void output(const JsonNode& node) {
    if (!node.json().is_object() || !node.json().contains("updates")) return tensor(node, true);
    if (!node.open("updating_output")) return;
    Output output = load_updating_output(node, spec_);
    const auto name = node.field("name");
    if (name && output.name != output.updates)
      declare(*name, output.name, "output");
    else if (name && spec_.output(output.name))
      name->fault("the output '" + output.name + "' is described already");
    spec_.outputs.push_back(std::move(output));
  }

  void tensor(const JsonNode& node, bool output) {
    const std::string_view what = output ? "output" : "input";
    if (!node.open(what)) return;
    TensorSpec tensor;
    tensor.name = node.text("name");
    tensor.doc = node.text("doc");
    tensor.type = node.text("type");
    tensor.optional = node.boolean("optional");
    tensor.output = output;
    tensor.fill = node.text("fill");
    tensor.matters = node.expression("matters");
    tensor.precision = node.expression("precision");
    if (node.field("name")) declare(field_or(node, "name"), tensor.name, what);
    if (const auto type = node.field("type"); type && type->json().is_string()) element_type(*type, tensor.type);
    if (const auto shape = node.field("shape")) tensor.shapes = load_shapes(*shape, spec_);
    if (const auto use = node.field("for"); use && output) for_gradient(*use, tensor);
    if (output && !tensor.for_gradient) spec_.outputs.push_back({tensor.name, tensor.doc, ""});
    spec_.tensors.push_back(std::move(tensor));
  }

  void for_gradient(const JsonNode& node, TensorSpec& tensor) {
    if (const auto use = node.text(); use && *use != "gradient")
      node.fault("an output is for callers, or for \"gradient\" alone; found '" + *use + "'");
    if (tensor.optional) node.fault("an output for the gradient is made where a gradient will be taken, and only there: drop 'optional'");
    if (!kernel_.field("gradient")) node.fault("the kernel has no 'gradient', so nobody takes '" + tensor.name + "'");
    tensor.for_gradient = tensor.optional = true;
  }

  void element_type(const JsonNode& node, const std::string& type) const {
    std::vector<std::string> known = names_of_types(spec_);
    if (dtype_named(type) || std::find(known.begin(), known.end(), type) != known.end()) return;
    known.insert(known.end(), names_of_dtypes().begin(), names_of_dtypes().end());
    node.fault("unknown type '" + type + "'; known: " + listed(known));
  }

  void requirement(const JsonNode& node) {
    if (!node.open("requirement")) return;
    Requirement rule{node.expression("that"), node.text("else"), {}};
    if (const auto message = node.field("else"); message && message->json().is_string()) check_message(*message, rule.message);
    if (const auto reads = node.field("reads"))
      for (const JsonNode& item : reads->json().is_array() ? reads->items() : std::vector<JsonNode>{*reads}) read_by(rule, item);
    spec_.requirements.push_back(std::move(rule));
  }

  void read_by(Requirement& rule, const JsonNode& node) const {
    const auto name = node.text();
    if (!name) return;
    const TensorSpec* tensor = spec_.tensor(*name);
    rule.reads.push_back(*name);
    if (tensor && !tensor->output) return;
    std::vector<std::string> inputs;
    for (const TensorSpec& t : spec_.tensors)
      if (!t.output) inputs.push_back(t.name);
    node.fault("'" + *name + "' is no input" + suggestion(*name, inputs));
  }

  static void check_message(const JsonNode& node, const std::string& message) {
    try {
      expressions_in(message);
    } catch (const ExpressionError& error) {
      node.fault(std::string("bad expression in the message: ") + error.what());
    }
  }

  void tuning() {
    const auto node = kernel_.field("tuning");
    if (!node || !node->json().is_object() || !node->open("tuning")) return;
    for (const JsonNode& item : node->list("nearest")) {
      const auto name = item.text();
      if (!name) continue;
      if (const auto why = not_nearest(*name); !why.empty())
        item.fault(why);
      else if (std::find(spec_.nearest.begin(), spec_.nearest.end(), *name) != spec_.nearest.end())
        item.fault("'" + *name + "' occurs twice");
      spec_.nearest.push_back(*name);
    }
  }

  // Why calls that differ in that name cannot be near each other; "" if they can.
  std::string not_nearest(const std::string& name) const {
    if (const Attribute* attribute = spec_.attribute(name)) {
      if (attribute->varies) return "the attribute '" + name + "' varies: it is no part of a call's key, so calls never differ in it";
      if (attribute->type != AttributeType::integer) return "the attribute '" + name + "' is no integer: its values are not near or far";
      return {};
    }
    std::vector<std::string> known;
    for (const Dim& dim : spec_.dims) known.push_back(dim.name);
    if (std::find(known.begin(), known.end(), name) != known.end()) return {};
    for (const Attribute& attribute : spec_.attributes)
      if (!attribute.varies && attribute.type == AttributeType::integer) known.push_back(attribute.name);
    return "'" + name + "' is no dim and no integer attribute" + suggestion(name, known);
  }

  void shared_let(const std::string& name, const JsonNode& node) {
    names_.declare(node, name, "let");
    SharedLet let;
    let.name = name;
    if (node.json().is_array()) {
      let.clauses = expressions_of(node.items());
      if (let.clauses.empty()) node.fault("the let '" + name + "' has no clauses");
      let.expression = all_of(node, let.clauses);
    } else {
      let.expression = node.expression();
      let.clauses = {let.expression};
    }
    spec_.let.push_back(std::move(let));
  }

  // "(a) and (b)"; none if one of them is missing, which is a fault already.
  static Expression all_of(const JsonNode& node, const std::vector<Expression>& clauses) {
    std::string text;
    for (const Expression& clause : clauses) {
      if (!clause) return {};
      text += (text.empty() ? "(" : " and (") + clause.text() + ")";
    }
    try {
      return text.empty() ? Expression() : Expression::parse(text);
    } catch (const ExpressionError& error) {
      node.fault("the clauses together are no expression: " + std::string(error.what()));
      return {};
    }
  }

  void cost() {
    const auto node = kernel_.field("cost");
    if (!node || !node->json().is_object() || !node->open("cost")) return;
    spec_.flops = node->expression("flops");
    spec_.bytes = node->expression("bytes");
  }

  void tolerance(const std::string& type, const JsonNode& node) {
    if (!dtype_named(type)) node.fault("unknown element type '" + type + "'" + suggestion(type, names_of_dtypes()));
    if (!node.json().is_number()) return node.wrong_kind("a number (relative error)");
    const double value = node.json().get<double>();
    if (!(value > 0 && value < 1)) node.fault("a tolerance is above 0 and below 1, found " + node.found());
    spec_.tolerance[type] = value;
  }

  const JsonNode& kernel_;
  Spec& spec_;
  NameTable names_;
};

}  // namespace

void load_contract(const JsonNode& kernel, Spec& spec) { ContractReader(kernel, spec).read(); }

}  // namespace ejk::spec
